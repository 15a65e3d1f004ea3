# SPDX-License-Identifier: Apache-2.0
"""The search for the smallest capacity, against predicates whose answers are known."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench.allocators import SpecError, make_device
from allocbench.replays.capacity import LIMIT, STEP, Shown, boundary, roomy, rough_capacity, trial
from allocbench.replays.runner import Runner
from allocbench.workloads import ALLOC, FREE
from tests.traces import MIB, Event, make

SIZES = st.integers(1, 40 * STEP)


def at_least(least: int) -> Callable[[int], bool]:
    return lambda capacity: capacity >= least


@given(need=SIZES, load=SIZES, reserved=SIZES)
def test_the_boundary_of_a_monotone_allocator(need: int, load: int, reserved: int) -> None:
    """The smallest multiple of a step that is enough, whatever the replay reserved."""
    need = max(need, load)  # no allocator needs less than the load
    found = boundary(at_least(need), max_load=load, peak_reserved=reserved)
    assert found.capacity == -(-need // STEP) * STEP
    assert found.fails_above == ()


@pytest.mark.parametrize(("spec", "device"), [("nothing", "sim:1GiB"), ("naive", "sim:1GiB,x=1")])
def test_what_cannot_be_made_completes_nothing_at_that_capacity(spec: str, device: str) -> None:
    trace = make([(ALLOC, 0, 1)])
    assert trial(trace, spec, device, 700) == Shown(False, first=700, below=701)
    with pytest.raises(SpecError):
        Runner(trace, "sim:1GiB").completes("nothing")


@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize("steps", [1, 2, 3, 17, 1000])
def test_the_boundary_is_exact_around_a_multiple_of_a_step(steps: int, off: int) -> None:
    need = steps * STEP + off
    wanted = steps * STEP + (STEP if off > 0 else 0)
    for load in {1, need // 2 or 1, need}:
        found = boundary(at_least(need), max_load=load, peak_reserved=load)
        assert found.capacity == wanted


@given(need=SIZES, load=SIZES)
def test_a_rough_capacity_is_enough_and_close(need: int, load: int) -> None:
    need = max(need, load)
    found = rough_capacity(at_least(need), max_load=load, peak_reserved=load)
    assert found is not None
    assert found >= need
    assert found - need <= max(STEP, 0.005 * found) + STEP


@given(need=SIZES, rival=SIZES, more=SIZES)
def test_a_capacity_is_pursued_only_if_it_can_beat_a_rival(
    need: int, rival: int, more: int
) -> None:
    tried = list[int]()

    def enough(capacity: int) -> bool:
        tried.append(capacity)
        return capacity >= need

    found = rough_capacity(enough, max_load=1, peak_reserved=need + more, rival=rival)
    assert found is not None
    assert found >= need
    if need < 0.995 * rival - STEP:
        assert found - need <= max(STEP, 0.005 * found) + STEP
    elif need > rival > 2 * STEP:
        assert len(tried) == 2


def test_no_capacity_above_the_limit_is_tried() -> None:
    tried = list[int]()

    def enough(capacity: int) -> bool:
        tried.append(capacity)
        return False

    assert boundary(enough, max_load=3 * STEP, peak_reserved=3 * STEP).capacity is None
    assert max(tried) <= LIMIT < 2 * max(tried)
    assert rough_capacity(enough, max_load=1, peak_reserved=1) is None
    assert boundary(at_least(LIMIT), max_load=STEP, peak_reserved=STEP).capacity == LIMIT


def test_a_capacity_below_the_load_is_never_tried() -> None:
    load, tried = 9 * STEP + 5, list[int]()

    def enough(capacity: int) -> bool:
        tried.append(capacity)
        return capacity >= 10 * STEP

    found = boundary(
        enough, max_load=load, peak_reserved=30 * STEP, also=(STEP, 5 * STEP, load - 1)
    )
    assert found.capacity == 10 * STEP
    assert min(tried) > 9 * STEP


def test_an_allocator_that_is_not_monotone() -> None:
    """It completes on 100 steps and on 150 and more, and on one that is no multiple of a step."""
    alone = 120 * STEP + 7

    def enough(capacity: int) -> bool:
        return capacity >= 150 * STEP or capacity in (100 * STEP, alone)

    load, reserved = 80 * STEP, 200 * STEP
    blind = boundary(enough, max_load=load, peak_reserved=reserved)
    assert blind.capacity in (100 * STEP, 150 * STEP)
    told = boundary(enough, max_load=load, peak_reserved=reserved, also=(100 * STEP,))
    assert told.capacity == 100 * STEP
    assert set(told.fails_above) <= {n * STEP for n in range(101, 150)}
    assert told.fails_above
    assert list(told.fails_above) == sorted(told.fails_above)
    exact = boundary(
        lambda capacity: capacity >= 150 * STEP or capacity == alone,
        max_load=load,
        peak_reserved=reserved,
        also=(alone,),
    )
    assert exact.capacity == alone
    quiet = boundary(enough, max_load=load, peak_reserved=reserved, also=(100 * STEP,), above=False)
    assert quiet.capacity == 100 * STEP


def test_the_need_does_not_depend_on_the_device_that_is_asked_about() -> None:
    """PyTorch's allocator completes this on 3,070 MiB, fails on 3,102 MiB, completes on 3,104 MiB.

    Requests grow from batch to batch, and small results lie between them. On a device of 7.5 GiB,
    cached segments are freed to serve the last ones, which lowers the peak.
    """
    rows: list[Event] = []

    def alloc(size: int) -> int:
        rows.append((ALLOC, sum(op == ALLOC for op, *_ in rows), size))
        return rows[-1][1]

    draw = random.Random(11)
    for _ in range(24):
        alloc(64 * MIB)
    for batch in range(12):
        kept = []
        for layer in range(24):
            large = alloc((20 + batch * 3) * MIB + layer * MIB // 2)
            kept.append(alloc(6 * MIB + layer * draw.randrange(1, 200) * 1024))
            rows.append((FREE, large, 0))
        rows.append((FREE, alloc((300 + batch * 37) * MIB), 0))
        rows.extend((FREE, block, 0) for block in kept)
    trace = make(rows)
    devices = ("sim:1TiB", "sim:7657MiB", "sim:2560MiB", "sim:1GiB")
    runners = [Runner(trace, device) for device in devices]
    assert runners[0].counted("caching")["retries"] == 0 < runners[1].counted("caching")["retries"]
    needs = {runner.min_capacity("caching") for runner in runners}
    assert len(needs) == 1


@pytest.mark.parametrize("size", [1, 1 << 40, (1 << 62) - 1])
def test_a_roomy_device_exists_for_every_trace(size: int) -> None:
    spec = roomy("sim:1GiB,alignment=512", make([(ALLOC, 0, size)]))
    device = make_device(spec)
    assert device.capacity >= size
    assert device.capacity == min(2 * size + (1 << 40), (1 << 62) - 1)
