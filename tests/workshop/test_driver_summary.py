# SPDX-License-Identifier: Apache-2.0
"""The tables of the stages without PyTorch, from the results of an H100."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.workshop.gpu.tables import driver_summary, summary

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "gpu"


@pytest.mark.parametrize("folder", sorted(RESULTS.iterdir()), ids=lambda folder: folder.name)
def test_each_folder_of_results_has_its_tables(folder: Path) -> None:
    assert (folder / "README.md").read_text(encoding="utf-8") == summary.markdown(folder)


def test_a_replay_differs_where_bytes_or_counts_do() -> None:
    def values(reserved: int, steps: int, seconds: float) -> dict[str, Any]:
        counters = {"moved_pages": 1, "search_steps": steps}
        return {"peak_reserved": reserved, "counters": counters, "device_seconds": seconds}

    row = {"gpu": values(2, 3, 0.1), "simulated": values(2, 4, 0.2)}
    assert driver_summary.different(row) == []
    row["simulated"]["counters"]["moved_pages"] = 2
    assert driver_summary.different(row) == ["counters"]
    row["simulated"] = values(3, 3, 0.1)
    assert driver_summary.different(row) == ["peak_reserved"]


def test_the_replays_that_differ_on_an_h100_are_those_that_depend_on_addresses() -> None:
    path = RESULTS / "nvidia-h100-80gb-hbm3-5fa02ba3" / "replays" / "replays.json"
    rows = [row for row in json.loads(path.read_text())["measured"]["rows"] if "simulated" in row]
    assert len(rows) == 182
    found = {(row["allocator"], row["workload"]) for row in rows if driver_summary.different(row)}
    assert found == {
        ("arena", "llm-decode"),
        ("cupy_pool", "diffusion-train"),
        ("cupy_pool", "llm-continuous"),
        ("cupy_pool", "llm-decode"),
    }
