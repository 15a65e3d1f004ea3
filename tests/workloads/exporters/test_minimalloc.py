# SPDX-License-Identifier: Apache-2.0
"""Lifetimes written and read again are the same blocks in the same order."""

from pathlib import Path

import pytest
from hypothesis import given

from allocbench.workloads import ALLOC, FREE, Trace, lifetimes, read, read_lifetimes, write
from tests.commands import error, folder, output, run
from tests.traces import GOOD, make, message_of, valid_traces

__all__ = ["folder"]  # the fixture, by its import


@given(trace=valid_traces().filter(lambda one: one.allocs))
def test_blocks_are_read_back(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("blocks") / "blocks.csv"
    write(trace, path, "lifetimes")
    blocks, again = lifetimes(trace), read_lifetimes(path)
    for column in ("size", "first", "last"):
        assert getattr(blocks, column).tolist() == getattr(again, column).tolist()
    assert [*blocks.ids] == [*again.ids]
    imported = read(path)
    is_kept = trace.op <= FREE
    unfreed = len(imported) - int(is_kept.sum())
    assert imported.op.tolist() == [*trace.op[is_kept].tolist(), *[FREE] * unfreed]
    assert imported.size[: is_kept.sum()].tolist() == trace.size[is_kept].tolist()
    assert imported.max_load == trace.max_load


def test_convert_and_plan() -> None:
    assert output("convert good.csv -o blocks.txt --format lifetimes") == ""
    lines = Path("blocks.txt").read_text().splitlines()
    assert lines == ["id,lower,upper,size", "0,0,2,4096", "1,1,5,100", "2,3,6,3145728", "3,4,7,1"]
    assert output("convert good.csv -o - --format lifetimes").splitlines() == lines
    assert "4 allocs" in output("inspect blocks.txt")
    assert "optimal" in output("plan blocks.txt")
    assert run("convert gpt2-train -o blocks.txt --format lifetimes").stderr.startswith(
        "note: 50 marks"
    )


def test_traces_that_cannot_be_written() -> None:
    write(make([(2, 0, 0)], labels=("step",)), "marks.parquet")
    assert "new.csv: has no allocs" in error("convert marks.parquet -o new.csv --format lifetimes")
    assert message_of(lambda: write(make([(2, 0, 0)], labels=("a",)), "new.csv", "lifetimes"))
    told = error("convert good.csv -o new.csv --format xml")
    assert "--format xml: no such format; valid: parquet, csv, lifetimes" in told


def test_the_format_comes_before_the_extension() -> None:
    write(make([*GOOD, (ALLOC, 2, 9)]), "really.parquet", "csv")
    assert Path("really.parquet").read_text().startswith("op,id,size\n")
    output("convert good.csv -o really.csv --format parquet")
    assert Path("really.csv").read_bytes().startswith(b"PAR1")
