# SPDX-License-Identifier: Apache-2.0
"""What each strategy does with memory that several streams use, as the documentation tells it."""

import re
from pathlib import Path

import numpy as np
import pytest

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, MARK, TRIM, read
from tests.traces import make

ROOT = Path(__file__).parents[2]
SIZE = 1 << 20
APART = ("caching", "expandable", "planned")
SHARED = ("arena", "bfc", "buddy", "free_lists", "slab", "tlsf")
POOLS = ("cupy_pool", "rmm_pool", "rmm_arena")
Row = tuple[int, int, int, int]  # op, block, size, stream
STEP: Row = (MARK, 0, 0, 0)


def reused(name: str, *rows: Row) -> bool:
    """Whether the last alloc is where the first one was."""
    trace = make(
        [row[:3] for row in rows],
        stream=np.array([row[3] for row in rows], np.uint16),
        labels=("step",),
    )
    made = allocators.make(name, allocators.SimulatedDevice("1GiB"))
    found = allocators.replay(trace, made, placements=True).placements
    places = list(zip(found["segment"].tolist(), found["offset"].tolist(), strict=True))
    assert min(places) >= (0, 0)
    return places[-1] == places[0]


def after_free(on: int, by: int, *between: Row, size: int = SIZE) -> list[Row]:
    """A block of stream 0 is freed on one stream; another one allocates."""
    return [(ALLOC, 0, size, 0), (FREE, 0, 0, on), *between, (ALLOC, 1, size, by)]


def per_stream(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"per_stream:of={name}" for name in names)


RULES = [
    # names, freed on, allocated by, in between, whether the block is reused
    (APART + SHARED + per_stream(APART + SHARED) + POOLS, 0, 0, (), True),
    (APART, 0, 1, (), False),
    (APART, 0, 1, (STEP,), False),
    (APART, 1, 0, (), False),  # a block that was used on another stream waits
    (APART, 1, 1, (STEP,), False),
    (("caching", "expandable"), 1, 0, (STEP,), True),  # `planned` follows a plan by then
    (SHARED, 0, 1, (), True),
    (SHARED, 1, 0, (), True),
    (SHARED, 1, 1, (), True),
    (per_stream(APART + SHARED), 0, 1, (), False),
    (per_stream(SHARED), 1, 0, (), True),
    (per_stream(APART), 1, 0, (), False),
    (("cupy_pool", "rmm_arena"), 1, 0, (), True),
    (("cupy_pool", "rmm_arena"), 0, 1, (), False),
    (("rmm_pool",), 1, 1, (), True),
    (("rmm_pool",), 0, 1, (), True),
    (("rmm_pool",), 1, 0, (), False),
    *((("naive", "bump"), on, by, (STEP,), False) for on in (0, 1) for by in (0, 1)),
]


@pytest.mark.parametrize(("names", "on", "by", "between", "expected"), RULES)
def test_which_stream_gets_a_freed_block(
    names: tuple[str, ...], on: int, by: int, between: tuple[Row, ...], expected: bool
) -> None:
    for name in names:
        assert reused(name, *after_free(on, by, *between)) is expected, name


@pytest.mark.parametrize("name", APART)
def test_strategies_that_know_streams_keep_them_apart(name: str) -> None:
    for size in (1000, 30 * SIZE):
        assert not reused(name, *after_free(0, 1, size=size))
        assert not reused(name, *after_free(0, 1, STEP, size=size))


def test_the_arena_of_rmm_shares_large_blocks_among_streams() -> None:
    assert reused("rmm_arena", *after_free(0, 1, size=2 * SIZE))


@pytest.mark.parametrize("name", APART)
def test_a_trim_ends_the_wait_of_a_block_that_another_stream_used(name: str) -> None:
    kept = (ALLOC, 2, SIZE, 0)  # so that the trim does not return the segment
    rows = after_free(1, 0, (TRIM, 0, 0, 0))
    assert reused(name, rows[0], kept, *rows[1:])


@pytest.mark.parametrize("name", APART)
def test_a_refusal_of_the_device_frees_what_waits(name: str) -> None:
    big = 48 << 20
    rows = [(ALLOC, 0, big, 0), (FREE, 0, 0, 1), (ALLOC, 1, big, 0)]
    trace = make([row[:3] for row in rows], stream=np.array([0, 1, 0], np.uint16))
    made = allocators.make(name, allocators.SimulatedDevice("64MiB"))
    allocators.replay(trace, made)
    assert made.stats().failures == 0


@pytest.mark.parametrize("name", allocators.names())
def test_a_recording_with_several_streams_completes(name: str) -> None:
    trace = read(ROOT / "tests" / "data" / "recordings" / "streams.pickle.gz")
    assert len(np.unique(trace.stream)) == 3
    made = allocators.make(f"check:of={name}", allocators.SimulatedDevice("64GiB"))
    allocators.replay(trace, made, keep=True)
    made.check()
    assert made.stats().failures == 0


def test_the_table_of_the_documentation_has_every_strategy() -> None:
    page = (ROOT / "docs" / "strategies" / "index.md").read_text()
    table = page.partition("## Several streams")[2].partition("## ")[0]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")]
    named = {name for cell in first for name in re.findall(r"`(\w+)`", cell)}
    assert named == {info.name for info in allocators.strategies()}
    rows = [row.split("|") for row in table.splitlines() if row.startswith("| ")]
    for names, words in ((APART, "never"), (SHARED, "at once")):
        for name in names:
            (row,) = (row for row in rows if f"`{name}`" in row[1])
            assert row[3].strip().startswith(words)
