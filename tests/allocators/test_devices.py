# SPDX-License-Identifier: Apache-2.0
"""The simulated device, observed through `naive`, which makes one device call per request."""

from itertools import pairwise
from typing import Any

import pytest

from allocbench import allocators
from allocbench.allocators import _core
from allocbench.allocators.devices import COST_MODELS, cost_model
from allocbench.allocators.replays import CALL_KINDS
from tests.allocators.strategies.seen import fails
from tests.conftest import GIB, MIB

POOL_CALLS = ("pool_malloc", "pool_free", "pool_grow", "pool_shrink")
BASE = 1 << 40
TOP = 1 << 52


def naive(capacity: int | str = "1GiB", **options: object) -> allocators.Allocator:
    device = allocators.SimulatedDevice(capacity, **options)  # type: ignore[arg-type]
    return allocators.make("naive", device)


def served(allocator: allocators.Allocator, size: int) -> bool:
    return not fails(allocator, size)


def test_capacity_counts_bytes_without_rounding() -> None:
    allocator = naive(1000)
    assert served(allocator, 999)
    assert served(allocator, 1)
    assert not served(allocator, 1)
    assert allocator.device.reserved == allocator.device.capacity == 1000


def test_the_memory_of_the_context_cannot_be_used() -> None:
    allocator = naive(1000, context=400)
    assert allocator.device.capacity == 600
    assert served(allocator, 600)
    assert not served(allocator, 1)
    with pytest.raises(allocators.SpecError, match="leaves nothing"):
        naive(1000, context=1000)


SIZES = (1, 5000, 2 * MIB, 1)


@pytest.mark.parametrize("alignment", [1, 4096, 2 * MIB, GIB])
def test_segments_lie_below_one_another_or_above_at_the_alignment(alignment: int) -> None:
    below, above, begin, end = [], [], TOP, BASE
    for size in SIZES:
        begin = (begin - size) // alignment * alignment
        below.append(begin)
        above.append(-(-end // alignment) * alignment)
        end = above[-1] + size
    for options, expected in (({}, below), ({"addresses": "up"}, above)):
        allocator = naive("16GiB", alignment=alignment, **options)
        assert [allocator.allocate(size) for size in SIZES] == expected


def test_an_address_is_never_reused() -> None:
    allocator = naive()
    seen = set()
    for _ in range(100):
        address = allocator.allocate(MIB)
        seen.add(address)
        allocator.deallocate(address)
    assert len(seen) == 100


def test_two_allocators_share_capacity_but_not_segments() -> None:
    device = allocators.SimulatedDevice(3 * MIB)
    left, right = allocators.make("naive", device), allocators.make("naive", device)
    mine, theirs = left.allocate(MIB), right.allocate(2 * MIB)
    assert not served(left, 1)
    with pytest.raises(allocators.BadFree):
        left.deallocate(theirs)
    del left
    assert device.reserved == 2 * MIB
    assert right.allocate(MIB) < theirs < mine


def test_a_call_is_measured_as_often_as_it_is_asked_for() -> None:
    device = allocators.SimulatedDevice("1GiB")
    costs = _core.measure_calls(device, MIB, 5)
    assert {call: len(seconds) for call, seconds in costs.items() if seconds} == {
        "malloc": 5,
        "free": 5,
    }
    assert device.stats().malloc_calls == device.stats().free_calls >= 5


def test_an_allocator_keeps_its_device_alive() -> None:
    allocator = naive(MIB)
    assert served(allocator, MIB)
    assert not served(allocator, 1)


def test_all_calls_are_counted_including_refused_ones() -> None:
    allocator = naive(MIB)
    address = allocator.allocate(MIB)
    served(allocator, 1)
    allocator.deallocate(address)
    stats = allocator.device.stats()
    assert (stats.malloc_calls, stats.free_calls, stats.refused_calls) == (2, 1, 1)
    assert stats.calls == 3


def curve(points: list[tuple[float, float]], size: int) -> float:
    """Piecewise linear between the points, constant outside them."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= size <= x1:
            return y0 + (y1 - y0) * (size - x0) / (x1 - x0)
    return points[0][1] if size < points[0][0] else points[-1][1]


@pytest.mark.parametrize("size", [1, 256, 257, 3000, 4096, MIB, 100 * MIB, GIB, 5 * GIB])
@pytest.mark.parametrize("costs", COST_MODELS)
def test_seconds_follow_the_cost_model(size: int, costs: str) -> None:
    calls = {
        call: [(point["bytes"], point["seconds"]) for point in points]
        for call, points in cost_model(costs)["calls"].items()
    }
    allocator = naive("8GiB", costs=costs)
    address = allocator.allocate(size)
    malloc = curve(calls["malloc"], size)
    assert allocator.device.stats().seconds == pytest.approx(malloc)
    allocator.deallocate(address)
    assert allocator.device.stats().seconds == pytest.approx(malloc + curve(calls["free"], size))


def test_each_point_of_a_cost_curve_counts_its_calls() -> None:
    costs: dict[str, Any] = {
        "malloc": [(MIB, 1e-6), (3 * MIB, 2e-6)],
        "free": [(2 * MIB, 4e-6)],
        "map": [(2 * MIB, 8e-6), (4 * MIB, 16e-6)],
    }
    device = _core.SimulatedDevice(GIB, **costs)  # no cost for unmap
    allocator = allocators.make("naive", device)
    for size in (1, MIB, 3 * MIB // 2, 3 * MIB, 4 * MIB):
        allocator.deallocate(allocator.allocate(size))
    stats = device.stats()
    assert stats.calls_at_points == [2.75, 2.25, 5, 0, 0]
    assert stats.seconds == pytest.approx(2.75 * 1e-6 + 2.25 * 2e-6 + 5 * 4e-6)


def test_every_assumed_cost_has_a_range_by_the_rule_and_named_sources() -> None:
    model = cost_model()
    assert list(model["calls"]) == [*CALL_KINDS, *POOL_CALLS]
    sources = set()
    for points in model["calls"].values():
        for point in points:
            sources |= set(point["measured"])
            assert point["low"] < point["seconds"] < point["high"]
            if len(point["measured"]) < 2:
                assert point["low"] <= point["seconds"] / 3 * 1.005
                assert point["high"] >= point["seconds"] * 2.99
            else:
                assert point["low"] <= point["seconds"] / 2
                assert point["high"] >= point["seconds"] * 2
    assert sources == set(model["sources"])


def test_a_refused_call_is_paid() -> None:
    device = allocators.SimulatedDevice("1MiB")
    with pytest.raises(allocators.OutOfMemory):
        allocators.make("naive", device).allocate(GIB)
    assert device.stats().calls_at_points == [0, 0, 0, 0, 1, 0] + [0] * 16


@pytest.mark.parametrize("costs", COST_MODELS)
def test_each_cost_model_has_a_name_and_its_provenance(costs: str) -> None:
    model = cost_model(costs)
    assert model["provenance"]
    assert model["sources"]
    device = allocators.make_device(f"sim:1GiB,costs={costs}")
    assert device.cost_source == model["source"] == costs
    assert device.simulated
    for points in model["calls"].values():
        assert all(0 < point["low"] < point["seconds"] < point["high"] for point in points)


@pytest.mark.parametrize("call", [1, 2, 5])
def test_the_kth_call_fails(call: int) -> None:
    allocator = naive(fail_call=call)
    assert [served(allocator, 1) for _ in range(6)] == [index != call for index in range(1, 7)]


def test_large_calls_fail() -> None:
    allocator = naive(fail_above="1MiB")
    assert served(allocator, MIB)
    assert not served(allocator, MIB + 1)
    assert not served(naive(fail_above=0), 1)


def test_random_failures_repeat_with_the_seed() -> None:
    def outcomes(rate: float, seed: int) -> list[bool]:
        allocator = naive(fail_rate=rate, seed=seed)
        return [served(allocator, 1) for _ in range(400)]

    assert outcomes(0.25, 1) == outcomes(0.25, 1) != outcomes(0.25, 2)
    assert 60 < outcomes(0.25, 1).count(False) < 140
    assert outcomes(1.0, 1).count(True) == 0
    assert all(outcomes(0.0, 1))


def test_a_device_is_made_from_a_spec() -> None:
    device = allocators.make_device("sim:1MiB,addresses=up,alignment=4096,fail_call=2,seed=7")
    assert device.capacity == MIB
    allocator = allocators.make("naive", device)
    assert [served(allocator, 1) for _ in range(3)] == [True, False, True]
    assert allocator.allocate(1) == BASE + 2 * 4096
    assert allocators.make_device("sim:capacity=1GiB").capacity == GIB
    assert allocators.make_device(f"sim:1GiB,seed={2**64 - 1}").capacity == GIB
    with pytest.raises(allocators.SpecError, match=r"must be a number from 0 to 2\^64 - 1"):
        allocators.make_device(f"sim:1GiB,seed={2**64}")
