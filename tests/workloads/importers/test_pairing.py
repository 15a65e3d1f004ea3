# SPDX-License-Identifier: Apache-2.0
"""Events paired by address natively are those that a dict pairs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench.workloads._native import pair_events
from allocbench.workloads.importers.addresses import AddressedEvents, gaps_of, none

Row = tuple[bool, int, int]  # of an event: is_alloc, address, size
EVENTS = st.lists(
    st.tuples(st.booleans(), st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(0, 2))
)


def expected(rows: list[Row]) -> dict[str, Any]:
    begin: dict[int, int] = {}
    seen: set[int] = set()
    live: dict[int, int] = {}  # by address, the event that allocated the block
    from_start, nothing, stray, unfreed, still_alive = [], [], [], [], []
    for event, (is_alloc, address, size) in enumerate(rows):
        if is_alloc and size == 0:
            nothing.append(event)
            continue
        begin[event] = event
        if is_alloc:
            if address in live:
                unfreed.append(event)
                still_alive.append(live[address])
            live[address] = event
        elif address in live:
            begin[event] = live.pop(address)
        elif address not in seen and size > 0:
            from_start.append(event)
        else:
            stray.append(event)
        seen.add(address)
    for event in stray:
        del begin[event]
    return {
        "begin": begin,
        "from_start": from_start,
        "left_out": sorted(nothing + stray),
        "unfreed": unfreed,
        "still_alive": still_alive,
        "addresses": sorted(seen),
        "requests_for_nothing": len(nothing),
        "stray_frees": len(stray),
    }


def found(rows: list[Row]) -> dict[str, Any]:
    columns = np.array([(int(a), b, c) for a, b, c in rows], np.uint64).reshape(-1, 3).T
    pairs = pair_events(columns[0].astype(np.uint8), columns[1].copy(), columns[2].copy())
    begin, from_start, left_out, unfreed, still_alive, addresses = pairs.take()
    return {
        "begin": {n: of for n, of in enumerate(begin.tolist()) if not left_out[n]},
        "from_start": np.flatnonzero(from_start).tolist(),
        "left_out": np.flatnonzero(left_out).tolist(),
        "unfreed": unfreed.tolist(),
        "still_alive": still_alive.tolist(),
        "addresses": sorted(addresses.tolist()),
        "requests_for_nothing": pairs.requests_for_nothing,
        "stray_frees": pairs.stray_frees,
    }


@given(EVENTS)
def test_any_events(rows: list[Row]) -> None:
    assert found(rows) == expected(rows)


def test_many_addresses() -> None:
    draw = np.random.default_rng(1)
    addresses = draw.integers(0, 3000, 20_000) * 512
    rows = [(bool(draw.integers(2)), int(address), 7) for address in addresses]
    assert found(rows) == expected(rows)


def test_addresses_that_once_had_the_same_hash_are_found_at_once() -> None:
    golden = 0x9E3779B97F4A7C15  # the factor of the hash that files could be made for
    count = 1 << 15
    numbers = np.arange(count, dtype=np.uint64)
    for addresses in (
        numbers * np.uint64(pow(golden, -1, 1 << 64)),
        numbers << np.uint64(49),
        numbers * np.uint64(512),
    ):
        pairs = pair_events(np.ones(count, np.uint8), addresses, np.full(count, 512, np.uint64))
        assert pairs.search_steps < 4 * count


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        pair_events(np.zeros(2, np.uint8), np.zeros(2, np.uint64), np.zeros(1, np.uint64))


A, B, C = 1000, 2000, 3000  # addresses; the ranges of the last segments have 100 bytes each
RANGES = [(C, C + 100), (A, A + 100)]


@pytest.mark.parametrize(
    ("rows", "live", "expected"),
    [
        ([(True, A, 8), (False, A, 8), (True, A, 9)], [A], []),
        # a free is missing: from the first alloc of A, seen at its second
        ([(True, A, 8), (True, B, 8), (True, A, 9)], [A], [(0, 2, A)]),
        # an alloc is missing, from the beginning, seen at the second free
        ([(True, B, 8), (False, A, 8), (False, A, 8)], [], [(-1, 1, A)]),
        # a free of unknown size has nothing to compare; a request for 0 bytes is not counted
        ([(True, A, 8), (False, A, 8), (False, A, 0)], [], []),
        ([(True, A, 8), (True, A, 0)], [A], []),
        # at the end: a block that the last segments do not have, one that only they have
        ([(True, B, 8), (True, A, 8), (True, A + 99, 8)], [], [(1, 3, A), (2, 3, A + 99)]),
        ([(True, C + 8, 8), (False, C + 8, 8), (True, B, 8)], [C + 8], [(-1, 2, C + 8)]),
        # B and what follows a range were in segments that are gone
        ([(True, B, 8), (True, A + 100, 8), (True, C - 1, 8)], [], []),
        # in the order in which they are seen
        ([(True, C, 8), (True, A, 8), (True, A, 8), (True, C, 8)], [A, C], [(1, 2, A), (0, 3, C)]),
    ],
)
def test_gaps(rows: list[Row], live: list[int], expected: list[tuple[int, int, int]]) -> None:
    """Of each: the alloc whose free is missing, or -1; the allocs before what shows it; where."""
    is_alloc, address, size = (np.array(column) for column in zip(*rows, strict=True))
    many = len(rows)
    events = AddressedEvents(
        is_alloc,
        address.astype(np.uint64),
        size.astype(np.uint64),
        np.zeros(many, np.int64),
        np.zeros(many, np.uint32),
    )
    blocks = replace(none(), address=np.array(live, np.uint64))
    before = np.append(0, np.cumsum(is_alloc & (size > 0)))
    found = gaps_of(events, before, blocks, RANGES)
    told = zip(found.begun.tolist(), found.shown.tolist(), found.address.tolist(), strict=True)
    assert [*told] == expected
