# SPDX-License-Identifier: Apache-2.0
"""The results of `make gpu` as Markdown tables, with their provenance."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.workshop.gpu import contestants
from benchmarks.workshop.gpu.tables import driver_summary, stored

NATIVE = "torch"
TOLERANCE = 0.01
"""Relative. PyTorch kernels that add in no fixed order change a loss by less between runs. They can
change a chosen token completely, so the values of PyTorch's own allocators differ as well."""

_PROVENANCE = ("gpu", "gpu_uuid", "driver", "driver_cuda", "kernel", "torch", "cuda", "commit")


def markdown(folder: Path) -> str:
    """All results of a folder; an empty table for an empty folder."""
    parts = [
        *_provenance(folder),
        *_programs(folder, "programs", "Programs of the catalog"),
        *_programs(folder, "drift", "200 steps of varying lengths"),
        *_hunt(folder),
        *_cupy(folder),
        *_calibration(folder),
        *_simulation(folder),
        *driver_summary.parts(folder),
    ]
    return "\n\n".join(["# Allocators on a GPU", *parts]) + "\n" if parts else ""


def unlike(outcomes: Sequence[float | None], native: Sequence[float | None]) -> int | None:
    """How many computed values differ from those of another run by more than `TOLERANCE`.

    A value that is not finite (None here) differs, and so do all values if their counts differ.
    Returns None if there is nothing to compare with.
    """
    if not native:
        return None
    if len(outcomes) != len(native):
        return len(native)
    return sum(not _close(*pair) for pair in zip(outcomes, native, strict=True))


def _close(value: float | None, other: float | None) -> bool:
    return value is not None and other is not None and math.isclose(value, other, rel_tol=TOLERANCE)


def _provenance(folder: Path) -> Iterator[str]:
    origins = [
        result["provenance"]
        for stage in sorted(path.name for path in folder.glob("*") if path.is_dir())
        for result in stored.results(folder, stage).values()
        if "provenance" in result
    ]
    if not origins:
        return
    if any(origin["dry"] for origin in origins):
        yield "**Dry runs of tiny programs on the CPU. No number here was measured on a GPU.**"
    if any(origin.get("null") for origin in origins):
        yield "**Runs on a null GPU: bytes and counts, no times. Nothing was measured on a GPU.**"
    lines = []
    for key in _PROVENANCE:
        values = sorted({str(origin[key]) for origin in origins})
        lines.append(f"- {key.replace('_', ' ')}: {', '.join(values)}")
    days = sorted(origin["date"][:10] for origin in origins)
    yield "\n".join([*lines, f"- run: {days[0]} to {days[-1]}"])


def _programs(folder: Path, stage: str, title: str) -> Iterator[str]:
    by_workload: dict[str, dict[str, dict[str, Any]]] = {}
    for name, result in stored.results(folder, stage).items():
        workload, _, who = name.partition("--")
        by_workload.setdefault(workload, {})[who] = result
    for workload, runs in sorted(by_workload.items()):
        outcomes = {
            who: result["measured"]["outcomes"]
            for who, result in runs.items()
            if "measured" in result
        }
        apart = {who: unlike(values, outcomes.get(NATIVE, [])) for who, values in outcomes.items()}
        usual = max((apart.get(who.name) or 0 for who in contestants.NATIVE), default=0)
        rows = []
        for who, result in runs.items():
            if "measured" not in result:
                rows.append([who, result["failure"]])
                continue
            measured, row = result["measured"], result["measured"]["row"]
            rows.append(
                [
                    who,
                    stored.size(row.get("peak_reserved")),
                    stored.size(row.get("peak_allocated")),
                    stored.seconds(measured["step_seconds_median"]),
                    stored.plain(measured["tokens_per_second"]),
                    stored.plain(row.get("device_calls")),
                    stored.seconds(row.get("device_seconds")),
                    stored.seconds(row.get("alloc_p99_seconds")),
                    _unlike(apart[who], len(outcomes[who]), usual),
                ]
            )
        headings = ["allocator", "peak reserved", "peak allocated", "median step", "tokens/s"]
        headings += ["device calls", "device time", "alloc p99", "values unlike torch's"]
        yield f"## {title}: {workload}\n\n" + stored.table(headings, rows)


def _unlike(apart: int | None, values: int, usual: int) -> str:
    """Marked if more values differ than for any of PyTorch's own allocators."""
    return "" if apart is None else f"{apart} of {values}{' !' if apart > usual else ''}"


def _hunt(folder: Path) -> Iterator[str]:
    rows = [
        [who, str(result["measured"]["largest_batch"] if "measured" in result else "failed")]
        for who, result in stored.results(folder, "hunt").items()
    ]
    if rows:
        yield "## The largest batch that trains within a limit\n\n" + stored.table(
            ["allocator", "batch"], rows
        )


def _cupy(folder: Path) -> Iterator[str]:
    rows = []
    for who, result in stored.results(folder, "cupy").items():
        measured = result.get("measured")
        if measured:
            steps = sorted(measured["step_seconds"])
            used = stored.size(measured["gpu_used_at_end"])
            rows.append([who, stored.seconds(steps[len(steps) // 2]), used])
        else:
            rows.append([who, result["failure"]])
    if rows:
        yield "## CuPy\n\n" + stored.table(["pool", "median step", "GPU memory held"], rows)


def _calibration(folder: Path) -> Iterator[str]:
    for result in stored.results(folder, "calibration").values():
        if "measured" not in result:
            continue
        rows = [
            [
                prediction["workload"],
                prediction["allocator"],
                stored.seconds(prediction["seconds_measured"]),
                stored.seconds(prediction["seconds_predicted"]),
            ]
            for prediction in result["measured"]["predictions"]
        ]
        if rows:
            title = "## Device time, measured and predicted from the cost of single calls\n\n"
            yield title + stored.table(["workload", "allocator", "measured", "predicted"], rows)


def _simulation(folder: Path) -> Iterator[str]:
    rows = []
    for workload, result in stored.results(folder, "simulation").items():
        if "measured" not in result:
            rows.append([workload, result["failure"]])
            continue
        capture, replica = result["measured"]["capture"], result["measured"]["replica"] or {}
        rows.append(
            [
                workload,
                stored.percent(capture["max_load_error"]),
                stored.percent(capture["share_of_live_allocs"]),
                stored.percent(capture["share_of_live_bytes"]),
                stored.percent(replica.get("peak_reserved_error")),
            ]
        )
    if rows:
        headings = ["workload", "max load, error", "allocs matched", "bytes matched"]
        yield "## The simulation against the GPU\n\n" + stored.table(
            [*headings, "`caching`, peak reserved, error"], rows
        )
