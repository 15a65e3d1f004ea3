# SPDX-License-Identifier: Apache-2.0
"""The shares of blocks and bytes at a stable address, against the definition taken word by word."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from allocbench.replays.experiment import Effort, run
from allocbench.replays.runner import Stability
from allocbench.reports.rows.results import SCHEMA
from allocbench.workloads import ALLOC, FREE, MARK, Trace
from tests.traces import make

SHARES = ("stable_address_share", "stable_address_bytes_share")
MIB = 1 << 20


def by_definition(trace: Trace, places: list[tuple[int, int]]) -> tuple[float, float] | None:
    """The j-th alloc of a size in step k, from step 3 on, is compared with that of step k - 1."""
    steps: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    step, at = 0, 0
    for op, size in zip(trace.op.tolist(), trace.size.tolist(), strict=True):
        step += op == MARK
        if op == ALLOC:
            steps[step][size].append(places[at])
            at += 1
    blocks = stable = 0
    held = stable_bytes = 0
    for k in [k for k in steps if k >= 3]:
        for size, found in steps[k].items():
            before = steps[k - 1][size] if k - 1 in steps else []
            for j, place in enumerate(found):
                blocks, held = blocks + 1, held + size
                if j < len(before) and before[j] == place and place[0] >= 0:
                    stable, stable_bytes = stable + 1, stable_bytes + size
    return (stable / blocks, stable_bytes / held) if blocks else None


@pytest.mark.parametrize("seed", range(20))
def test_random_traces_agree_with_the_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    events: list[tuple[int, int, int]] = []
    places: list[tuple[int, int]] = []
    for block in range(200):
        if random.random() < 0.08:
            events.append((MARK, 0, 0))
        events.append((ALLOC, block, int(random.choice([1, 512, 700, 4096]))))
        places.append((int(random.integers(-1, 2)), int(random.integers(0, 2))))
    trace = make(events, labels=("step",))
    stability = Stability(at_once=int(random.integers(0, 40)))
    batch = int(random.integers(1, 60))
    allocs = trace.op == ALLOC
    columns = {
        "step": np.cumsum(trace.op == MARK)[allocs].astype(np.uint64),
        "requested": trace.size[allocs],
        "segment": np.array(places, np.int64)[:, 0],
        "offset": np.array(places, np.int64)[:, 1],
    }
    for first in range(0, len(places), batch):
        stability({name: column[first : first + batch] for name, column in columns.items()})
    found = stability.shares()
    expected = by_definition(trace, places)
    assert expected is not None
    assert [found[name] for name in SHARES] == pytest.approx(list(expected))


def three_steps(*sizes: int) -> Trace:
    """Two blocks in each of several steps; the first one is of a size of the step."""
    events, block = [], 0
    for size in sizes:
        events.append((MARK, 0, 0))
        ids = range(block, block + 2)
        block = ids.stop
        events += [(ALLOC, ids[0], size), (ALLOC, ids[1], MIB), *((FREE, n, 0) for n in ids)]
    return make(events, labels=("step",))


def shares(trace: Trace, name: str) -> list[Any]:
    row, _ = run(trace, name, "sim:1GiB", Effort(passes=0, capacity=False))
    return [row[column] for column in SHARES]


def test_equal_steps_are_stable_unless_every_block_is_new_memory() -> None:
    trace = three_steps(3 * MIB, 3 * MIB, 3 * MIB)
    for name in ("caching", "bfc", "tlsf", "buddy"):
        assert shares(trace, name) == [1.0, 1.0]
    assert shares(trace, "naive") == shares(trace, "bump") == [0.0, 0.0]


def test_a_block_of_another_size_has_moved() -> None:
    assert shares(three_steps(3 * MIB, 3 * MIB, 5 * MIB), "caching") == [0.5, 1 / 6]


def test_without_a_third_step_there_is_nothing_to_compare() -> None:
    assert shares(three_steps(MIB, MIB), "caching") == [None, None]
    assert shares(make([(ALLOC, 0, 5)]), "caching") == [None, None]


def test_the_definition_says_what_is_compared() -> None:
    text = SCHEMA["stable_address_share"].definition
    assert "steps 3 to K" in text
    assert "the j-th alloc of a size in step k is the j-th alloc of that size in step k-1" in text
