# SPDX-License-Identifier: Apache-2.0
"""planned: steps that repeat exactly have the same places each time and need no device call."""

import random
from collections.abc import Sequence

import pytest

from allocbench import allocators, workloads
from allocbench.replays.runner import steady_calls
from allocbench.workloads import catalog
from tests.allocators.strategies.test_planned import counted, get, planned
from tests.conftest import MIB
from tests.oracle import Watched

REQUESTS = 12


def shapes(seed: int, count: int) -> list[list[int]]:
    """The sizes of several steps, which follow no line: each is drawn on its own."""
    draw = random.Random(seed)
    return [[draw.randrange(MIB, 9 * MIB) for _ in range(REQUESTS)] for _ in range(count)]


def run_step(
    watched: Watched, sizes: Sequence[int], carried: int | None, every: int = 3
) -> tuple[list[int], int]:
    """Keeps every third block until the end, and the last one until the next step has begun.

    Returns the addresses and the block that is still alive.
    """
    watched.step()
    addresses: list[int] = []
    kept: list[int] = []
    for number, size in enumerate(sizes):
        block = get(watched, size)
        addresses.append(watched.address(block))
        if number == 1 and carried is not None:
            watched.free(carried)
        if number == len(sizes) - 1:
            for other in kept:
                watched.free(other)
        elif number % every == 0:
            kept.append(block)
        else:
            watched.free(block)
    return addresses, block


def run_round(
    watched: Watched, steps: Sequence[Sequence[int]], carried: int | None = None, every: int = 3
) -> tuple[list[list[int]], int, int]:
    """One run of all steps: the addresses of each, the device calls, and the last block."""
    before = watched.allocator.device.stats().calls
    addresses = []
    for sizes in steps:
        seen, carried = run_step(watched, sizes, carried, every)
        addresses.append(seen)
    assert carried is not None
    return addresses, watched.allocator.device.stats().calls - before, carried


@pytest.mark.parametrize("seed", range(4))
def test_steps_whose_sizes_follow_no_line_repeat_without_device_calls(seed: int) -> None:
    watched = planned("2GiB")
    get(watched, 1024 * MIB)  # weights; pages move rather than exceed the load by 1 %
    steps = shapes(seed, 5)
    carried: int | None = None
    for _ in range(4):  # the plans of neighbouring steps agree from the fourth round on
        addresses, _, carried = run_round(watched, steps, carried)
    planned_before = counted(watched)["planned_requests"]
    again, calls, _ = run_round(watched, steps, carried)
    assert calls == 0
    assert again == addresses
    assert counted(watched)["planned_requests"] - planned_before == len(steps) * REQUESTS


def test_a_step_that_departs_from_its_plan_is_served_by_the_pools() -> None:
    watched = planned("2GiB")
    get(watched, 1024 * MIB)
    steps = shapes(1, 3)
    carried: int | None = None
    for _ in range(3):
        _, _, carried = run_round(watched, steps, carried)
    for departs_at in range(REQUESTS):
        changed = [*steps[0]]
        changed[departs_at] += 3 * MIB
        _, _, carried = run_round(watched, [changed, *steps[1:]], carried)
    assert watched.allocator.stats().failures == 0
    for _ in range(3):
        _, calls, carried = run_round(watched, steps, carried)
    assert calls == 0, "the changed steps have unlearned nothing"


def test_a_request_that_no_plan_knows_gets_the_rest_of_the_device() -> None:
    watched = planned("64MiB")
    steps = shapes(2, 3)
    carried: int | None = None
    for _ in range(3):
        _, _, carried = run_round(watched, steps, carried)
    watched.free_all()
    watched.step()
    assert watched.allocate(64 * MIB) is not None


def test_more_steps_than_are_remembered_are_served() -> None:
    watched = planned("256MiB")
    steps = shapes(3, 80)
    carried: int | None = None
    for _ in range(2):
        _, _, carried = run_round(watched, steps, carried)
    assert watched.allocator.stats().failures == 0


def test_a_block_kept_once_is_avoided_until_it_is_freed() -> None:
    watched = planned("2GiB")
    get(watched, 1024 * MIB)
    steps = shapes(4, 2)
    carried: int | None = None
    for _ in range(3):
        _, _, carried = run_round(watched, steps, carried)
    kept = get(watched, steps[0][0])  # the first request of a step, in its place
    for _ in range(4):
        _, calls, carried = run_round(watched, steps, carried)
    assert kept in watched.live
    assert calls == 0


def test_ends_that_change_after_many_repetitions_are_learned() -> None:
    """A step that ends as expected teaches nothing, but the next one must not be taken for it."""
    watched = planned("2GiB")
    get(watched, 1024 * MIB)
    steps = shapes(5, 3)
    carried: int | None = None
    for every in (3, 2, 5):
        for _ in range(6):
            before = counted(watched)["planned_requests"]
            _, calls, carried = run_round(watched, steps, carried, every)
        assert calls == 0
        assert counted(watched)["planned_requests"] - before == len(steps) * REQUESTS
    assert watched.allocator.stats().failures == 0


TRAINING = (
    "diffusion-train",
    "dlrm-train",
    "gpt2-train",
    "llama3-8b-lora",
    "moe-train",
    "resnet50-train",
)


@pytest.mark.parametrize("workload", TRAINING)
def test_a_third_pass_needs_no_device_call_and_little_more_than_the_load(workload: str) -> None:
    trace = catalog.load(workload)
    allocator = allocators.make("planned", allocators.SimulatedDevice("80GiB"))
    allocators.time_pass(trace, allocator)
    assert steady_calls(trace, allocator) == 0
    assert allocator.stats().failures == 0
    assert allocator.stats().peak_reserved <= 1.01 * trace.max_load


def addresses(trace: workloads.Trace, allocator: allocators.Allocator) -> list[int]:
    """Those of all blocks in one pass."""
    live: dict[int, int] = {}
    seen = []
    for op, block, size, stream in zip(
        trace.op, trace.block, trace.size, trace.stream, strict=True
    ):
        if op == workloads.ALLOC:
            live[block] = allocator.allocate(int(size), int(stream))
            seen.append(live[block])
        elif op == workloads.FREE:
            allocator.deallocate(live.pop(block), int(stream))
        elif block == trace.step_label:
            allocator.step()
    for address in live.values():
        allocator.deallocate(address)
    return seen


@pytest.mark.parametrize("workload", TRAINING)
def test_blocks_keep_their_addresses_from_the_third_pass_on(workload: str) -> None:
    trace = catalog.load(workload)
    allocator = allocators.make("planned", allocators.SimulatedDevice("80GiB"))
    first, second, third, fourth = (addresses(trace, allocator) for _ in range(4))
    assert third == fourth
    assert first != second
    allocator.check()


def test_the_next_step_is_expected_after_the_same_sequence_of_steps() -> None:
    """A step follows itself twice, and then another one follows: all begin with the same sizes."""
    watched = planned("2GiB")
    get(watched, 1024 * MIB)
    often, rarely, _ = shapes(6, 3)
    rarely[:4] = often[:4]
    carried: int | None = None
    for _ in range(5):
        addresses, calls, carried = run_round(watched, [often, often, often, rarely], carried)
    before = counted(watched)["planned_requests"]
    again, calls, _ = run_round(watched, [often, often, often, rarely], carried)
    assert counted(watched)["planned_requests"] - before == 4 * REQUESTS
    assert calls == 0
    assert again == addresses


@pytest.mark.parametrize("departs", [False, True])
def test_blocks_loaded_ahead_alternate_between_places(departs: bool) -> None:
    """Such as batches: one is loaded before the last one is freed."""
    watched = planned("2GiB")
    get(watched, 1024 * MIB)
    loaded = get(watched, 40 * MIB)
    seen: list[int] = []
    for step in range(12):
        watched.step()
        before = watched.allocator.device.stats().calls
        ahead = get(watched, 40 * MIB)
        seen.append(watched.address(ahead))
        work = [get(watched, size * MIB) for size in (9, 3, 14)]
        if departs and step == 7:
            work.append(get(watched, 21 * MIB))
        watched.free(loaded)
        for block in work:
            watched.free(block)
        loaded = ahead
    assert watched.allocator.device.stats().calls == before
    assert seen[-1] != seen[-2]
    assert seen[-2:] == seen[-4:-2]
    stats = watched.allocator.stats()
    assert stats.peak_reserved <= 1.01 * stats.peak_requested


@pytest.mark.parametrize("workload", ["llama3-8b-lora", "diffusion-train", "moe-train"])
def test_no_plan_is_made_for_a_long_step_before_it_repeats(workload: str) -> None:
    allocator = allocators.make("planned", allocators.SimulatedDevice("80GiB"))
    trace = catalog.load(workload)
    allocators.time_pass(trace, allocator)
    assert allocator.counters()["plans"] == 0
    allocators.time_pass(trace, allocator)
    assert allocator.counters()["plans"] > 0


def test_a_step_that_was_not_expected_is_recognized_by_its_beginning() -> None:
    watched = planned("2GiB")
    long, *others, short = (sizes * 20 for sizes in shapes(5, 6))  # 240 requests each

    def run_long(sizes: Sequence[int]) -> int:
        watched.step()
        before = counted(watched)["planned_requests"]
        for size in sizes:
            watched.free(get(watched, size))
        return counted(watched)["planned_requests"] - before

    for sizes in (long, *others, short[:20]):  # those of a kind follow no line
        run_long(sizes)
    assert run_long(long) == 240 - 128
