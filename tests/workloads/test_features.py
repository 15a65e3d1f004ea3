# SPDX-License-Identifier: Apache-2.0
"""workloads.trace_features: numbers computed by hand and by definition; where they are shown."""

import math
from collections import Counter
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from allocbench.replays import experiment
from allocbench.replays.experiment import Effort
from allocbench.reports.page import tables
from allocbench.reports.rows.results import SCHEMA
from allocbench.workloads import ALLOC, FREE, MARK, TRIM, Features, Trace, features
from tests.commands import folder, output
from tests.traces import Event, make, valid_traces

__all__ = ["folder"]  # a fixture, used by importing it

STEPS: list[Event] = [
    (ALLOC, 0, 1000),  # before the first step
    (MARK, 0, 0),
    (ALLOC, 1, 100),
    (ALLOC, 2, 100),
    (FREE, 1, 0),
    (MARK, 0, 0),
    (ALLOC, 1, 100),
    (ALLOC, 3, 7),
    (FREE, 3, 0),
    (MARK, 0, 0),
    (ALLOC, 3, 1000),
]


def slowly(trace: Trace) -> dict[str, Any]:
    """The features computed event by event from their definitions."""
    live: dict[int, tuple[int, int]] = {}
    loads, counts, lifetimes, sizes = [], [], [], []
    steps: list[Counter[int]] = []
    for event, (op, block, size) in enumerate(
        zip(trace.op.tolist(), trace.block.tolist(), trace.size.tolist(), strict=True)
    ):
        if op == ALLOC:
            live[block] = event, size
            sizes.append(size)
            if steps:
                steps[-1][size] += 1
        elif op == FREE:
            lifetimes.append(event - live.pop(block)[0])
        elif op == MARK and trace.labels[block] == "step":
            steps.append(Counter())
        loads.append(sum(size for _, size in live.values()))
        counts.append(len(live))
    lifetimes = sorted([*lifetimes, *(len(trace) - event for event, _ in live.values())])
    pairs = list(zip(steps[1:], steps, strict=False))
    most = sum(max(a.total(), b.total()) for a, b in pairs)
    shares = [n / len(sizes) for n in Counter(sizes).values()]

    def lifetime(share: float) -> int | None:
        return lifetimes[math.ceil(share * len(lifetimes)) - 1] if lifetimes else None

    return {
        "steps": len(steps),
        "streams": len({s for s, op in zip(trace.stream, trace.op, strict=True) if op <= FREE}),
        "live_blocks_peak": max(counts),
        "live_blocks_mean": round(sum(counts) / len(counts)),
        "largest_request": max(sizes, default=None),
        "distinct_sizes": len(set(sizes)),
        "size_entropy": sum(-p * math.log2(p) for p in shares) if sizes else None,
        "lifetime_p50": lifetime(0.5),
        "lifetime_p90": lifetime(0.9),
        "lifetime_p99": lifetime(0.99),
        "repeat_rate": sum((a & b).total() for a, b in pairs) / most if most else None,
        "load_mean": sum(loads) / len(loads) / max(loads) if sizes else None,
        "peak_width": sum(x >= 0.9 * max(loads) for x in loads) / len(loads) if sizes else None,
        "peak_position": loads.index(max(loads)) / len(loads) if sizes else None,
    }


@settings(max_examples=60)
@given(valid_traces())
def test_features_follow_their_definitions(trace: Trace) -> None:
    result, expected = asdict(features(trace)), slowly(trace)
    assert result.keys() == expected.keys()
    for name, value in expected.items():
        assert result[name] == (pytest.approx(value, rel=1e-6) if value else value), name


def test_extremes() -> None:
    same = features(make([event for b in range(9) for event in [(ALLOC, b, 5)]]))
    assert (same.size_entropy, same.lifetime_p50, same.repeat_rate) == (0, 5, None)
    own = features(make([(ALLOC, block, block + 1) for block in range(64)]))
    assert own.size_entropy == pytest.approx(6)
    repeated = [(MARK, 0, 0), (ALLOC, 0, 3), (ALLOC, 1, 4), (FREE, 1, 0), (FREE, 0, 0)] * 4
    assert features(make(repeated, labels=("step",))).repeat_rate == 1
    assert features(make([(ALLOC, 0, 9), (ALLOC, 1, 1)])).peak_width == 1  # 9 is 90 % of 10
    nothing = features(make([(MARK, 0, 0), (TRIM, 0, 0)], labels=("step",)))
    assert (nothing.steps, nothing.live_blocks_peak, nothing.peak_width) == (1, 0, None)
    huge = make([(ALLOC, 0, 2**54 - 1), (ALLOC, 1, 1)])  # in floating point both are the peak
    assert huge.load.tolist() == [2**54 - 1, 2**54]
    assert features(huge).peak_position == 1 / 2
    streams = np.array([0, 3, 7], np.uint16)
    trace = make([(ALLOC, 0, 1), (FREE, 0, 0), (TRIM, 0, 0)], stream=streams)
    assert features(trace).streams == 2


def test_a_block_that_a_valid_trace_cannot_have() -> None:
    with pytest.raises(ValueError, match="block is out of range"):
        features(make([(ALLOC, 2**32 - 1, 5)]))


@pytest.mark.parametrize("allocator", ["naive", "bfc"])  # bfc has counters, naive has none
def test_each_feature_is_a_column_of_a_row(allocator: str) -> None:
    columns = [column.name for column in SCHEMA.values() if column.group == "workload"]
    assert [field.name for field in fields(Features)] == columns
    trace = make(STEPS, labels=("step",))
    row, _ = experiment.run(trace, allocator, "sim:1GiB", Effort(0, False))
    assert {name: row[name] for name in columns} == asdict(features(trace))


def test_features_do_not_widen_tables() -> None:
    for metrics in (tables.ALL, tables.TERMINAL, tables.MEANS, tables.SUMMARY):
        assert not [name for name in metrics if SCHEMA[name].group == "workload"]


def test_inspect_shows_the_features() -> None:
    shown = [line.split() for line in output("inspect good.csv").splitlines()]
    assert ["live", "blocks,", "peak", "3"] in shown
    assert ["size", "entropy", "2.00", "bits"] in shown
    assert ["repeat", "rate", "n/a"] in shown
    assert ["largest", "request", "3.00", "MiB"] in shown
