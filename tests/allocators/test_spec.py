# SPDX-License-Identifier: Apache-2.0
"""Specs: read, written, cut apart; and allocators made from them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench import allocators
from tests.conftest import CASES, GIB, MIB
from tests.gold import said


def test_an_allocator_is_made_from_a_spec_and_options() -> None:
    device = allocators.SimulatedDevice("1GiB")
    allocator = allocators.make("bfc:allow_growth=false", device, memory_limit="32MiB")
    allocator.allocate(1)
    assert allocator.info.name == "bfc"
    assert allocator.device is device
    assert allocator.stats().reserved == 32 * MIB


@pytest.mark.parametrize("value", [False, "false", "False", 0, "off", "no"])
def test_a_flag_can_be_written_in_several_ways(value: object) -> None:
    device = allocators.SimulatedDevice("1GiB")
    allocators.make("bfc", device, allow_growth=value).allocate(1)
    assert device.stats().malloc_calls == 1
    assert allocators.make("bfc", allocators.SimulatedDevice("1GiB"), allow_growth=True)


def test_an_option_given_twice_is_an_error() -> None:
    with pytest.raises(allocators.SpecError, match="memory_limit is given both in"):
        allocators.make("bfc:memory_limit=1MiB", allocators.SimulatedDevice("1GiB"), memory_limit=1)


def test_names_are_sorted_and_complete() -> None:
    everywhere = {info.name for info in allocators.strategies() if not info.from_driver_pool}
    assert allocators.names() == sorted(everywhere)
    every = [info.name for info in allocators.strategies()]
    assert allocators.names(allocators.SimulatedDevice("1GiB")) == every
    assert every == sorted({*every}) == sorted({*allocators.names(), "cuda_async"})
    assert {"arena", "bfc", "buddy", "bump", "free_lists", "naive"} <= set(allocators.names())
    assert {case.info.name for case in CASES} == set(allocators.names())


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096B", 4096),
        ("1KiB", 1024),
        ("1K", 1024),
        ("1.5MiB", 3 * MIB // 2),
        ("23.2GiB", 24_910_810_317),  # 24,910,810,316.8, to the nearest byte
        ("0.1KiB", 102),
        ("79.15 GiB", 84_986_665_370),
        ("0.5 GB", GIB // 2),
        ("80GiB", 80 * GIB),
        ("9007199254740993", 2**53 + 1),
        (str(2**63 - 1), 2**63 - 1),
        ("2TiB", 2048 * GIB),
    ],
)
def test_bytes_are_parsed_exactly(text: str, size: int) -> None:
    assert allocators.parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "-1", "GiB", "1 0", "1PiB", "1e9", "0x10", "1.3", "nan", "inf", "1.2.3", "1iB", "1KiBs",
     str(2**63), "8388608TiB", "9999999999999999999999", "1,000", " 1"],
)  # fmt: skip
def test_an_invalid_number_of_bytes_is_an_error(text: str) -> None:
    with pytest.raises(allocators.SpecError, match="is not a number of bytes"):
        allocators.parse_bytes(text)


@given(st.integers(0, 2**63 - 1))
def test_human_bytes_include_the_exact_count(size: int) -> None:
    text = allocators.human_bytes(size)
    unit = "byte" if size == 1 else "bytes"
    assert text == f"{size} {unit}" or text.endswith(f" ({size} {unit})")


def test_what_is_said_of_wrong_specs(told: Callable[..., None]) -> None:
    """Also of options out of their range, and of those that contradict one another."""
    device = allocators.SimulatedDevice("1GiB")
    told("specs", lambda text: said(allocators.make, text, device))
    told("devices", lambda text: said(allocators.make_device, text))
