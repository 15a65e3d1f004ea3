# SPDX-License-Identifier: Apache-2.0
"""Memory profiles of JAX and buffer assignments of XLA: what holds memory, and XLA's own plan."""

import gzip
import io
import json
from pathlib import Path

import numpy as np

from allocbench.base.error_text import MemoryDump
from allocbench.workloads import pprof
from allocbench.workloads.xla_buffers import alignment_of, parse_assignment, temporary_blocks
from tests.commands import error, folder, output
from tests.workloads.memory_dumps import ASSIGNMENT, PROFILE, RANGES

__all__ = ["folder"]  # the fixture, by its import


def _bytes(rows: MemoryDump) -> tuple[dict[str, int], list[tuple[str, str, int]]]:
    return (
        {row.name: row.size.low for row in rows.kinds},
        [(row.name, row.line, row.size.low) for row in rows.buffers],
    )


def test_a_memory_profile() -> None:
    kinds, rows = _bytes(pprof.read(io.BytesIO(PROFILE), Path("memory.prof")))
    assert kinds == {"buffer on gpu:0": (1 << 40) + 3050, "buffer on gpu:1": 700}
    assert rows == [
        ("load", "train.py:3 load", 1 << 40),
        ("dot", "train.py:12 train", 3700),
        ("add", "train.py:12 train", 50),
    ]


def test_explain_shows_a_profile() -> None:
    Path("memory.prof").write_bytes(gzip.compress(PROFILE))
    shown = output("explain memory.prof")
    assert "1.00 TiB are in use when it was written" in " ".join(shown.split())
    assert "train.py:12 train" in shown
    told = json.loads(output("explain memory.prof --json -"))
    assert told["dump"]["buffers"][1]["size"] == {"low": 3700, "high": 3700}
    assert "memory.prof: is a memory profile of JAX (pprof): " in error("fit memory.prof")


def test_the_temporary_buffers_of_xla() -> None:
    """A value that overwrites another is one block with it; others keep their place and time."""
    assignment = parse_assignment(io.BytesIO((ASSIGNMENT + RANGES).encode()), Path("x"))
    blocks, offsets, height = temporary_blocks(assignment)
    assert height == 3072
    assert list(zip(blocks.ids, blocks.size.tolist(), offsets, strict=True)) == [
        ("dot.1", 1000, 0),
        ("dot.2", 1000, 1024),
        ("loop.1{1} (phi)", 1000, 2048),
    ]
    assert blocks.first.tolist() == [1, 4, 7]
    assert blocks.last.tolist() == [5, 7, 10]
    assert alignment_of(offsets, 256) == 256
    assert alignment_of([64, 1024], 256) == 64


def test_bytes_that_are_shared_in_part() -> None:
    """Values that share bytes while both are live are one block, whatever their offsets."""
    text = (
        "BufferAssignment:\nallocation 0: 0x7f00, size 300, color 1, preallocated-temp:\n"
        " value: <1 a @0> (size=100,offset=0): f32[25]{0}\n"
        " value: <2 b @0> (size=200,offset=50): f32[50]{0}\n"
        " value: <3 c @0> (size=50,offset=250): f32[12]{0}\n"
        " value: <4 d @0> (size=300,offset=0): f32[75]{0}\n"
        "  BufferLiveRange:\n    a{}:0-2\n    b{}:1-3\n    c{}:2-3\n    d{}:5-6\n"
    )
    blocks, offsets, _ = temporary_blocks(parse_assignment(io.BytesIO(text.encode()), Path("x")))
    found = zip(offsets, blocks.size.tolist(), blocks.first, blocks.last, strict=True)
    assert [tuple(map(int, row)) for row in found] == [
        (0, 250, 0, 4),
        (250, 50, 2, 4),
        (0, 300, 5, 7),
    ]


def test_plan_reads_the_live_ranges_beside_an_assignment() -> None:
    """Two blocks of 1000 bytes are live at instruction 4, so 2 x 1024 bytes are enough."""
    Path("m.buffer-assignment.txt").write_text(ASSIGNMENT)
    told = error("plan m.buffer-assignment.txt")
    assert "does not say when buffers are live" in told
    assert "live-range.txt" in told
    Path("m.live-range.txt").write_text(RANGES)
    numbers = json.loads(output("plan m.buffer-assignment.txt --json -"))
    assert (numbers["height"], numbers["xla_height"], numbers["blocks"]) == (2024, 3072, 3)
    shown = " ".join(output("plan m.buffer-assignment.txt").split())
    assert "this one is 1.02 KiB lower" in shown
    rows = output("plan m.buffer-assignment.txt -o -").splitlines()
    assert rows[0] == "id,lower,upper,size,offset"
    assert len(rows) == 4
    assert "m.buffer-assignment.txt: is a buffer assignment" in error("fit m.buffer-assignment.txt")
    assert "8.87 KiB are in use" in output("explain m.buffer-assignment.txt")


def test_xla_keeps_apart_what_is_live_together() -> None:
    """Values that never share bytes while they are live stay what they are, each a block."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        placed: list[tuple[int, int, int, int]] = []
        for _ in range(40):
            size, first = int(rng.integers(1, 100)), int(rng.integers(0, 60))
            last = first + int(rng.integers(0, 20))
            taken = sorted((o, o + s) for o, s, a, b in placed if a <= last and first <= b)
            at = 0
            for begin, end in taken:
                if at + size <= begin:
                    break
                at = max(at, end)
            placed.append((at, size, first, last))
        values = "".join(
            f" value: <{n} v{n} @0> (size={s},offset={o}): x\n"
            for n, (o, s, *_) in enumerate(placed)
        )
        ranges = "".join(f"    v{n}{{}}:{a}-{b}\n" for n, (_, _, a, b) in enumerate(placed))
        top = max(o + s for o, s, *_ in placed)
        text = f"BufferAssignment:\nallocation 0: size {top}, preallocated-temp:\n{values}"
        text += f"  BufferLiveRange:\n{ranges}"
        blocks, offsets, _ = temporary_blocks(
            parse_assignment(io.BytesIO(text.encode()), Path("x"))
        )
        rows = zip(offsets, blocks.size.tolist(), blocks.first, blocks.last, strict=True)
        assert sorted((o, s, int(a), int(b) - 1) for o, s, a, b in rows) == sorted(placed)
