# SPDX-License-Identifier: Apache-2.0
"""A real GPU against a null GPU, and `caching` against PyTorch's allocator on the real one.

    python -m docs.generate.real_gpu REAL NULL [--json FILE]

REAL and NULL are folders of `python -m allocbench.gpu --only agreement`, the latter with `--null`
and the same PyTorch. Prints Markdown; FILE gets every difference.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from allocbench.gpu import observations
from allocbench.verifying import Verdict, verify
from allocbench.workloads import ALLOC, FREE, Trace, TraceError, alignment
from allocbench.workloads.files import read_recording
from allocbench.workloads.recordings import CALLS, Recording

STAGE = "agreement"
_MODELLED = re.compile(r"\s*\[modelled: \w+\]$")
_PEAKS = ("requested_bytes", "allocated_bytes", "reserved_bytes")
_MOST_SHOWN = 12  # allocs in only one of the two


@dataclass(frozen=True)
class Pair:
    """A process of a program on a real and on a null GPU.

    events: allocs and frees, real and null. common: how many of them are in both in the same order.
    first: the first event that differs, with both sides, or None. only_real, only_null: (label,
    bytes) -> how many more allocs than on the other. calls: of the allocator to the driver, by
    kind and bytes in order, real and null; calls_equal: whether these are the same sequence.
    shift: the distance of all addresses, if it is the same for all blocks. descending: share of the
    segments that lie below the one obtained before.
    """

    name: str
    events: tuple[int, int]
    common: int
    first: dict[str, Any] | None
    only_real: dict[str, int]
    only_null: dict[str, int]
    max_load: tuple[int, int]
    calls: tuple[int, int]
    calls_equal: bool
    shift: int | None
    descending: tuple[float | None, float | None]


def values(path: Path) -> dict[str, Any] | None:
    """What a task measured, or None if it has no result."""
    if not path.exists():
        return None
    result = json.loads(path.read_text(encoding="utf-8"))
    found: dict[str, Any] = result.get("measured", result.get("null"))
    return found


def symbols(trace: Trace) -> list[tuple[int, int, str]]:
    """Each alloc and free: op, bytes of the block, label of the alloc without marks of a null GPU.

    Consecutive frees are sorted by size, as `alignment.agreement` does. Blocks that lived when the
    recording began come first, also sorted: a recording has them in the order of their addresses.
    """
    labels = [_MODELLED.sub("", label) for label in trace.labels]
    number = trace.label if trace.label is not None else np.zeros(len(trace), np.uint32)
    sizes, found = dict[int, int](), list[tuple[int, int, str]]()
    rows = zip(trace.op, trace.block, trace.size, number, strict=True)
    for op, block, size, label in rows:
        if op == ALLOC:
            sizes[int(block)] = int(size)
            found.append((ALLOC, int(size), labels[label] if labels else ""))
        elif op == FREE:
            found.append((FREE, sizes.pop(int(block), -1), ""))
    held = _held(trace)
    found[:held] = sorted(found[:held])
    runs = (list(run) for _, run in groupby(found, key=itemgetter(0)))
    return [event for run in runs for event in (sorted(run) if run[0][0] == FREE else run)]


def _held(trace: Trace) -> int:
    """How many blocks lived when the recording began, and an alloc at that time if there is one."""
    if trace.time_ns is None:
        return 0
    later = np.flatnonzero((trace.op != ALLOC) | (trace.time_ns != 0))
    return int(later[0]) if len(later) else len(trace)


def compare(name: str, real: Recording, null: Recording) -> Pair:
    """Compare what two processes allocated."""
    left, right = symbols(real.trace), symbols(null.trace)
    first = None
    for n in range(max(len(left), len(right))):
        there, here = (side[n] if n < len(side) else None for side in (left, right))
        if there is None or here is None or there[:2] != here[:2]:
            first = {"event": n, "real": there, "null": here}
            break
    allocs = [Counter(event[1:] for event in side if event[0] == ALLOC) for side in (left, right)]
    both = alignment.agreement(null.trace, real.trace)
    calls = [_calls(recording) for recording in (real, null)]
    return Pair(
        name,
        (len(left), len(right)),
        both.matched if first else len(left),
        first,
        _named(allocs[0] - allocs[1]),
        _named(allocs[1] - allocs[0]),
        (real.trace.max_load, null.trace.max_load),
        (len(calls[0]), len(calls[1])),
        calls[0] == calls[1],
        _shift(real, null),
        (_descending(real), _descending(null)),
    )


def _named(counts: Counter[tuple[int, str]]) -> dict[str, int]:
    return {f"{label or '?'} {size:,}": count for (size, label), count in counts.most_common()}


def _calls(recording: Recording) -> list[tuple[str, int]]:
    if recording.calls is None:
        return []
    pairs = zip(recording.calls.kind.tolist(), recording.calls.size.tolist(), strict=True)
    return [(CALLS[kind], size) for kind, size in pairs]


def _shift(real: Recording, null: Recording) -> int | None:
    if len(real.address) != len(null.address) or not len(real.address):
        return None
    distances = np.unique(real.address.astype(np.int64) - null.address.astype(np.int64))
    return int(distances[0]) if len(distances) == 1 else None


def _descending(recording: Recording) -> float | None:
    calls = recording.calls
    if calls is None or np.count_nonzero(calls.kind == 0) < 2:
        return None
    return float(np.mean(np.diff(calls.address[calls.kind == 0].astype(np.int64)) < 0))


def pairs(real: Path, null: Path) -> Iterator[tuple[str, Pair | None, Verdict | None, str]]:
    """Each process that left a snapshot on both: name, comparison, `caching` on the real one.

    The last value says why there is no comparison, or is "".
    """
    capacity = _capacity(real)
    for one in observations.every():
        there, here = (values(side / f"{one.name}.json") for side in (real, null))
        if there is None or here is None:
            yield one.name, None, None, "no result " + ("on the real GPU" if here else "on both")
            continue
        if there["code"] != here["code"]:
            yield one.name, None, None, f"exit codes {there['code']} and {here['code']}"
        for path in sorted(real.glob(f"{one.name}.*.pickle.gz")):
            name = path.name.removesuffix(".pickle.gz")
            verdict = verify(path, "caching:version=2.11", capacity)
            try:
                found = compare(name, read_recording(path), read_recording(null / path.name))
            except (TraceError, OSError) as error:
                yield name, None, verdict, str(error)
            else:
                yield name, found, verdict, ""


def _capacity(real: Path) -> int | None:
    found = values(real / "device.json")
    return int(found["driver"]["total"]) if found else None


def peak_bytes(folder: Path, name: str) -> dict[str, int | None]:
    """The peaks of a program's last process by PyTorch's own statistics: requested, allocated..."""
    facts = (values(folder / f"{name}.json") or {}).get("facts") or {}
    stats = facts.get("stats", {})
    return {peak.removesuffix("_bytes"): stats.get(f"{peak}.all.peak") for peak in _PEAKS}


def peaks(real: Path, null: Path, name: str) -> list[str]:
    """Cells: peak requested, allocated and reserved bytes of both, once if they are equal."""
    sides = [peak_bytes(side, name) for side in (real, null)]
    cells = []
    for there, here in zip(*(side.values() for side in sides), strict=True):
        both = f"{there:,}" if there is not None else "none"
        cells.append(both if there == here else f"{both}, null {here or 0:,}")
    return cells


def tables(real: Path, null: Path) -> Iterator[tuple[str, Any]]:
    """Lines of Markdown, each with the facts behind it or None."""
    yield "## Events: a real against a null GPU", None
    yield (
        "| process | events, real | null | in common | max load, real | null | driver calls, real |"
        " null | same | addresses | descending, real | null |\n" + "|---" * 12 + "|",
        None,
    )
    verdicts = []
    differing = []
    for name, pair, verdict, reason in pairs(real, null):
        if verdict is not None:
            verdicts.append((name, verdict))
        if pair is None:
            yield f"| {name} | {reason} |" + " |" * 10, {"name": name, "reason": reason}
            continue
        shares = (f"{share:.0%}" if share is not None else "" for share in pair.descending)
        cells = [
            *(name, *(f"{count:,}" for count in (*pair.events, pair.common, *pair.max_load))),
            *(f"{count:,}" for count in pair.calls),
            "yes" if pair.calls_equal else "no",
            "equal" if pair.shift == 0 else f"shifted {pair.shift:,}" if pair.shift else "differ",
            *shares,
        ]
        yield "| " + " | ".join(cells) + " |", asdict(pair)
        if pair.first is not None:
            differing.append(pair)
    yield "\n## Peaks (bytes): equal on both, or as shown", None
    yield "| program | requested | allocated | reserved |\n|---|---|---|---|", None
    for one in observations.every():
        yield "| " + " | ".join([one.name, *peaks(real, null, one.name)]) + " |", None
    yield "\n## Differences", None
    for pair in differing:
        yield f"- {pair.name}: first {pair.first}", None
        for side, counts in (("real", pair.only_real), ("null", pair.only_null)):
            shown = "; ".join(
                f"{count} x {what}" for what, count in list(counts.items())[:_MOST_SHOWN]
            )
            yield f"  - only {side} ({sum(counts.values())}): {shown}", None
    yield "\n## `caching` against PyTorch's allocator on the real GPU", None
    yield (
        "| process | allocs | same address | segment calls | same | peak reserved | verdict |\n"
        "|---|--:|--:|--:|--:|--:|---|",
        None,
    )
    for name, verdict in verdicts:
        yield _verdict(name, verdict), verdict.row()


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


def checks(found: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> str:
    """Which results of the checks are not those of PyTorch's own allocator."""
    if found is None:
        return "no result"
    if found["returned"] is None:
        return f"exit code {found['code']}: {found['stderr'].strip()[-120:]!r}"
    failed = [name for name, value in found["returned"].items() if isinstance(value, str)]
    other = [name for name in wanted if found["returned"].get(name) != wanted[name]]
    told = [f"{name} failed" for name in failed]
    told += [f"{name} differs" for name in other if name not in failed]
    return "; ".join(told) or f"all {len(wanted)} equal"


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
    for part in (tables, same_results, sizes, device):
        for line, fact in part(real, null):
            print(line, flush=True)
            if fact is not None:
                facts.append({"of": part.__name__, **fact})
    if given.json:
        given.json.write_text(json.dumps(facts, indent=1, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
