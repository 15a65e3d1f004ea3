# SPDX-License-Identifier: Apache-2.0
"""Results of `make gpu` that were stored, and the cells of the tables that show them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allocbench.base import units


def results(folder: Path, stage: str) -> dict[str, dict[str, Any]]:
    """The results of a stage by name; a task that failed has only its `failure`."""
    stored = {}
    for path in sorted((folder / stage).glob("*.*")):
        if path.suffix in (".json", ".failed"):
            result = json.loads(path.read_text(encoding="utf-8"))
            if "null" in result:  # the page says so at its head
                result["measured"] = _without_times(result["null"])
            stored[path.stem] = result
    return stored


def _without_times(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a run on a null GPU that mean something: bytes and counts."""
    times = ("step_seconds_median", "tokens_per_second")
    row = values.get("row") or {}
    kept = {name: row[name] for name in row if not name.endswith("_seconds")}
    return values | dict.fromkeys(times) | {"row": kept, "predictions": []}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; only the first column is aligned to the left. Short rows are filled."""
    filled = [[*row, *[""] * (len(headings) - len(row))] for row in rows]
    lines = [headings, ["---"] + ["--:"] * (len(headings) - 1), *filled]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def size(value: float | None) -> str:
    """Bytes with their unit, or nothing."""
    return "" if value is None else units.size(value)


def seconds(value: float | None) -> str:
    """Seconds with their unit, or nothing."""
    return "" if value is None else units.seconds(value)


def percent(value: float | None) -> str:
    """A share, or nothing."""
    return "" if value is None else f"{100 * value:.2f} %"


def plain(value: float | None) -> str:
    """A whole number, or nothing."""
    return "" if value is None else f"{value:,.0f}"
