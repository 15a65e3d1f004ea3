# SPDX-License-Identifier: Apache-2.0
"""bfc's memory log in the message of a refused request."""

import pytest

from allocbench import allocators
from tests.conftest import KIB, MIB, Make


def log(allocator: allocators.Allocator, size: int) -> list[str]:
    """The lines after the first one in the message of a refused request of `size` bytes."""
    with pytest.raises(allocators.OutOfMemory) as caught:
        allocator.allocate(size)
    return str(caught.value).splitlines()[1:]


def rows(lines: list[str]) -> list[str]:
    """The rows of the map, without the address and size of their regions."""
    index = next(index for index, line in enumerate(lines) if line.startswith("  map"))
    return [line.split()[1] for line in lines[index + 1 :]]


def test_the_bins_hold_chunks_by_their_size(make: Make) -> None:
    allocator = make("bfc:memory_limit=2MiB")
    chunks = [allocator.allocate(size) for size in (1000, 200, 511, 512)]
    allocator.deallocate(chunks[0])
    assert log(allocator, 2 * MIB)[:4] == [
        "  bin 0 (from 256 bytes): 1 chunks, 1 in use; 256 bytes, in use 256 bytes for requests "
        "of 200 bytes",
        "  bin 1 (from 512 bytes): 2 chunks, 2 in use; 1.00 KiB (1024 bytes), in use 1.00 KiB "
        "(1024 bytes) for requests of 1023 bytes",
        "  bin 2 (from 1.00 KiB (1024 bytes)): 1 chunks, 0 in use; 1.00 KiB (1024 bytes), "
        "in use 0 bytes for requests of 0 bytes",
        "  bin 12 (from 1.00 MiB (1048576 bytes)): 1 chunks, 0 in use; 2.00 MiB (2094848 bytes), "
        "in use 0 bytes for requests of 0 bytes",
    ]


def test_the_last_bin_has_no_upper_bound(make: Make) -> None:
    allocator = make("bfc:allow_growth=false", "100GiB")
    allocator.allocate(70 << 30)
    lines = log(allocator, 70 << 30)
    assert lines[0].startswith("  bin 20 (from 256.00 MiB (268435456 bytes)): 2 chunks, 1 in use;")
    assert not lines[1].startswith("  bin")


def test_one_line_has_the_totals(make: Make) -> None:
    allocator = make("bfc:memory_limit=6MiB")
    allocator.deallocate(allocator.allocate(2 * MIB))
    allocator.allocate(MIB)
    assert (
        "  total: in use 1.00 MiB (1048576 bytes), peak 2.00 MiB (2097152 bytes); "
        "free 1.00 MiB (1048576 bytes), largest free chunk 1.00 MiB (1048576 bytes); "
        "memory limit 6.00 MiB (6291456 bytes); regions 1"
    ) in log(allocator, 5 * MIB)


def test_the_map_shows_how_full_each_part_is(make: Make) -> None:
    allocator = make("bfc:memory_limit=2MiB")
    part = 2 * MIB // 64
    allocator.allocate(3 * part)
    gap = allocator.allocate(2 * part)
    allocator.allocate(part // 2)
    allocator.deallocate(gap)
    assert rows(log(allocator, 2 * MIB)) == ["###..5" + "." * 58]


@pytest.mark.parametrize(
    ("used", "shown"), [(256, "0"), (32 * KIB // 10, "1"), (32 * KIB - 256, "9"), (32 * KIB, "#")]
)
def test_a_digit_counts_tenths(make: Make, used: int, shown: str) -> None:
    allocator = make("bfc:memory_limit=2MiB")
    allocator.allocate(used)
    assert rows(log(allocator, 2 * MIB)) == [shown + "." * 63]


def test_every_region_has_a_row_no_longer_than_it_needs(make: Make) -> None:
    allocator = make(f"bfc:memory_limit={6 * MIB + 1000}")
    for size in (2 * MIB, 4 * MIB, 256):
        allocator.allocate(size)
    assert rows(log(allocator, 1024)) == ["#" * 64, "#" * 64, "#.."]


def test_the_parts_of_a_row_are_equal(make: Make) -> None:
    allocator = make(f"bfc:memory_limit={65 * 256}")  # 64 parts of 260 bytes
    for count in (32, 16, 8, 4, 2, 1, 1):
        allocator.allocate(count * 256)
    assert rows(log(allocator, MIB)) == ["#" * 63 + "0"]
    allocator.allocate(256)
    assert rows(log(allocator, MIB)) == ["#" * 64]


def test_without_regions_there_is_no_map(make: Make) -> None:
    lines = log(make("bfc:memory_limit=2MiB"), 3 * MIB)
    assert len(lines) == 1
    assert lines[0].endswith("regions 0")


def test_the_map_is_limited_to_the_first_regions(make: Make) -> None:
    allocator = make("bfc:memory_limit=80MiB", fail_above=MIB)
    for _ in range(70):
        allocator.allocate(900_000)
    lines = log(allocator, 2 * MIB)
    more = len(allocator.snapshot()) - 64
    assert more > 0
    assert lines[-1] == f"  and {more} more regions"
    assert len(rows(lines)) == 64 + 1


def test_unsafe_chunks_count_as_free(make: Make) -> None:
    allocator = make("bfc:memory_limit=2MiB,timestamped_frees=true")
    allocator.deallocate(allocator.allocate(MIB))
    assert rows(log(allocator, 2**63)) == ["." * 64]
