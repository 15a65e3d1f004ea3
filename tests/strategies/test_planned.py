# SPDX-License-Identifier: Apache-2.0
"""planned: steps learned and served from a plan, whatever their sizes do, on pages that move."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import allocators
from tests.conftest import MIB, Case
from tests.oracle import Watched
from workloads import catalog, lifetimes, write_plan
from workloads.trace import Trace

Make = Callable[..., allocators.Allocator]
PAGE = 2 * MIB
WEIGHTS = (3 * MIB, 5 * MIB, 9 * MIB)


def planned(capacity: int | str = "1GiB", spec: str = "planned") -> Watched:
    return Case(spec).make(capacity)


def run_step(watched: Watched, length: int, *, marked: bool = True, states: bool = False) -> int:
    """A training step in small: activations of `length` KiB and multiples, gradients of weights.

    With `states`, some blocks are born that stay. Returns the device calls that it cost.
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
    """Bytes that a step takes from the pools, of its requests of 1 MiB and more."""
    small = 8 * length  # the tokens
    before = counted(watched)["fallback_bytes"]
    run_step(watched, length)
    return counted(watched)["fallback_bytes"] - before - small


# -- learning


def test_the_second_step_is_planned_and_the_third_calls_the_device_no_more() -> None:
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
    assert fallback_of_a_step(watched, 720) == 0, "known from one step"
    run_step(watched, 600)
    assert fallback_of_a_step(watched, 840) == 0, "known from steps of two lengths"


@pytest.mark.parametrize(("mebibytes", "others_are_planned"), [(2, True), (40, False)])
def test_sizes_that_follow_no_rule_unlearn_a_step_only_when_they_are_many(
    mebibytes: int, others_are_planned: bool
) -> None:
    watched = planned()
    draw = random.Random(5)
    for _ in range(12):
        before = counted(watched)["planned_requests"]
        run_step(watched, draw.randrange(600, 900))
        watched.free(get(watched, draw.randrange(mebibytes << 19, mebibytes << 20)))
    of_the_last_step = counted(watched)["planned_requests"] - before
    assert (of_the_last_step > 0) == others_are_planned


def test_what_a_first_step_keeps_is_not_planned_in_the_next() -> None:
    watched = planned()
    run_step(watched, 700, states=True)
    run_step(watched, 700)
    run_step(watched, 700)
    assert run_step(watched, 700) == 0
    assert fallback_of_a_step(watched, 700) == 0


def test_a_block_that_lives_into_the_next_step_has_a_place_too() -> None:
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


def test_another_branch_is_learned_beside_the_first() -> None:
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


def test_a_program_without_marks_is_found_to_repeat_itself() -> None:
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
def test_nothing_is_known_of_the_future(marked: bool) -> None:
    def addresses(after: Sequence[int]) -> list[int]:
        watched = planned()
        for length in (700, 650, 800):
            run_step(watched, length, marked=marked)
        if marked:
            watched.step()
        found = [watched.address(get(watched, size)) for size in (5600, 2100 << 10)]
        for size in after:
            get(watched, size)
        return found

    assert addresses([]) == addresses([MIB, 77 * MIB, 12]) == addresses([30 * MIB])


@pytest.mark.parametrize("page", ["2MiB", "32MiB"])
@pytest.mark.parametrize("seed", range(4))
def test_steps_that_drift_never_corrupt(seed: int, page: str) -> None:
    draw = random.Random(seed)
    watched = planned("512MiB", f"planned:page={page}")
    kept: list[int] = []
    for _ in range(30):
        watched.step()
        alive = []
        for size in (3, 9, 2, 14, 1):
            if draw.random() < 0.9:
                alive.append(get(watched, int(size * MIB * draw.uniform(0.8, 1.2))))
            if draw.random() < 0.3 and alive:
                watched.free(alive.pop(draw.randrange(len(alive))))
        if draw.random() < 0.3 and alive:
            kept.append(alive.pop())
        if kept and draw.random() < 0.3:
            watched.free(kept.pop(0))
        for block in alive:
            watched.free(block)
        watched.allocator.check()


# -- memory


def test_idle_pages_move_before_the_device_is_asked_for_more() -> None:
    watched = planned("64MiB")
    blocks = [get(watched, 4 * MIB) for _ in range(16)]
    for block in blocks[::2]:
        watched.free(block)
    get(watched, 32 * MIB)  # from eight places
    assert watched.allocator.stats().reserved == 64 * MIB
    assert watched.allocator.stats().failures == 0


def test_a_trim_leaves_only_pages_with_blocks() -> None:
    watched = planned()
    run_step(watched, 700)
    run_step(watched, 700)
    kept = get(watched, 3 * MIB)
    watched.trim()
    assert watched.allocator.stats().reserved <= 3 * MIB + 2 * PAGE
    watched.free(kept)
    watched.trim()
    assert watched.allocator.stats().reserved == 0


def test_a_refused_request_changes_nothing_but_the_pages_mapped() -> None:
    watched = planned("16MiB")
    kept = get(watched, 9 * MIB)
    assert watched.allocate(9 * MIB) is None
    assert watched.allocator.stats().failures == 1
    watched.free(kept)
    assert watched.allocate(16 * MIB) is not None


@pytest.mark.parametrize("page", ["0", "3MiB", "1MiB"])
def test_a_page_is_a_multiple_of_the_granularity(make: Make, page: str) -> None:
    with pytest.raises(allocators.SpecError, match=f"page={page} must be a multiple of .*2097152"):
        make(f"planned:page={page}")


# -- an earlier run


def plan_of(trace: Trace, path: Path) -> str:
    blocks = lifetimes(trace)
    with path.open("wb") as file:
        write_plan(blocks, np.zeros(len(blocks), np.uint64), file)
    return f"planned:plan={path}"


LINES = ["id,lower,upper,size,offset,step", "a,0,3,4194304,0,0", "b,1,2,2097152,0,1"]


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., str]:
    def write(lines: Sequence[str], end: str = "\n") -> str:
        path = tmp_path / "a plan.csv"
        path.write_text("".join(line + end for line in lines), encoding="utf-8", newline="")
        return f"planned:plan={path}"

    return write


def test_a_plan_file_serves_the_first_step_of_all(written: Callable[..., str]) -> None:
    lines = ["id,lower,upper,size,offset", "first, second,0,9,8388608,0", "b,1,4,4194304,8388608"]
    for spec in (written(lines), written(lines, end="\r\n"), written(lines[:1] + lines[:0:-1])):
        watched = planned(spec=spec)
        first, second = get(watched, 8 * MIB), get(watched, 4 * MIB)
        assert abs(watched.address(first) - watched.address(second)) in (4 * MIB, 8 * MIB)
        assert counted(watched)["planned_requests"] == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "line 1 is not id,lower,upper,size,offset"),
        (["id,lower,upper,size", "a,0,1,5"], "line 1 is not id,lower,upper,size,offset"),
        (LINES[:1], "is a plan without blocks"),
        ([*LINES, "c,5,5,100,0,1"], "line 4 is not an id, an instant, a later one"),
        ([*LINES, "c,5,6,0,0,1"], "line 4"),
        ([*LINES, "c,5,6,-1,0,1"], "line 4"),
        ([*LINES, "c,5,6,99999999999999999999,0,1"], "line 4"),
        ([*LINES, "c,5,6"], "line 4"),
        ([*LINES, ""], "line 4"),
        ([*LINES, "c,5,6,100,0,0"], "a step begins before an earlier one"),
    ],
)
def test_what_is_no_plan_is_refused(
    make: Make, written: Callable[..., str], lines: Sequence[str], message: str
) -> None:
    with pytest.raises(allocators.SpecError, match=message):
        make(written(lines))


def test_a_plan_that_is_not_there_is_named(make: Make, tmp_path: Path) -> None:
    with pytest.raises(
        allocators.SpecError, match=r"plan=.*nothing\.csv must be a file that can be read"
    ):
        make(f"planned:plan={tmp_path}/nothing.csv")
    with pytest.raises(allocators.SpecError, match=r"must be a file|is no plan"):
        make(f"planned:plan={tmp_path}")


@pytest.mark.parametrize("workload", ["gpt2-train", "llama3-8b-lora"])
def test_a_repeated_run_takes_little_more_than_its_load(workload: str, tmp_path: Path) -> None:
    trace = catalog.load(workload)
    device = allocators.SimulatedDevice("80GiB")
    found = allocators.replay(trace, allocators.make(plan_of(trace, tmp_path / "p.csv"), device))
    assert found.stats.failures == 0
    assert found.stats.peak_reserved - found.max_load < 16 * MIB


def test_a_plan_serves_a_run_without_marks(tmp_path: Path) -> None:
    trace = catalog.load("llama3-8b-lora")
    spec = plan_of(trace, tmp_path / "p.csv")
    marked = allocators.replay(trace, allocators.make(spec, allocators.SimulatedDevice("80GiB")))
    kept = trace.op != 2
    bare = Trace(trace.op[kept], trace.block[kept], trace.size[kept], trace.stream[kept])
    found = allocators.replay(bare, allocators.make(spec, allocators.SimulatedDevice("80GiB")))
    assert found.counters["planned_requests"] == marked.counters["planned_requests"]
    assert found.stats.peak_reserved == marked.stats.peak_reserved
