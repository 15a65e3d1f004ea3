# SPDX-License-Identifier: Apache-2.0
"""SimpleMemoryArena: TFLite's offsets, and one segment at commit."""

import pytest

from allocbench import allocators
from allocbench.allocators import SimpleMemoryArena
from tests.conftest import MIB


@pytest.fixture
def device() -> allocators.SimulatedDevice:
    return allocators.SimulatedDevice("1GiB")


@pytest.fixture
def arena(device: allocators.SimulatedDevice) -> SimpleMemoryArena:
    return SimpleMemoryArena(device, alignment=64)


def test_basic_operations_have_tflites_offsets(arena: SimpleMemoryArena) -> None:
    blocks = [arena.allocate(32, 2047) for _ in range(3)]
    arena.deallocate(blocks[0])
    blocks += [arena.allocate(32, 1023), arena.allocate(32, 2047)]
    arena.deallocate(blocks[1])
    blocks.append(arena.allocate(32, 1023))
    assert [block.offset for block in blocks] == [0, 2048, 4096, 0, 6144, 1024]


def test_offsets_repeat_after_clear(arena: SimpleMemoryArena) -> None:
    for _ in range(2):
        blocks = [arena.allocate(32, 2047) for _ in range(3)]
        arena.commit()
        assert [block.offset for block in blocks] == [0, 2048, 4096]
        arena.clear()
        assert arena.high_water_mark == 0
    blocks = [arena.allocate(32, 1023), arena.allocate(32, 2047), arena.allocate(32, 4095)]
    assert [block.offset for block in blocks] == [0, 1024, 3072]


def test_an_empty_block_resolves_to_null(arena: SimpleMemoryArena) -> None:
    nothing, block = arena.allocate(32, 0), arena.allocate(32, 1)
    assert (nothing.offset, nothing.size, block.offset) == (0, 0, 0)
    arena.commit()
    assert arena.resolve(nothing) == 0
    assert arena.resolve(block) != 0
    arena.deallocate(nothing)
    arena.deallocate(block)


def test_an_empty_arena_commits_nothing(
    device: allocators.SimulatedDevice, arena: SimpleMemoryArena
) -> None:
    arena.allocate(32, 0)
    arena.commit()
    assert device.stats().malloc_calls == arena.committed_size == 0


def test_the_tightest_gap_is_taken(arena: SimpleMemoryArena) -> None:
    large, _, small, _, other, _ = (arena.allocate(32, size) for size in (320, 32, 96, 32, 96, 32))
    for block in (large, small, other):
        arena.deallocate(block)
    offsets = [arena.allocate(32, size).offset for size in (64, 96, 64, 512)]
    assert offsets == [small.offset, other.offset, large.offset, 608]


def test_offsets_are_aligned_and_sizes_are_not_rounded(arena: SimpleMemoryArena) -> None:
    offsets = [arena.allocate(64, 1).offset for _ in range(3)]
    assert offsets == [0, 64, 128]
    assert arena.high_water_mark == 129
    assert arena.allocate(1, 10).offset == 1  # the gap after the first byte
    assert arena.allocate(1, 100).offset == 129
    assert arena.high_water_mark == 229


def test_commit_gets_one_segment_of_the_high_water_mark(
    device: allocators.SimulatedDevice, arena: SimpleMemoryArena
) -> None:
    first, second = arena.allocate(32, 1000), arena.allocate(32, 1000)
    arena.deallocate(second)
    arena.commit()
    assert device.reserved == arena.committed_size == 2048  # 2024 rounded up to 64
    assert arena.resolve(first) % 64 == 0
    assert arena.resolve(second) == arena.resolve(first) + 1024
    arena.commit()
    assert device.stats().malloc_calls == 1


def test_growing_moves_the_arena(
    device: allocators.SimulatedDevice, arena: SimpleMemoryArena
) -> None:
    block = arena.allocate(32, 1000)
    arena.commit()
    before = arena.resolve(block)
    arena.allocate(32, MIB)
    with pytest.raises(allocators.SpecError, match="commit"):
        arena.resolve(block)
    arena.commit()
    assert arena.resolve(block) != before
    assert device.reserved == arena.committed_size
    assert device.stats().free_calls == 1


def test_a_smaller_round_keeps_the_segment(
    device: allocators.SimulatedDevice, arena: SimpleMemoryArena
) -> None:
    arena.allocate(32, MIB)
    arena.commit()
    arena.clear()
    block = arena.allocate(32, 100)
    with pytest.raises(allocators.SpecError, match="commit"):
        arena.resolve(block)
    arena.commit()
    assert (arena.committed_size, device.stats().malloc_calls) == (MIB, 1)


def test_a_refused_commit_keeps_the_old_segment() -> None:
    device = allocators.SimulatedDevice("1MiB")
    arena = SimpleMemoryArena(device)
    arena.allocate(32, 1000)
    arena.commit()
    arena.allocate(32, MIB)
    with pytest.raises(allocators.OutOfMemory, match=r"1\.00 MiB"):
        arena.commit()
    assert device.reserved == arena.committed_size == 1024


def test_a_block_that_is_not_placed_cannot_be_freed(arena: SimpleMemoryArena) -> None:
    block = arena.allocate(32, 100)
    arena.deallocate(block)
    with pytest.raises(allocators.BadFree):
        arena.deallocate(block)


@pytest.mark.parametrize("alignment", [0, 3, 4 * MIB])
def test_alignment_is_a_power_of_two_up_to_that_of_devices(
    device: allocators.SimulatedDevice, arena: SimpleMemoryArena, alignment: int
) -> None:
    with pytest.raises(allocators.SpecError, match=str(alignment)):
        SimpleMemoryArena(device, alignment)
    with pytest.raises(allocators.SpecError, match=str(alignment)):
        arena.allocate(alignment, 1)


@pytest.mark.parametrize("size", [2**63, 2**64 - 64, 2**64 - 1])
def test_a_size_beyond_any_device_is_refused_without_placing_anything(
    arena: SimpleMemoryArena, size: int
) -> None:
    arena.allocate(32, 32)
    gap = arena.allocate(32, 4064)
    arena.allocate(32, 32)
    arena.deallocate(gap)
    with pytest.raises((allocators.OutOfMemory, allocators.SpecError)):
        arena.allocate(32, size)
    assert arena.high_water_mark == 4128
    assert arena.allocate(32, 100).offset == 32


def test_a_deleted_arena_returns_its_segment(device: allocators.SimulatedDevice) -> None:
    arena = SimpleMemoryArena(device)
    arena.allocate(32, MIB)
    arena.commit()
    assert device.reserved == MIB
    del arena
    assert device.reserved == 0
