# SPDX-License-Identifier: Apache-2.0
"""A real GPU against a null GPU, and `caching` against PyTorch's allocator on the real one.

    python -m docs.generate.real_gpu REAL NULL [--json FILE]

REAL and NULL are folders of `make gpu ONLY=agreement`, the latter with `NULL=` and the same
PyTorch.
Prints Markdown; FILE gets every difference.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from allocbench.verification.verify import Verdict
from benchmarks.workshop.gpu.tasks import observations
from docs.generate.gpu_pairs import STAGE, Pair, checks, pairs, peak_bytes, values

_MOST_SHOWN = 12  # allocs in only one of the two


def _peaks(real: Path, null: Path, name: str) -> list[str]:
    """Cells: peak requested, allocated and reserved bytes of both, once if they are equal."""
    sides = [peak_bytes(side, name) for side in (real, null)]
    cells = []
    for there, here in zip(*(side.values() for side in sides), strict=True):
        both = f"{there:,}" if there is not None else "none"
        cells.append(both if there == here else f"{both}, null {here or 0:,}")
    return cells


def events(real: Path, null: Path) -> Iterator[tuple[str, Any]]:
    """Lines of Markdown: the events of each process, where they differ, and `caching`.

    Each line comes with the facts behind it, or None; so do those of the other sections.
    """
    yield "## Events: a real against a null GPU", None
    yield (
        "| process | events, real | null | in common | max load, real | null | driver calls, real |"
        " null | same | addresses | descending, real | null |\n" + "|---" * 12 + "|",
        None,
    )
    verdicts, differing = [], []
    for name, pair, verdict, reason in pairs(real, null):
        if verdict is not None:
            verdicts.append((name, verdict))
        if pair is None:
            yield f"| {name} | {reason} |" + " |" * 10, {"name": name, "reason": reason}
            continue
        yield f"| {' | '.join(_cells(pair))} |", asdict(pair)
        if pair.first is not None:
            differing.append(pair)
    yield from _differences(differing)
    yield "\n## `caching` against PyTorch's allocator on the real GPU", None
    yield (
        "| process | allocs | same address | segment calls | same | peak reserved | verdict |\n"
        "|---|--:|--:|--:|--:|--:|---|",
        None,
    )
    for name, verdict in verdicts:
        yield _verdict(name, verdict), verdict.row()


def _cells(pair: Pair) -> Iterator[str]:
    yield pair.name
    yield from (f"{count:,}" for count in (*pair.events, pair.common, *pair.max_load, *pair.calls))
    yield "yes" if pair.calls_equal else "no"
    yield "equal" if pair.shift == 0 else f"shifted {pair.shift:,}" if pair.shift else "differ"
    yield from (f"{share:.0%}" if share is not None else "" for share in pair.descending)


def _differences(differing: Sequence[Pair]) -> Iterator[tuple[str, None]]:
    yield "\n## Differences", None
    for pair in differing:
        yield f"- {pair.name}: first {pair.first}", None
        for side, counts in (("real", pair.only_real), ("null", pair.only_null)):
            most = list(counts.items())[:_MOST_SHOWN]
            shown = "; ".join(f"{count} x {what}" for what, count in most)
            yield f"  - only {side} ({sum(counts.values())}): {shown}", None


def peaks(real: Path, null: Path) -> Iterator[tuple[str, None]]:
    """The peaks of each program."""
    yield "\n## Peaks (bytes): equal on both, or as shown", None
    yield "| program | requested | allocated | reserved |\n|---|---|---|---|", None
    for one in observations.every():
        yield f"| {one.name} | {' | '.join(_peaks(real, null, one.name))} |", None


def _verdict(name: str, verdict: Verdict) -> str:
    found = verdict.agreement
    if found is None:
        return f"| {name} | | | | | | {verdict.unknown} |"
    counts = (
        *(found.allocs, found.placed_equal, found.segment_calls, found.segment_calls_equal),
        found.peak_reserved_recorded,
    )
    told = "equal" if verdict.exit_code == 0 else str(verdict.difference)
    return f"| {name} | " + " | ".join(f"{count or 0:,}" for count in counts) + f" | {told} |"


def same_results(real: Path, null: Path) -> Iterator[tuple[str, Any]]:
    """Which checks return something else than with PyTorch's own allocator."""
    yield "\n## Results of programs with each allocator, against PyTorch's own", None
    yield "| allocator | on the real GPU | on the null GPU |\n|---|---|---|", None
    natives = [values(side / "checks--native.json") or {} for side in (real, null)]
    for path in sorted(real.glob("checks--*.json")):
        cells = []
        for side, native in zip((real, null), natives, strict=True):
            found = values(side / path.name)
            cells.append(checks(found, native.get("returned") or {}))
        yield f"| {path.stem.removeprefix('checks--')} | {' | '.join(cells)} |", None


def sizes(real: Path, null: Path) -> Iterator[tuple[str, Any]]:
    """The allocs of single operators, where they differ."""
    there, here = (
        (values(side / "program--workspace_sizes.json") or {}).get("printed") or {}
        for side in (real, null)
    )
    yield "\n## Allocs of single operators", None
    differing = [name for name in there if there[name] != here.get(name)]
    yield f"{len(there) - len(differing)} of {len(there)} cases are equal.", None
    yield "| case | only on the real GPU | only on the null GPU |\n|---|---|---|", None
    for name in differing:
        left, right = (Counter(map(str, side.get(name, []))) for side in (there, here))
        cells = (_sizes(left - right), _sizes(right - left))
        yield f"| {name} | {' | '.join(cells)} |", {"case": name, "real": there[name]}


def _sizes(counts: Counter[str]) -> str:
    return ", ".join(f"{count} x {size}" if count > 1 else size for size, count in counts.items())


def device(real: Path, null: Path) -> Iterator[tuple[str, Any]]:
    """The properties of the device that differ, and the memory beside PyTorch's."""
    there, here = (values(side / "device.json") for side in (real, null))
    if there is None or here is None:
        return
    yield "\n## Device: what differs", None
    for part, left, right in (
        ("driver", there["driver"], here["driver"]),
        ("attribute", there["driver"]["attributes"], here["driver"]["attributes"]),
        ("property", there["properties"], here["properties"]),
    ):
        for key in left:
            if key != "attributes" and left[key] != right.get(key):
                yield f"- {part} {key}: real {left[key]}, null {right.get(key)}", None
    yield "\n| after | beside PyTorch, real | null |\n|---|--:|--:|", None
    for one, other in zip(there["steps"], here["steps"], strict=False):
        yield f"| {one['after']} | {one['beside']:,} | {other['beside']:,} |", one


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate.real_gpu", description=__doc__)
    parser.add_argument("real", type=Path)
    parser.add_argument("null", type=Path)
    parser.add_argument("--json", type=Path, help="write every difference")
    given = parser.parse_args(arguments)
    real, null = given.real / STAGE, given.null / STAGE
    facts = []
    for part in (events, peaks, same_results, sizes, device):
        for line, fact in part(real, null):
            print(line, flush=True)
            if fact is not None:
                facts.append({"of": part.__name__, **fact})
    if given.json:
        given.json.write_text(json.dumps(facts, indent=1, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
