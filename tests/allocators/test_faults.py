# SPDX-License-Identifier: Apache-2.0
"""Devices that refuse calls: nothing is lost, statistics stay correct, and later requests work."""

import random
import re

import pytest

from allocbench import allocators
from tests.conftest import MIB, Case
from tests.oracle import Watched

SIZES = (100, 5000, 3 * MIB, 700, 9 * MIB, MIB + 1, 256, 5 * MIB)


def work(watched: Watched) -> None:
    """Requests of all sizes with frees in between."""
    for index, size in enumerate(SIZES * 3):
        watched.allocate(size)
        if index % 3 == 2 and watched.live:
            watched.free(watched.live[0])


def assert_sound_afterwards(watched: Watched) -> None:
    watched.free_all()
    watched.trim()
    assert watched.allocator.device.reserved == 0
    assert watched.allocate(1) is not None


@pytest.mark.parametrize("call", [1, 2, 3, 5, 8, 12])
def test_one_refused_call_loses_nothing(case: Case, call: int) -> None:
    watched = case.make(fail_call=call)
    work(watched)
    device = watched.allocator.device.stats()
    assert device.refused_calls >= (device.malloc_calls >= call)
    watched.free_all()
    watched.trim()
    assert watched.allocator.device.reserved == 0
    blocks = [watched.allocate(1), watched.allocate(1)]  # the fault hits at most one of them
    assert blocks != [None, None]


def test_a_device_that_refuses_large_segments_still_serves_small_ones(case: Case) -> None:
    watched = case.make(fail_above=4 * MIB)
    work(watched)
    assert_sound_afterwards(watched)
    assert watched.allocator.stats().reserved <= 4 * MIB


def test_a_device_that_refuses_everything_serves_nothing(case: Case) -> None:
    watched = case.make(fail_above=0)
    work(watched)
    assert watched.live == []
    assert watched.allocator.stats().failures == 3 * len(SIZES)
    assert watched.allocator.snapshot() == []


@pytest.mark.parametrize("seed", range(2))
def test_random_refusals_lose_nothing(case: Case, seed: int) -> None:
    watched = case.make(fail_rate=0.4, seed=seed)
    rng = random.Random(seed)
    for _ in range(60):
        if rng.random() < 0.6 or not watched.live:
            watched.allocate(rng.choice(SIZES))
        else:
            watched.free(rng.choice(watched.live))
        if rng.random() < 0.1:
            watched.trim()
        if rng.random() < 0.1:
            watched.step()
    watched.free_all()
    watched.trim()
    assert watched.allocator.device.reserved == 0


def test_a_full_device_serves_again_after_frees(case: Case) -> None:
    watched = case.make(8 * MIB)
    while watched.allocate(MIB // 4) is not None:
        pass
    assert len(watched.live) >= 3
    watched.free_all()
    watched.trim()
    assert watched.allocate(min(2 * MIB, case.largest_request(8 * MIB))) is not None


def test_growing_and_trimming_can_repeat_indefinitely(case: Case) -> None:
    watched = case.make()
    for _ in range(150):
        block = watched.allocate(MIB)
        assert block is not None
        watched.free(block)
        watched.trim()


def test_the_error_message_has_the_numbers(case: Case) -> None:
    watched = case.make(16 * MIB)
    watched.allocate(3000)
    with pytest.raises(allocators.OutOfMemory) as caught:
        watched.allocator.allocate(17 * MIB)
    stats = watched.allocator.stats()
    held = {
        "asked": 17 * MIB,
        "device": 16 * MIB,
        "reserved": stats.reserved,
        "allocated": stats.allocated,
        "requested": stats.requested,
        "free": stats.reserved - stats.allocated,
        "largest": watched.allocator.largest_free(),
    }
    number = r"(?:[\d.]+ \w+ \()?(\d+) bytes\)?"
    result = re.match(
        f"{case.info.name}: out of memory: asked for {number}; reserved {number} of a device of "
        f"{number}; allocated {number} for requests of {number}; free {number}, "
        f"largest free block {number}",
        str(caught.value),
    )
    assert result is not None, str(caught.value)
    order = ("asked", "reserved", "device", "allocated", "requested", "free", "largest")
    assert {k: int(v) for k, v in zip(order, result.groups(), strict=True)} == held


def test_a_deleted_allocator_returns_everything(case: Case) -> None:
    device = allocators.SimulatedDevice("64MiB")
    other = allocators.make(case.spec, device)
    other.allocate(1000)
    mine = device.reserved
    allocator = allocators.make(case.spec, device)
    for size in (1000, MIB, 3 * MIB):
        try:
            allocator.allocate(size)
        except allocators.OutOfMemory:
            assert device.reserved > 8 * MIB  # the other allocator took nearly everything
    del allocator
    assert device.reserved == mine
    other.check()
    del other
    assert device.reserved == 0
    stats = device.stats()
    got = stats.malloc_calls + stats.map_calls - stats.refused_calls
    assert got == stats.free_calls + stats.unmap_calls


@pytest.mark.parametrize("size", [-1, 2**64, 1.5, "4096", None])
def test_a_size_that_is_not_an_integer_is_a_type_error(case: Case, size: object) -> None:
    watched = case.make()
    with pytest.raises(TypeError):
        watched.allocator.allocate(size)  # type: ignore[arg-type]
    watched.verify()


def test_an_unknown_option_is_an_error_that_lists_the_valid_ones(name: str) -> None:
    with pytest.raises(allocators.SpecError) as caught:
        allocators.make(f"{name}:no_such_option=1", allocators.SimulatedDevice("1GiB"))
    message = str(caught.value)
    assert "no_such_option" in message
    options = [option.name for option in allocators.info(name).options]
    assert all(option in message for option in options)
    assert options or "it has no options" in message


def test_every_option_has_help_and_rejects_invalid_values(name: str) -> None:
    for option in allocators.info(name).options:
        assert option.help
        device = allocators.SimulatedDevice("1GiB")
        nonsense = {option.name: "nonsense"}
        if option.name == "expandable_segments_reserve":  # PyTorch ignores what it cannot read
            allocators.make(name, device, **nonsense)
            continue
        with pytest.raises(allocators.SpecError, match=f"{option.name}=nonsense must be"):
            allocators.make(name, device, **nonsense)
        if option.default:
            allocators.make(name, device, **{option.name: option.default}).check()


def test_a_strategy_describes_itself(name: str) -> None:
    info = allocators.info(name)
    assert info.name == name
    assert all([info.summary, info.worst_case, info.reference])
    assert "\n" not in info.summary
    for capacity in (0, 1, 1000, 2**20, 2**40 + 12345):
        assert 0 <= info.largest_request(capacity) <= capacity
        assert info.largest_request(capacity) == capacity or info.exemption
