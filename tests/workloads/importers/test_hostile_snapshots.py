# SPDX-License-Identifier: Apache-2.0
"""Snapshots that were made to take much time: work is counted, and hashes are compared."""

import pickle
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocbench.base.trace import Layout
from allocbench.workloads import read
from allocbench.workloads.importers.addresses import AddressedEvents
from allocbench.workloads.importers.snapshot_start import _Held, _Lowest
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


def test_the_rule_of_a_workspace_is_cut() -> None:
    use = (0, 10**9, 0, 512, "r" * 100_000)
    path = snapshot("rule", event("alloc", 512, 512, time_us=10**6), allocbench_workspaces=[use])
    (label,) = set(read(path).labels) - {""}
    assert 200 < len(label) < 300


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


@pytest.mark.parametrize("numbers", [(1, 2, 3), (1,), ([], 1), ("a", "b"), (1.0, 2.0)])
def test_a_pool_is_two_numbers(numbers: Any) -> None:
    bad = [event("alloc", 512, 512, pool_id=numbers)]
    assert "is not valid" in message_of(lambda: read(snapshot("event", *bad)))
    segment = {"address": 0, "total_size": 512, "blocks": [], "segment_pool_id": numbers}
    path = snapshot("segment", event("alloc", 512, 512), segments=[segment])
    assert "not two numbers" in message_of(lambda: read(path))


def test_ranges_that_overlap_are_no_layout() -> None:
    path = snapshot(
        "overlap",
        event("alloc", 1, 512),
        event("segment_unmap", 4 * MIB, 4 * MIB),
        event("segment_unmap", 6 * MIB, 4 * MIB),
    )
    told = read(path).provenance.extra["layout"]
    assert told == "unknown: the segments at 0x400000 and 0x600000 overlap"


def test_free_segments_are_those_without_a_block() -> None:
    """Against sets; segments of 10 addresses come and go, and so do blocks."""
    rng = random.Random(0)
    count = 400
    address, is_alloc = np.array([rng.randrange(60) for _ in range(count)], np.uint64), []
    live = {3, 17}
    for one in address.tolist():
        is_alloc.append(one not in live or rng.random() < 0.1)
        (live.add if is_alloc[-1] else live.discard)(one)
    events = AddressedEvents(
        is_alloc=np.array(is_alloc),
        address=address,
        size=address,
        stream=address.astype(np.int64),
        label=address.astype(np.uint32),
        time_ns=None,
        labels=("",),
        marks=[],
    )
    start = Layout(
        address=np.empty(0, np.uint64),
        size=np.empty(0, np.uint64),
        stream=np.empty(0, np.uint16),
        small=np.empty(0, np.bool_),
        reservation=np.empty(0, np.uint64),
        rank=np.empty(0, np.uint32),
        block_address=np.array([3, 17], np.uint64),
        block_size=np.array([1, 1], np.uint64),
    )
    held, segments, live = _Held(events, start), set[int](), {3, 17}
    asked = 0
    for n in range(count):
        begin = 10 * rng.randrange(6)
        if begin in segments:
            held.remove(begin)
        else:
            held.add(begin, 10)
        segments ^= {begin}
        (live.add if is_alloc[n] else live.discard)(int(address[n]))
        if rng.random() < 0.5:
            free = any(not live & {*range(one, one + 10)} for one in segments)
            assert held.any_free(n + 1) == free
            asked += free
    assert asked
