# SPDX-License-Identifier: Apache-2.0
"""What each strategy does with memory that several streams use, as the documentation tells it."""

from __future__ import annotations

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
STEP = (MARK, 0, 0, 0)


def reused(name: str, *rows: tuple[int, int, int, int], capacity: str = "1GiB") -> bool:
    """Whether the last alloc of the rows (op, block, size, stream) is where the first one was."""
    trace = make(
        [row[:3] for row in rows],
        stream=np.array([row[3] for row in rows], np.uint16),
        labels=("step",),
    )
    made = allocators.make(name, allocators.SimulatedDevice(capacity))
    found = allocators.replay(trace, made, placements=True).placements
    places = list(zip(found["segment"].tolist(), found["offset"].tolist(), strict=True))
    assert min(places) >= (0, 0)
    return places[-1] == places[0]


def after_free(
    on: int, by: int, *between: tuple[int, int, int, int], size: int = SIZE
) -> list[tuple[int, int, int, int]]:
    """A block of stream 0 is freed on one stream; another one allocates."""
    return [(ALLOC, 0, size, 0), (FREE, 0, 0, on), *between, (ALLOC, 1, size, by)]


@pytest.mark.parametrize("name", [*APART, *SHARED])
def test_a_block_is_reused_by_its_own_stream_at_once(name: str) -> None:
    assert reused(name, *after_free(0, 0))
    assert reused(f"per_stream:of={name}", *after_free(0, 0))


@pytest.mark.parametrize("name", APART)
def test_strategies_that_know_streams_keep_them_apart(name: str) -> None:
    for size in (1000, SIZE, 30 * SIZE):
        assert not reused(name, *after_free(0, 1, size=size))
        assert not reused(name, *after_free(0, 1, STEP, size=size))


def test_the_pools_of_cupy_and_rmm_follow_their_own_rules() -> None:
    for name in ("cupy_pool", "rmm_pool", "rmm_arena"):
        assert reused(name, *after_free(0, 0))
    assert reused("cupy_pool", *after_free(1, 0))
    assert not reused("cupy_pool", *after_free(0, 1))
    assert reused("rmm_pool", *after_free(1, 1))
    assert reused("rmm_pool", *after_free(0, 1))
    assert not reused("rmm_pool", *after_free(1, 0))
    assert reused("rmm_arena", *after_free(1, 0))
    assert not reused("rmm_arena", *after_free(0, 1))
    large = [(ALLOC, 0, 2 * SIZE, 0), (FREE, 0, 0, 0), (ALLOC, 1, 2 * SIZE, 1)]
    assert reused("rmm_arena", *large)


@pytest.mark.parametrize("name", SHARED)
def test_other_strategies_serve_every_stream_at_once(name: str) -> None:
    assert reused(name, *after_free(0, 1))
    assert reused(name, *after_free(1, 0))
    assert reused(name, *after_free(1, 1))


@pytest.mark.parametrize("name", APART)
def test_a_block_that_was_used_on_another_stream_waits_for_a_step_or_a_trim(name: str) -> None:
    assert not reused(name, *after_free(1, 0))
    assert not reused(name, *after_free(1, 1, STEP))
    if name != "planned":  # which begins to follow a plan with the second step
        assert reused(name, *after_free(1, 0, STEP))
    kept = (ALLOC, 2, SIZE, 0)  # so that the trim does not return the segment
    rows = after_free(1, 0, (TRIM, 0, 0, 0))
    assert reused(name, rows[0], kept, *rows[1:])


@pytest.mark.parametrize("name", [*APART, *SHARED])
def test_per_stream_gives_a_freed_block_to_its_owner_at_once(name: str) -> None:
    spec = f"per_stream:of={name}"
    assert not reused(spec, *after_free(0, 1))
    assert reused(spec, *after_free(1, 0)) is (name in SHARED)


@pytest.mark.parametrize("name", ["naive", "bump"])
def test_floors_reuse_nothing(name: str) -> None:
    for on in (0, 1):
        for by in (0, 1):
            assert not reused(name, *after_free(on, by, STEP))


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
