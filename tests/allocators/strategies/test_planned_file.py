# SPDX-License-Identifier: Apache-2.0
"""planned: the plan of an earlier run, read from a file, serves the next run."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from allocbench import allocators
from allocbench.workloads import catalog, lifetimes, write_plan
from allocbench.workloads.trace import Trace
from tests.allocators.strategies.test_planned import counted, get, planned
from tests.conftest import MIB, Make


def plan_of(trace: Trace, path: Path) -> str:
    blocks = lifetimes(trace)
    with path.open("wb") as file:
        write_plan(blocks, np.zeros(len(blocks), np.uint64), file)
    return f"planned:plan={path}"


LINES = ["id,lower,upper,size,offset,step", "a,0,3,4194304,0,0", "b,1,2,2097152,0,1"]


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., str]:
    def write(lines: Sequence[str], end: str = "\n") -> str:
        path = tmp_path / "a plan.csv"
        path.write_text("".join(line + end for line in lines), encoding="utf-8", newline="")
        return f"planned:plan={path}"

    return write


def test_a_plan_file_serves_the_very_first_step(written: Callable[..., str]) -> None:
    lines = ["id,lower,upper,size,offset", "first, second,0,9,8388608,0", "b,1,4,4194304,8388608"]
    for spec in (written(lines), written(lines, end="\r\n"), written(lines[:1] + lines[:0:-1])):
        watched = planned(spec=spec)
        first, second = get(watched, 8 * MIB), get(watched, 4 * MIB)
        assert abs(watched.address(first) - watched.address(second)) in (4 * MIB, 8 * MIB)
        assert counted(watched)["planned_requests"] == 2


def test_places_end_with_the_reserved_addresses(written: Callable[..., str]) -> None:
    together = [f"{index},{index},{100 + index},{10 * MIB},0" for index in range(12)]
    watched = planned("52MiB", written([LINES[0].removesuffix(",step"), *together]))
    for _ in together:
        watched.free(get(watched, 10 * MIB))
    assert counted(watched)["planned_requests"] == 10, "twice the capacity of the device"
    assert counted(watched)["fallback_requests"] == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "line 1 is not id,lower,upper,size,offset"),
        (["id,lower,upper,size", "a,0,1,5"], "line 1 is not id,lower,upper,size,offset"),
        (LINES[:1], "is a plan file without blocks"),
        ([*LINES, "c,5,5,100,0,1"], "line 4 must have an id, lower, a larger upper"),
        ([*LINES, "c,5,6,0,0,1"], "line 4"),
        ([*LINES, "c,5,6,-1,0,1"], "line 4"),
        ([*LINES, "c,5,6,99999999999999999999,0,1"], "line 4"),
        ([*LINES, "c,5,6"], "line 4"),
        ([*LINES, ""], "line 4"),
        ([*LINES, "c,5,6,100,0,0"], "its steps are out of order"),
    ],
)
def test_invalid_plan_files_are_rejected(
    make: Make, written: Callable[..., str], lines: Sequence[str], message: str
) -> None:
    with pytest.raises(allocators.SpecError, match=message):
        make(written(lines))


def test_a_missing_plan_file_is_named_in_the_error(make: Make, tmp_path: Path) -> None:
    with pytest.raises(allocators.SpecError, match=r"plan=.*nothing\.csv must be a readable file"):
        make(f"planned:plan={tmp_path}/nothing.csv")
    with pytest.raises(allocators.SpecError, match=r"must be a readable file|is not a plan file"):
        make(f"planned:plan={tmp_path}")


@pytest.mark.parametrize(("workload", "most"), [("gpt2-train", 40), ("llama3-8b-lora", 32)])
def test_a_repeated_run_needs_little_more_than_its_load(
    workload: str, most: int, tmp_path: Path
) -> None:
    trace = catalog.load(workload)
    device = allocators.SimulatedDevice("80GiB")
    result = allocators.replay(trace, allocators.make(plan_of(trace, tmp_path / "p.csv"), device))
    assert result.stats.failures == 0
    assert result.stats.peak_reserved - result.max_load < most * MIB


def test_a_plan_serves_a_run_without_marks(tmp_path: Path) -> None:
    trace = catalog.load("llama3-8b-lora")
    spec = plan_of(trace, tmp_path / "p.csv")
    marked = allocators.replay(trace, allocators.make(spec, allocators.SimulatedDevice("80GiB")))
    kept = trace.op != 2
    bare = Trace(trace.op[kept], trace.block[kept], trace.size[kept], trace.stream[kept])
    result = allocators.replay(bare, allocators.make(spec, allocators.SimulatedDevice("80GiB")))
    assert result.counters["planned_requests"] == marked.counters["planned_requests"]
    assert result.stats.peak_reserved == marked.stats.peak_reserved
