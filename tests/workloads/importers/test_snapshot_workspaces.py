# SPDX-License-Identifier: Apache-2.0
"""Which allocs of a snapshot are workspaces, as a null GPU says."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from allocbench.workloads import ALLOC, TraceError, read

KEY = "allocbench_workspaces"
FIRST, OTHER = 0x7000, 0x9000


def event(action: str, address: int, size: int, microsecond: int) -> dict[str, Any]:
    return {
        "action": action, "addr": address, "size": size, "stream": 0, "time_us": microsecond,
        "frames": [{"name": "aten::conv", "filename": "", "line": 0}],
    }  # fmt: skip


EVENTS = [
    event("alloc", FIRST, 512, 10),
    event("free_completed", FIRST, 512, 20),
    event("alloc", FIRST, 512, 30),
    event("alloc", OTHER, 512, 40),
    event("free_completed", FIRST, 512, 50),
    event("alloc", FIRST, 1024, 60),
    event("alloc", FIRST + 1024, 512, 70),
]


def labels(folder: Path, uses: Any) -> list[str]:
    """The labels of the allocs of EVENTS, on a device with some workspaces."""
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [EVENTS], KEY: uses}))
    trace = read(path)
    assert trace.label is not None
    return [trace.labels[number] for number in trace.label[trace.op == ALLOC].tolist()]


def test_an_address_names_the_last_alloc_before_its_use(tmp_path: Path) -> None:
    marked, plain = "aten::conv [modelled: a_rule]", "aten::conv"
    uses = [(0, 45_000, FIRST, 512, "a_rule"), (1, 15_000, FIRST, 512, "of_another_device")]
    assert labels(tmp_path, uses) == [plain, marked, plain, plain, plain]
    uses = [(0, 65_000, FIRST, 512, "a_rule")]  # the newest block there has another size
    assert labels(tmp_path, uses) == [plain, marked, plain, plain, plain]


def test_clocks_may_differ_by_a_little(tmp_path: Path) -> None:
    marked, plain = "aten::conv [modelled: a_rule]", "aten::conv"
    uses = [(0, 29_500, FIRST, 512, "a_rule")]  # 19,500 ns after one, 500 ns before the next
    assert labels(tmp_path, uses) == [plain, marked, plain, plain, plain]
    uses = [(0, 25_000, FIRST, 512, "a_rule")]
    assert labels(tmp_path, uses) == [marked, plain, plain, plain, plain]
    assert labels(tmp_path, [(0, 75_000, 0, 512, "a_rule")]) == [*[plain] * 4, marked]
    assert labels(tmp_path, [(0, 2_000_000, 0, 512, "a_rule")]) == [plain] * 5


@pytest.mark.parametrize("wrong", [5, [5], [(0, 1, 2, 3)], [(0, 1, 2, 3, 4)]])
def test_what_is_no_list_of_workspaces_is_an_error(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(TraceError, match=f"its '{KEY}' is not a list of workspaces"):
        labels(tmp_path, wrong)
