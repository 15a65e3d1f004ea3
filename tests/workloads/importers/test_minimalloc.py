# SPDX-License-Identifier: Apache-2.0
"""A CSV of lifetimes is a trace like any other, in which frees come before allocs."""

from __future__ import annotations

from pathlib import Path

from allocbench.workloads import ALLOC, FREE, Provenance, read
from tests.commands import QUICK, folder, output

__all__ = ["folder"]  # the fixture, by its import

EXAMPLE = Path(__file__).parents[2] / "data/minimalloc/input.12.csv"


def test_the_example_as_events() -> None:
    trace = read(EXAMPLE)
    assert list(zip(trace.op.tolist(), trace.block.tolist(), trace.size.tolist(), strict=True)) == [
        *((ALLOC, 0, 4), (ALLOC, 2, 4), (ALLOC, 4, 4)),
        *((FREE, 0, 0), (ALLOC, 1, 4)),
        *((FREE, 1, 0), (FREE, 2, 0), (ALLOC, 3, 4)),
        *((FREE, 3, 0), (FREE, 4, 0)),
    ]
    assert trace.label is not None
    assert [trace.labels[label] for label in trace.label[:3]] == ["b1", "b3", "b5"]
    assert trace.max_load == 12
    assert trace.provenance == Provenance(name="input.12", kind="imported", source="input.12.csv")


def test_commands_take_it() -> None:
    assert "input.12" in output(f"compare {EXAMPLE} {QUICK}")
    assert "12 B" in output(f"inspect {EXAMPLE}")
