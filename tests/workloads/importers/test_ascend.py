# SPDX-License-Identifier: Apache-2.0
"""Tables of blocks of the Ascend profiler."""

from pathlib import Path

from allocbench.workloads import ALLOC, FREE, read
from tests.commands import folder

__all__ = ["folder"]  # the fixture, by its import

HEADER = "Name,Size(KB),Allocation Time(us),Release Time(us),Duration(us),Device Type\n"
TABLE = HEADER + (
    "aten::mm,8.5,120.25,300.0,180.0,NPU:0\n"
    "aten::empty,4.0,100.0,120.25,20.25,NPU:0\n"
    "before,2.0,N/A,110.0,N/A,NPU:0\n"
    "stays,1.0,300.0,,,NPU:0\n"
    "nothing,0.0,150.0,160.0,10.0,NPU:0\n"
    "at once,16.0,310.0,310.0,0.0,NPU:0\n"
)


def test_blocks_in_order_of_time() -> None:
    Path("t.csv").write_text(TABLE)
    trace = read("t.csv")
    assert trace.label is not None
    assert trace.time_ns is not None
    found = [
        (op, size, trace.labels[label], time)
        for op, size, label, time in zip(
            trace.op.tolist(),
            trace.size.tolist(),
            trace.label.tolist(),
            trace.time_ns.tolist(),
            strict=True,
        )
    ]
    assert [row[:2] for row in found] == [
        *((ALLOC, 2048), (ALLOC, 4096), (FREE, 0), (FREE, 0), (ALLOC, 8704)),
        *((FREE, 0), (ALLOC, 1024), (ALLOC, 16384), (FREE, 0)),
    ]
    assert [row[2] for row in found if row[0] == ALLOC] == [
        *("before", "aten::empty", "aten::mm", "stays", "at once")
    ]
    assert [row[3] for row in found] == [
        *(0, 0, 10_000, 20_250, 20_250, 200_000, 200_000, 210_000, 210_000)
    ]
    assert (trace.coverage.begins, trace.coverage.ends) == ("later", "open")
