# SPDX-License-Identifier: Apache-2.0
"""The pool of CuPy at its memory limit and on a full device."""

from __future__ import annotations

import pytest

from allocbench.allocators import OutOfMemory, SimulatedDevice, make

MIB = 1 << 20
LIMIT = "cupy_pool:memory_limit=1GiB"


@pytest.mark.parametrize(("spec", "capacity"), [(LIMIT, "80GiB"), ("cupy_pool", "1GiB")])
def test_free_segments_are_returned_before_a_request_fails(spec: str, capacity: str) -> None:
    pool = make(spec, SimulatedDevice(capacity))
    pool.deallocate(pool.allocate(512 * MIB))
    pool.allocate(768 * MIB)
    assert (pool.stats().reserved, pool.stats().retries) == (768 * MIB, 1)


@pytest.mark.parametrize(("spec", "capacity"), [(LIMIT, "80GiB"), ("cupy_pool", "1GiB")])
def test_a_segment_with_a_live_block_stays(spec: str, capacity: str) -> None:
    pool = make(spec, SimulatedDevice(capacity))
    pool.deallocate(pool.allocate(512 * MIB))
    pool.allocate(MIB)
    with pytest.raises(OutOfMemory):
        pool.allocate(768 * MIB)
    pool.allocate(511 * MIB)
    pool.allocate(512 * MIB)
    assert pool.stats().reserved == 1024 * MIB


def test_segments_of_other_streams_are_returned_too() -> None:
    pool = make(LIMIT, SimulatedDevice("80GiB"))
    pool.deallocate(pool.allocate(1024 * MIB, 1), 1)
    pool.allocate(512, 2)
    assert pool.stats().reserved == 512
