# SPDX-License-Identifier: Apache-2.0
"""Eight threads on one allocator that free each other's blocks, every block checked.

`make tsan OPERATIONS=1000000` gives each thread that many calls, under ThreadSanitizer.
"""

import os

import pytest

from allocbench import allocators
from tests import stress
from tests.conftest import START

THREADS, SIDE = 8, 0x1000
OPERATIONS = int(os.environ.get("ALLOCBENCH_TEST_OPERATIONS", "2000"))  # of each thread
SPECS = [*(info.name for info in allocators.strategies()), "caching:expandable_segments=true"]


@pytest.mark.parametrize("spec", SPECS)
def test_threads_free_each_others_blocks(start: START, spec: str) -> None:
    program = start(f"check:of=per_stream:of={spec}")
    counts = stress.run(program, THREADS, OPERATIONS, SIDE)
    calls = counts.served + counts.refused + counts.freed
    assert calls >= THREADS * OPERATIONS
    assert counts.served == counts.freed
    assert counts.freed_of_others > 100  # at least those that the first thread left
    allocator = program.on().allocator
    allocator.check()
    stats = allocator.stats()
    assert (stats.allocations, stats.frees) == (counts.served, counts.freed)
    assert (stats.failures, stats.requested, stats.allocated) == (counts.refused, 0, 0)
    program.trim()
