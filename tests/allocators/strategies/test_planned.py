# SPDX-License-Identifier: Apache-2.0
"""planned: steps are learned and served from a plan, however their sizes change."""

import random
from collections.abc import Sequence

import pytest

from tests.conftest import MIB, Case, Make
from tests.oracle import Watched

PAGE = 2 * MIB
WEIGHTS = (3 * MIB, 5 * MIB, 9 * MIB)


def planned(capacity: int | str = "1GiB", spec: str = "planned") -> Watched:
    return Case(spec).make(capacity)


def run_step(watched: Watched, length: int, *, marked: bool = True, states: bool = False) -> int:
    """A small training step: activations of `length` KiB and multiples, gradients of weights.

    With `states`, some blocks are allocated that stay. Returns the number of device calls.
    """
    before = watched.allocator.device.stats().calls
    if marked:
        watched.step()
    unit = length << 10
    tokens = get(watched, 8 * length)
    saved = []
    for _ in WEIGHTS:
        scratch = get(watched, 3 * unit)
        saved.append(get(watched, 4 * unit + MIB))
        watched.free(scratch)
    gradients = []
    for weight in reversed(WEIGHTS):
        upstream = get(watched, 2 * unit)
        gradients.append(get(watched, weight))
        watched.free(saved.pop())
        watched.free(upstream)
    if states:
        for weight in WEIGHTS:
            get(watched, weight)
    for weight in WEIGHTS * 4:
        watched.free(get(watched, weight))  # of the optimizer
    for gradient in gradients:
        watched.free(gradient)
    watched.free(tokens)
    return watched.allocator.device.stats().calls - before


def get(watched: Watched, size: int) -> int:
    block = watched.allocate(size)
    assert block is not None
    return block


def counted(watched: Watched) -> dict[str, int]:
    return watched.allocator.counters()


def fallback_of_a_step(watched: Watched, length: int) -> int:
    """Bytes that a step gets from the pools, in requests of at least 1 MiB."""
    small = 8 * length  # the tokens
    before = counted(watched)["fallback_bytes"]
    run_step(watched, length)
    return counted(watched)["fallback_bytes"] - before - small


def test_the_second_step_is_planned_and_the_third_needs_no_device_call() -> None:
    watched = planned()
    run_step(watched, 700)
    assert counted(watched)["planned_requests"] == 0
    assert fallback_of_a_step(watched, 700) == 0
    assert run_step(watched, 700) == 0
    assert counted(watched)["plans"] == 1


def test_lengths_between_those_seen_are_planned_exactly() -> None:
    watched = planned()
    for length in (600, 900, 600, 900):
        run_step(watched, length)
    draw = random.Random(1)
    for length in (draw.randrange(600, 901) for _ in range(20)):
        assert fallback_of_a_step(watched, length) == 0, length
        assert watched.allocator.stats().reserved <= watched.allocator.stats().peak_reserved
    assert run_step(watched, 750) == 0


def test_a_longer_step_than_any_before_stretches_the_plan() -> None:
    watched = planned()
    run_step(watched, 600)
    assert fallback_of_a_step(watched, 720) == 0, "one step is known"
    run_step(watched, 600)
    assert fallback_of_a_step(watched, 840) == 0, "steps of two lengths are known"


@pytest.mark.parametrize(("mebibytes", "others_are_planned"), [(2, True), (40, False)])
def test_only_many_erratic_sizes_unlearn_a_step(mebibytes: int, others_are_planned: bool) -> None:
    watched = planned()
    draw = random.Random(5)
    for _ in range(12):
        before = counted(watched)["planned_requests"]
        run_step(watched, draw.randrange(600, 900))
        watched.free(get(watched, draw.randrange(mebibytes << 19, mebibytes << 20)))
    of_the_last_step = counted(watched)["planned_requests"] - before
    assert (of_the_last_step > 0) == others_are_planned


def test_with_too_many_requests_only_the_largest_have_places(make: Make) -> None:
    allocator = make("planned")
    sizes = [*[MIB] * 8192, 9 * MIB]
    for _ in range(3):  # so large a plan is made only for a step that has repeated
        allocator.step()
        for size in sizes:
            allocator.deallocate(allocator.allocate(size))
    assert allocator.counters()["planned_bytes"] == sum(sizes) - MIB


def test_a_long_step_with_changing_sizes_is_planned_each_time_after_three(make: Make) -> None:
    allocator = make("planned")
    carried = allocator.allocate(MIB)
    for more in range(9):
        allocator.step()
        for _ in range(8192):
            allocator.deallocate(allocator.allocate(MIB + more * 4096))
        allocator.deallocate(carried)
        carried = allocator.allocate(100 * MIB)
    assert allocator.counters()["plans"] == 6


def test_an_order_that_wastes_bytes_is_abandoned() -> None:
    watched = planned()

    def run(key: int, shrinking: int) -> None:
        watched.step()
        small = get(watched, key)
        for block in [get(watched, shrinking) for _ in range(4)]:
            watched.free(block)
        first, second = get(watched, 10 * MIB), get(watched, 10 * MIB)
        watched.free(first)
        third, fourth = get(watched, shrinking), get(watched, 10 * MIB)
        for block in (second, third, fourth, small):
            watched.free(block)

    for _ in range(2):
        run(1000, 10 * MIB)  # the fourth above the second, above where the first was
    for _ in range(2):
        run(2000, 2 * MIB)
    watched.trim()
    run(2000, 2 * MIB)
    assert watched.allocator.stats().reserved <= 22 * MIB + 2 * PAGE


def test_small_erratic_sizes_unlearn_nothing() -> None:
    watched = planned()
    draw = random.Random(5)
    for length in (600, 900, 700, 800, 750):
        run_step(watched, length)
        for _ in range(40):
            watched.free(get(watched, draw.randrange(MIB // 4, MIB // 2)))
    assert fallback_of_a_step(watched, 650) == 0


def test_blocks_kept_by_the_first_step_are_not_planned_in_the_next() -> None:
    watched = planned()
    run_step(watched, 700, states=True)
    run_step(watched, 700)
    run_step(watched, 700)
    assert run_step(watched, 700) == 0
    assert fallback_of_a_step(watched, 700) == 0


def test_a_long_lived_block_gets_a_place_after_it_dies_in_two_steps() -> None:
    watched = planned()
    served = []
    for stays in (True, True, True, True, False, False, False):
        before = counted(watched)["planned_requests"]
        watched.step()
        work, lasting = get(watched, 4 * MIB), get(watched, 3 * MIB)
        watched.free(work)
        if not stays:
            watched.free(lasting)
        served.append(counted(watched)["planned_requests"] - before)
    assert served == [0, 1, 1, 1, 1, 1, 2]


def test_a_block_that_lives_into_the_next_step_has_a_place() -> None:
    watched = planned()
    loss = None
    for _ in range(6):
        watched.step()
        work = get(watched, 4 * MIB)
        if loss is not None:
            watched.free(loss)
        loss = get(watched, 3 * MIB)
        watched.free(work)
    before = counted(watched)
    for _ in range(3):
        watched.step()
        work = get(watched, 4 * MIB)
        assert loss is not None
        watched.free(loss)
        loss = get(watched, 3 * MIB)
        watched.free(work)
    after = counted(watched)
    assert after["planned_requests"] - before["planned_requests"] == 6
    assert after["fallback_requests"] == before["fallback_requests"]


@pytest.mark.parametrize("late_units", [4, 6])
def test_blocks_across_steps_avoid_both_steps_at_every_length(late_units: int) -> None:
    watched = planned()
    handed_on = get(watched, 8)
    result = []
    for length in (600, 600, 900, 900, 600, 600, 900, 900, 700, 700, 850, 850, 651, 651):
        before = counted(watched)["fallback_requests"]
        watched.step()
        early = get(watched, 5 * length << 10)
        watched.free(handed_on)
        watched.free(early)
        handed_on = get(watched, 3 * length << 10)
        watched.free(get(watched, late_units * length << 10))
        result.append(counted(watched)["fallback_requests"] - before)
    assert result[7::2] == [0] * 4, "after a step of the same length"


def test_blocks_across_steps_can_be_below_blocks_placed_later() -> None:
    watched = planned()
    handed_on = get(watched, 8)
    result = []
    for index, length in enumerate((*[600] * 8, 900, 900, 600, 600, 700, 700)):
        before = counted(watched)["fallback_requests"]
        watched.step()
        early = get(watched, 5 * length << 10)
        watched.free(handed_on)
        if index >= 4:
            watched.free(early)
        handed_on = get(watched, 4 * length << 10)
        result.append(counted(watched)["fallback_requests"] - before)
    assert result[7::2] == [0] * 4, "after a step of the same length"


def test_a_second_branch_is_learned() -> None:
    watched = planned()

    def evaluate() -> int:
        before = counted(watched)["fallback_requests"]
        watched.step()
        blocks = [get(watched, size * MIB) for size in (6, 2, 11, 4, 7)]
        for block in blocks:
            watched.free(block)
        return counted(watched)["fallback_requests"] - before

    for _ in range(3):
        run_step(watched, 700)
        evaluate()
    assert fallback_of_a_step(watched, 700) == 0
    assert evaluate() == 0


def test_branches_with_equal_sizes_are_distinguished_by_lifetimes() -> None:
    watched = planned()

    def run(together: bool) -> None:
        watched.step()
        for _ in range(10):
            block = get(watched, 4 * MIB)
            if not together:
                watched.free(block)
        watched.free_all()

    for _ in range(4):
        run(together=True)
        run(together=False)
    run(together=True)
    watched.trim()
    run(together=False)
    assert watched.allocator.stats().reserved == 4 * MIB


def test_an_odd_step_does_not_unlearn_the_others() -> None:
    watched = planned()
    for _ in range(3):
        run_step(watched, 700)
    watched.step()
    kept = [get(watched, 2 * MIB) for _ in range(5)]
    for block in kept:
        watched.free(block)
    run_step(watched, 700)
    assert fallback_of_a_step(watched, 700) == 0


def test_steps_are_detected_without_marks() -> None:
    watched = planned()
    draw = random.Random(3)
    for _ in range(12):
        run_step(watched, draw.randrange(500, 900), marked=False)
    run_step(watched, 900, marked=False)
    before = counted(watched)
    for _ in range(4):
        run_step(watched, draw.randrange(500, 900), marked=False)
    after = counted(watched)
    large = 4 * 8 * len(WEIGHTS)
    assert after["planned_requests"] - before["planned_requests"] >= 0.9 * large


@pytest.mark.parametrize("marked", [True, False])
def test_the_future_of_a_trace_has_no_influence(marked: bool) -> None:
    def addresses(after: Sequence[int]) -> list[int]:
        watched = planned()
        for length in (700, 650, 800):
            run_step(watched, length, marked=marked)
        if marked:
            watched.step()
        result = [watched.address(get(watched, size)) for size in (5600, 2100 << 10)]
        for size in after:
            get(watched, size)
        return result

    assert addresses([]) == addresses([MIB, 77 * MIB, 12]) == addresses([30 * MIB])
