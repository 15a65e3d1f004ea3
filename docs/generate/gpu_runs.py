# SPDX-License-Identifier: Apache-2.0
"""The programs that `make gpu` ran on a GPU, from the results that are committed."""

import json
from pathlib import Path
from typing import Any

from allocbench.base import units
from benchmarks.workshop.gpu import contestants

RESULTS = Path(__file__).parent.parent.parent / "benchmarks" / "results" / "gpu"
HEADINGS = (
    "allocator",
    "peak reserved",
    "all steps",
    "beside PyTorch's",
    "device calls",
    "device time",
    "alloc p50",
    "alloc p99",
)


def rows(workload: str) -> list[tuple[str, ...]]:
    """A row for each allocator that ran the program; PyTorch's own come first, then the fastest.

    The steps are those of the second of two runs in a process; device calls and their time are of
    both. They are compared with PyTorch's own allocator on the same machine, if it ran there. Of
    several machines that ran an allocator, the one with PyTorch's own and then the last counts.
    """
    runs: dict[str, dict[str, Any]] = {}
    usual: dict[str, float | None] = {}
    for folder in _folders(workload):
        for path in sorted(folder.glob(f"{workload}--*.json")):
            name = path.stem.partition("--")[2]
            if name not in runs:
                runs[name] = measured(path)
                there = folder / f"{workload}--torch.json"
                usual[name] = _seconds(measured(there)) if there.exists() else None
    own = [who.name for who in contestants.NATIVE if who.name in runs]
    poisoned = {name for name in runs if name.endswith("-poisoned")}
    others = sorted(runs.keys() - {*own} - poisoned, key=lambda name: _seconds(runs[name]))
    return [_row(name, runs[name], usual[name]) for name in (*own, *others)]


def _folders(workload: str) -> list[Path]:
    """The folders of machines, first those with PyTorch's own allocator; the last day first."""

    def order(folder: Path) -> tuple[bool, str]:
        with_torch = (folder / f"{workload}--torch.json").exists()
        dates = [result["provenance"]["date"] for result in map(_read, folder.glob("*.json"))]
        return with_torch, max(dates, default="")

    return sorted(RESULTS.glob("*/programs"), key=order, reverse=True)


def measured(path: Path) -> dict[str, Any]:
    """The values of a result."""
    values: dict[str, Any] = _read(path)["measured"]
    return values


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _seconds(run: dict[str, Any]) -> float:
    return float(sum(run["run_seconds"]) / len(run["run_seconds"]))


def _row(name: str, run: dict[str, Any], usual: float | None) -> tuple[str, ...]:
    row, seconds = run["row"], _seconds(run)
    times = (row.get("device_seconds"), row.get("alloc_p50_seconds"), row.get("alloc_p99_seconds"))
    label = f"PyTorch, `{name}`" if name.startswith("torch") else f"`{name}`"
    return (
        label,
        units.size(row["peak_reserved"]),
        units.seconds(seconds),
        f"{seconds / usual:.2f}x" if usual else "",
        "" if name == "torch-async" else f"{row['device_calls']:,}",  # PyTorch does not count these
        *("" if time is None else units.seconds(time) for time in times),
    )
