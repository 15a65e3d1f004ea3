# SPDX-License-Identifier: Apache-2.0
"""The tables of a real GPU against a null GPU, and the file that they are made from.

    python -m docs.generate.agreement REAL NULL FORMULAS

Writes `comparison.json` from folders of `make gpu ONLY=agreement`: REAL of a GPU, the others with
`--null`, FORMULAS with other rules for workspaces (`allocbench list workspaces`).
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from allocbench.workloads import catalog
from allocbench.workloads.files import read_recording
from benchmarks.workshop.gpu.tasks import observations
from docs.generate import gpu_pairs
from docs.generate.gpu_pairs import STAGE, values

_FOLDER = "benchmarks/results/gpu/nvidia-h100-80gb-hbm3-5fa02ba3/agreement"
FILE = Path(__file__).parent.parent.parent / _FOLDER / "comparison.json"
_PEAKS = ("requested", "allocated", "reserved")
WORKLOADS = {one.name for one in observations.every()} & {*catalog.names()}
_MOST = 12  # kinds of allocs that are listed for a program
_NOT_KEPT = ("recording", "device", "version_given", "settings_recorded", "reason")
_GROUPS = {
    "matrix products": ("mm", "addmm", "linear", "bmm"),
    "convolutions": ("conv1d", "conv2d", "conv3d", "transposed"),
    "recurrent networks": ("LSTM", "GRU", "RNN"),
    "Fourier transforms": ("fft", "rfft", "irfft", "rfft2", "fftn"),
    "factorizations and solvers": (
        *("inv", "lu_factor", "cholesky", "qr", "eigh", "eigvalsh", "svd", "svdvals", "det"),
        *("slogdet", "solve", "lstsq"),
    ),
    "sparse products": ("coo", "csr"),
    "attention": ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"),
    "batch normalization": ("batch",),
    "sorts, sums, embeddings, CTC loss": (
        *("sort", "stable", "topk", "cumsum", "unique", "randperm", "sum", "argmax", "bincount"),
        *("embedding", "bag", "ctc"),
    ),
    "`nonzero`": ("nonzero",),
}
"""The cases of `workspace_sizes.py`, by their first word."""


def collect(real: Path, null: Path, formulas: Path) -> dict[str, Any]:
    """What the tables show, and what differs."""
    return {
        "real": _provenance(real),
        "null": _provenance(null),
        "formulas": _provenance(formulas),
        "programs": [*_programs(real, null)],
        "programs with formulas": [*_programs(real, formulas)],
        "caching": [*_caching(real, null)],
        "allocators": {
            path.stem.removeprefix("checks--"): _same(path, real)
            for path in sorted(real.glob("checks--*.json"))
        },
        "operators": {
            "real": _operators(real),
            "null": _unlike(null, real),
            "formulas": _unlike(formulas, real),
        },
        "device": _device(real, null),
    }


def _provenance(folder: Path) -> dict[str, Any]:
    """Of the tasks: what is the same for all of them, and every commit and day."""
    found: list[dict[str, Any]] = [
        json.loads(path.read_text(encoding="utf-8"))["provenance"] for path in folder.glob("*.json")
    ]
    kept = ("gpu", "gpu_uuid", "driver", "driver_cuda", "kernel", "python", "torch", "cuda")
    return {key: found[0][key] for key in kept} | {
        "commits": sorted({str(one["commit"]) for one in found}),
        "days": sorted({str(one["date"])[:10] for one in found}),
    }


def _programs(real: Path, null: Path) -> Iterator[dict[str, Any]]:
    for one in observations.every():
        for path in sorted(real.glob(f"{one.name}.*.pickle.gz")):
            if not (null / path.name).exists():
                continue
            name = path.name.removesuffix(".pickle.gz")
            recordings = (read_recording(each / path.name) for each in (real, null))
            pair = gpu_pairs.compare(name, *recordings)
            peaks = [gpu_pairs.peak_bytes(side, one.name) for side in (real, null)]
            yield {
                "program": one.name,
                "process": name,
                "events": pair.events,
                "in common": pair.common,
                "only real": sum(pair.only_real.values()),
                "only null": sum(pair.only_null.values()),
                "first": pair.first,
                "allocs only real": dict(list(pair.only_real.items())[:_MOST]),
                "allocs only null": dict(list(pair.only_null.items())[:_MOST]),
                "max load": pair.max_load,
                "driver calls": pair.calls,
                "same driver calls": pair.calls_equal,
                "peaks": {kind: [peak[kind] for peak in peaks] for kind in _PEAKS},
            }


def _caching(real: Path, null: Path) -> Iterator[dict[str, Any]]:
    for name, _, verdict, _ in gpu_pairs.pairs(real, null):
        if verdict is not None:
            row = {key: value for key, value in verdict.row().items() if key not in _NOT_KEPT}
            yield {"process": name} | row


def _same(path: Path, real: Path) -> str:
    native = values(real / "checks--native.json") or {}
    return gpu_pairs.checks(values(path), native.get("returned") or {})


def _operators(folder: Path) -> dict[str, list[Any]]:
    found = values(folder / "program--workspace_sizes.json")
    assert found is not None, f"{folder} has no result of workspace_sizes.py"
    printed: dict[str, list[Any]] = found["printed"]
    return printed


def _unlike(folder: Path, real: Path) -> dict[str, list[Any]]:
    """The cases whose allocs differ from those of the real GPU."""
    measured = _operators(real)
    return {case: sizes for case, sizes in _operators(folder).items() if sizes != measured[case]}


def _device(real: Path, null: Path) -> dict[str, Any]:
    sides = [values(folder / "device.json") or {} for folder in (real, null)]
    attributes = [side["driver"]["attributes"] for side in sides]
    return {
        "total": [side["driver"]["total"] for side in sides],
        "properties": {
            key: [value, sides[1]["properties"].get(key)]
            for key, value in sides[0]["properties"].items()
        },
        "attributes that differ": {
            key: [value, attributes[1].get(key)]
            for key, value in attributes[0].items()
            if value != attributes[1].get(key)
        },
        "beside PyTorch": [
            [one["after"], one["beside"], other["beside"]]
            for one, other in zip(sides[0]["steps"], sides[1]["steps"], strict=True)
        ],
    }


@cache
def comparison() -> Mapping[str, Any]:
    """The committed file."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def _both(pair: Sequence[int]) -> str:
    there, here = pair
    return f"{there:,}" if there == here else f"{there:,}; {here:,}"


def program_rows() -> Iterator[tuple[str, ...]]:
    """A row for each bundled workload: events, allocs of only one side, max load, peak reserved."""
    formulas = {row["process"]: row for row in comparison()["programs with formulas"]}
    for row in comparison()["programs"]:
        if row["program"] in WORKLOADS:
            # Rules for workspaces change nothing in a program that is equal without them.
            other = formulas.get(row["process"], row)
            assert other is not row or row["first"] is None, row["process"]
            yield (
                row["program"],
                _both(row["events"]),
                _unlike_allocs(row),
                *(_both(row["max load"]), _both(row["peaks"]["reserved"])),
                _difference(row),
                *(_unlike_allocs(other), _difference(other)),
            )


def _unlike_allocs(row: Mapping[str, Any]) -> str:
    return f"{row['only real']:,}; {row['only null']:,}" if row["first"] else "0"


def _difference(row: Mapping[str, Any]) -> str:
    there, here = row["peaks"]["reserved"]
    return "0" if there == here else f"{here / there - 1:+.2%}"


def operator_rows() -> Iterator[tuple[str, ...]]:
    """A row for each group of operators: cases, and how many of them are equal."""
    found = comparison()["operators"]
    group_of = {word: group for group, words in _GROUPS.items() for word in words}
    cases = {case: group_of[case.split()[0]] for case in found["real"]}
    counts = [Counter(cases.values())]
    for side in ("null", "formulas"):
        counts.append(Counter(group for case, group in cases.items() if case not in found[side]))
    for group in _GROUPS:
        yield (group, *(str(count[group]) for count in counts))
    yield ("all", *(str(count.total()) for count in counts))


def caching_rows() -> Iterator[tuple[str, ...]]:
    """A row for each recording of a bundled workload, with the verdict of `verify`."""
    for row in comparison()["caching"]:
        name = row["process"].removesuffix(".0")
        if not name.startswith("program--"):
            yield (
                *(name, row["verdict"], f"{row['allocs']:,}"),
                *(f"{row['reserved_equal']:,}", f"{row['placed_equal']:,}"),
                f"{row['segment_calls_equal']:,} of {row['segment_calls']:,}",
                f"{row['peak_reserved_recorded']:,}",
            )


def memory_rows() -> Iterator[tuple[str, ...]]:
    """Bytes beside PyTorch's own after each step, where they grew on the real GPU."""
    before = -1
    for after, there, here in comparison()["device"]["beside PyTorch"]:
        if there != before:
            yield after, f"{there:,}", f"{here:,}"
        before = there


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate.agreement")
    for name in ("real", "null", "formulas"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args(arguments)
    folders = [folder / STAGE for folder in (given.real, given.null, given.formulas)]
    text = json.dumps(collect(*folders), indent=1, default=str)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
