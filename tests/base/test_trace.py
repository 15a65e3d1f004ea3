# SPDX-License-Identifier: Apache-2.0
"""Kinds of events are the same in Python and in C++; rules of a layout, beside a model."""

import re
from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocbench.base import trace as events
from tests.traces import make

HEADER = Path(__file__).parents[2] / "allocators/native/core/trace.hpp"


def test_the_native_code_has_the_same_kinds_of_events() -> None:
    kinds = re.findall(r"^  k(\w+) = (\d+),$", HEADER.read_text(), re.MULTILINE)
    native = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper(): int(op) for name, op in kinds}
    assert native == {name: getattr(events, name) for name in native}
    assert sorted(native.values()) == list(range(events.POOL_RELEASE + 1))
    assert set(events.POOL_EVENTS.values()) < set(native.values())


_RANGES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=3)


@settings(max_examples=400)
@given(_RANGES, _RANGES, st.integers(0, 3))
@example([(0, 12)], [(0, 1), (1, 3), (3, 1)], 0)  # the last two overlap
@example([(0, 1), (1, 3), (3, 1)], [], 0)
@example([(0, 12)], [(0, 1), (1, 3), (4, 1)], 0)
def test_a_layout_is_in_order_without_overlaps(
    segments: list[tuple[int, int]], blocks: list[tuple[int, int]], reserved: int
) -> None:
    def apart(ranges: list[tuple[int, int]]) -> bool:
        """Whether each is above the bytes of all before it, and none is empty."""
        taken = [{*range(begin, begin + size)} for begin, size in ranges]
        return all(taken) and all(
            max(one) < min(other) for n, one in enumerate(taken) for other in taken[n + 1 :]
        )

    address, size, block_address, block_size = (
        np.array([pair[n] for pair in ranges], np.uint64)
        for ranges in (segments, blocks)
        for n in (0, 1)
    )
    zeros = np.zeros(len(segments), np.uint32)
    found = events.Layout(
        address,
        size,
        zeros.astype(np.uint16),
        zeros.astype(np.bool_),
        (zeros + reserved).astype(np.uint64),
        zeros,
        block_address,
        block_size,
    ).first_broken()
    inside = all(
        any(a <= begin and begin + size <= a + b for a, b in segments) for begin, size in blocks
    )
    whole = all(begin >= reserved for begin, _ in segments) and inside
    assert (found is None) == (apart(segments) and whole and apart(blocks))


def test_a_trace_has_as_many_pools_as_16_bits_tell_apart() -> None:
    one = events.PrivatePool()
    assert make([(events.ALLOC, 0, 1)], pools=(one,) * 65_535).first_broken() is None
    assert make([(events.ALLOC, 0, 1)], pools=(one,) * 65_536).first_broken() is not None
