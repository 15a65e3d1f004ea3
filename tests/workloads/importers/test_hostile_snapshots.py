# SPDX-License-Identifier: Apache-2.0
"""Snapshots that were made to take much time: work is counted, and hashes are compared."""

import pickle
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocbench.workloads import read
from allocbench.workloads.importers.snapshot_start import _Lowest
from tests.commands import folder
from tests.traces import message_of
from tests.work import lines_run

__all__ = ["folder"]  # the fixture, by its import

MIB = 1 << 20
_WORD = 1 << 64
_PRIMES = (11400714785074694791, 14029467366897019727, 2870177450012600261)  # of CPython's hash


def event(action: str, address: int, size: int, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, **more}


def snapshot(name: str, *events: Any, **more: Any) -> Path:
    path = Path(f"{name}.pickle")
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[*events]], **more}))
    return path


def many_ranges(count: int) -> Path:
    """Ranges of expandable segments that are mapped, and unmapped in the same order."""
    addresses = range(2 * MIB, 2 * MIB + 4 * MIB * count, 4 * MIB)
    return snapshot(
        f"ranges{count}",
        event("alloc", 1, 512),
        *(event("segment_map", address, 2 * MIB) for address in addresses),
        *(event("segment_unmap", address, 2 * MIB) for address in addresses),
    )


def many_pool_events(count: int) -> Path:
    names = [text for n in range(count) for text in (f"x{n}", f"allocbench.pool_event x{n}")]
    annotations = [
        {"stage": "START", "name": name, "device": 0, "time_us": n} for n, name in enumerate(names)
    ]
    return snapshot(
        f"pools{count}", event("alloc", 512, 512, time_us=1), external_annotations=annotations
    )


def many_equal_workspaces(count: int, address: int = 0) -> Path:
    """Workspaces that were all used at the same time, after as many allocs of their size."""
    return snapshot(
        f"workspaces{count}",
        *(event("alloc", address or 512 * n, 512, time_us=n) for n in range(1, count)),
        allocbench_workspaces=[(0, 10**9, address, 512, "rule")] * count,
    )


def many_workspaces_at_an_address(count: int) -> Path:
    return many_equal_workspaces(count, 512)


def many_unmapped_ranges(count: int) -> Path:
    """Ranges that the program held at the beginning, and unmapped several times."""
    addresses = range(2 * MIB, 2 * MIB + 4 * MIB * count, 4 * MIB)
    again = [
        event(action, address, 2 * MIB)
        for address in addresses
        for action in ("segment_unmap", "segment_map", "segment_unmap")
    ]
    return snapshot(f"unmapped{count}", event("alloc", 1, 512), *again)


def many_streams(count: int) -> Path:
    """A range of an expandable segment for each stream."""
    segments = [
        {"address": 4 * MIB * n, "total_size": 2 * MIB, "blocks": [], "is_expandable": True}
        | {"stream": n, "segment_type": "large"}
        for n in range(count)
    ]
    return snapshot(f"streams{count}", event("alloc", 1, 512), segments=segments)


def many_blocks_close_together(count: int) -> Path:
    """Blocks from before the recording, and later ones that come after each of them is freed."""
    segment = {"address": 0, "total_size": 64 * MIB, "blocks": [], "segment_type": "large"}
    return snapshot(
        f"close{count}",
        *(event("free_completed", n, 1) for n in range(count)),
        *(event("alloc", 1024 + n, 1) for n in range(count)),
        segments=[segment],
    )


def many_lists_of_tensors(count: int) -> Path:
    return _tensors(f"lists{count}", count, [[(512 * n, "m", "kind")] for n in range(count)])


def many_times_the_same_tensors(count: int) -> Path:
    tensors = [(512 * n, "m", "kind") for n in range(count)]
    return _tensors(f"tensors{count}", count, [tensors, *[None] * count])


def _tensors(name: str, count: int, lists: list[Any]) -> Path:
    told = [(10**9 + n, tensors) for n, tensors in enumerate(lists)]
    frames = [{"filename": "a.py", "line": 1, "name": "main"}]
    events = (event("alloc", 512 * n, 512, time_us=n, frames=frames) for n in range(1, count))
    return snapshot(name, *events, allocbench_tensors=told)


@pytest.mark.parametrize(
    "made",
    [
        many_ranges,
        many_pool_events,
        many_equal_workspaces,
        many_workspaces_at_an_address,
        many_unmapped_ranges,
        many_streams,
        many_blocks_close_together,
        many_lists_of_tensors,
        many_times_the_same_tensors,
    ],
)
def test_twice_as_much_takes_twice_the_work(made: Any) -> None:
    once, twice = (lines_run(partial(read, made(n))) for n in (300, 600))
    assert twice < 2.2 * once


def test_lists_of_tensors_that_are_one_list_are_left_out() -> None:
    tensors = [(512, "m", "kind")]
    assert read(_tensors("several", 2, [tensors, None])).module is not None
    assert read(_tensors("shared", 2, [tensors, tensors])).module is None


def test_segments_with_one_list_of_blocks_are_refused() -> None:
    blocks = [{"state": "active_allocated", "size": 512}]
    segments = [{"address": 4 * MIB * n, "total_size": 512, "blocks": blocks} for n in range(2)]
    path = snapshot("blocks", segments=segments)
    assert "two of its segments have the same list of blocks" in message_of(lambda: read(path))


def test_the_lowest_of_many_values_is_found_without_passing_all() -> None:
    rng = random.Random(0)
    for _ in range(500):
        values = [rng.randrange(10) for _ in range(rng.randrange(40))]
        lowest, begin, limit = _Lowest(np.array(values, np.int64)), rng.randrange(42), 4
        found = lowest.first_below(begin, limit)
        expected = [n for n in range(begin, len(values)) if values[n] < limit]
        assert found == expected[0] if expected else found >= len(values)


def colliding(count: int) -> list[tuple[int, int]]:
    """Pairs of numbers whose tuples have the same hash in CPython."""
    one, two, five = _PRIMES
    inverse, pairs = pow(two, -1, _WORD), [(1, 5)]

    def first(number: int) -> int:
        mixed = (five + number * two) % _WORD
        return (mixed << 31 | mixed >> 33) % _WORD * one % _WORD

    wanted = (first(1) + 5 * two) % _WORD
    number = 1
    while len(pairs) < count:
        number += 1
        other = (wanted - first(number)) * inverse % _WORD
        if other < 1 << 60:
            pairs.append((number, other))
    return pairs


def test_nobody_can_choose_pools_with_the_same_hash() -> None:
    pairs = colliding(50)
    assert len({hash(pair) for pair in pairs}) == 1
    path = snapshot(
        "pools", *(event("alloc", 512 * n, 512, pool_id=p) for n, p in enumerate(pairs, 1))
    )
    assert [pool.name for pool in read(path).pools] == [f"{one}.{two}" for one, two in pairs]
