# SPDX-License-Identifier: Apache-2.0
"""Small traces for tests: from a list of events, or drawn at random."""

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from allocbench.base.trace import Layout
from allocbench.workloads import ALLOC, FREE, MARK, TRIM, Provenance, Trace, TraceError
from allocbench.workloads.streaming import Source, StreamedTrace

MIB, GIB = 1 << 20, 1 << 30
Event = tuple[int, int, int]
GOOD: list[Event] = [(ALLOC, 0, 100), (ALLOC, 1, 7), (FREE, 0, 0), (ALLOC, 0, 50), (FREE, 1, 0)]


def make(events: Iterable[Event], **others: Any) -> Trace:
    op, block, size = np.array(list(events), np.uint64).reshape(-1, 3).T
    return Trace(
        op=op.astype(np.uint8),
        block=block.astype(np.uint32),
        size=size.copy(),
        stream=others.pop("stream", np.zeros(len(op), np.uint16)),
        **others,
    )


def held_at_start() -> tuple[list[Event], Layout]:
    """The allocs of two blocks, and the segment of 20 MiB that has them."""
    layout = Layout(
        address=np.array([2 * GIB], np.uint64),
        size=np.array([20 * MIB], np.uint64),
        stream=np.zeros(1, np.uint16),
        small=np.zeros(1, np.bool_),
        reservation=np.zeros(1, np.uint64),
        rank=np.zeros(1, np.uint32),
        block_address=np.array([2 * GIB, 2 * GIB + 4 * MIB], np.uint64),
        block_size=np.array([2 * MIB, 6 * MIB], np.uint64),
    )
    return [(ALLOC, 0, 2 * MIB), (ALLOC, 1, 6 * MIB)], layout


def in_parts(trace: Trace, events: int) -> StreamedTrace:
    """A trace that is read from its arrays, some events at a time."""
    columns = trace.columns()

    def read(names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        for first in range(0, len(trace), events):
            yield {name: columns[name][first : first + events] for name in names}

    names = ("labels", "provenance", "layout", "pools", "coverage")
    head = {name: getattr(trace, name) for name in names}
    source = Source(len(trace), trace.allocs, tuple(columns), head, read)
    return StreamedTrace(source, "trace", lambda: None)


def assert_same(left: Trace, right: Trace) -> None:
    assert left.columns().keys() == right.columns().keys()
    for name, array in left.columns().items():
        np.testing.assert_array_equal(array, right.columns()[name], strict=True)
    assert left.labels == right.labels


def message_of(broken: Callable[[], object]) -> str:
    with pytest.raises(TraceError) as caught:
        broken()
    message = str(caught.value)
    assert "\n" not in message
    return message


@st.composite
def valid_traces(draw: st.DrawFn, plain: bool = False) -> Trace:
    """Valid traces; plain ones can be written as CSV."""
    labels = ("", "step", "forward")
    live: list[int] = []
    dead: list[int] = []
    events: list[Event] = []
    blocks = 0
    kinds = (ALLOC, FREE) if plain else (ALLOC, FREE, MARK, TRIM)
    steps: list[int] = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=60))
    left = 2**63 - 1 - len(steps)  # bytes, when each alloc has one
    for kind in steps:
        if kind == FREE and live:
            dead.append(live.pop(draw(st.integers(0, len(live) - 1))))
            events.append((FREE, dead[-1], 0))
        elif kind in (ALLOC, FREE):
            reuse = draw(st.booleans())
            if dead and reuse:
                block = dead.pop()
            else:
                block, blocks = blocks, blocks + 1
            live.append(block)
            more = draw(st.integers(0, left))
            left -= more
            events.append((ALLOC, block, 1 + more))
        elif kind == MARK:
            events.append((MARK, draw(st.integers(0, 2)), 0))
        else:
            events.append((TRIM, 0, 0))
    n = len(events)
    if plain:
        return make(events)

    def column(dtype: str, most: int) -> np.ndarray[Any, Any]:
        return np.array(draw(st.lists(st.integers(0, most), min_size=n, max_size=n)), dtype)

    return make(
        events,
        labels=labels,
        stream=column("uint16", 2**16 - 1),
        label=draw(st.none() | st.builds(column, st.just("uint32"), st.just(2))),
        time_ns=draw(st.none() | st.builds(column, st.just("uint64"), st.just(2**64 - 1))),
        provenance=Provenance(name=draw(st.text()), seed=draw(st.none() | st.integers(0, 9))),
    )


def training(seed: int, steps: int = 8, leak: int = 0, **others: object) -> Trace:
    """Steps with other sizes each: activations, temporaries, and what is never freed."""
    random, events, sizes = Random(seed), list[Event](), list[int]()

    def alloc(size: int) -> int:
        events.append((ALLOC, len(sizes), size))
        sizes.append(size)
        return len(sizes) - 1

    for _ in range(6):
        alloc(random.randrange(8, 64) * MIB)
    for step in range(steps):
        events.append((MARK, 0, 0))
        scale = random.uniform(0.4, 1)
        activations = []
        for _ in range(6):
            activations.append(alloc(int(scale * random.choice([37, 53, 91]) * MIB)))
            events.append((FREE, alloc(int(scale * 120 * MIB)), 0))
        if leak:
            alloc(leak)
        for activation in reversed(activations):
            temporary = alloc(int(scale * 60 * MIB))
            events += [(FREE, activation, 0), (FREE, temporary, 0)]
        if step == 0:
            for _ in range(6):
                alloc(40 * MIB)
    return make(events, labels=("step",), **others)


def decoding(seed: int) -> Trace:
    """Sequences whose caches grow by copies, and end in any order."""
    random, events, live, count = Random(seed), list[Event](), list[int](), 0
    for _ in range(40):
        size = random.randrange(1, 30) * MIB
        for token in range(random.randrange(2, 12)):
            events.append((ALLOC, count, size + 3 * token * MIB))
            if token:
                events.append((FREE, count - 1, 0))
            count += 1
        live.append(count - 1)
        if len(live) > 5:
            events.append((FREE, live.pop(random.randrange(len(live))), 0))
    return make(events)
