# SPDX-License-Identifier: Apache-2.0
"""allocbench plan: as users run it, and every kind of error."""

import json
from pathlib import Path

import pytest

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, MARK, write
from tests.commands import folder
from tests.commands import output as output_of
from tests.traces import make

__all__ = ["folder"]  # the fixture, by its import

EXAMPLE = Path(__file__).parents[1] / "data/minimalloc/input.12.csv"


@pytest.fixture(autouse=True)
def blocks(folder: Path) -> None:
    Path("blocks.csv").write_bytes(EXAMPLE.read_bytes())
    Path("bad.csv").write_text("id,lower,upper,size\na,1,1,1\n")
    Path("huge.csv").write_text(f"id,lower,upper,size\na,0,1,{2**63 - 1}\n")
    write(make([(ALLOC, 0, 100), (ALLOC, 1, 100), (FREE, 0, 0), (ALLOC, 0, 1)]), "trace.parquet")


def output(command: str) -> str:
    return output_of(f"plan {command}")


@pytest.mark.parametrize("planner", allocators.planners())
def test_a_trace_without_allocs_needs_no_bytes(planner: str) -> None:
    write(make([(MARK, 0, 0), (MARK, 0, 0)], labels=("step",)), "marks.parquet")
    assert "above the lower bound   0" in output(f"marks.parquet --planner {planner}")
    numbers = json.loads(output(f"marks.parquet --planner {planner} --json -"))
    assert [numbers[name] for name in ("blocks", "height", "lower_bound")] == [0, 0, 0]


def test_nothing_but_the_file_goes_to_standard_output() -> None:
    assert output("blocks.csv -o -").startswith("id,lower,upper,size,offset\n")


def test_a_trace_is_aligned_as_allocators_align() -> None:
    assert output("trace.parquet -o - --planner no_reuse").splitlines()[1:] == [
        "0,0,2,100,0",
        "1,1,4,100,256",
        "2,3,4,1,512",
    ]
    assert "2,3,4,1,200" in output("trace.parquet -o - --planner no_reuse --alignment 4")


def test_offsets_of_another_planner(tmp_path: Path) -> None:
    (tmp_path / "blocks.csv").write_text("id,lower,upper,size\na,0,2,4\nb,1,3,6\n")
    for table in ("id,offset\na,0\nb,4\n", "offset,id,more\n0,a,x\n4,b,y\n"):
        (tmp_path / "own.csv").write_text(table)
        numbers = json.loads(output("blocks.csv --offsets own.csv --json -"))
        assert (numbers["height"], numbers["lower_bound"], numbers["optimal"]) == (10, 10, True)
        assert output("blocks.csv --offsets own.csv --alignment 4 --json -")
