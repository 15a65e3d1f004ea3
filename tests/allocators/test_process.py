# SPDX-License-Identifier: Apache-2.0
"""Allocators in a forked child, at the end of a process with live blocks, and in broken replays."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from allocbench import allocators
from tests import null_driver, random_events
from tests.conftest import MIB

FORKED = """
import os, sys
from allocbench import allocators

def use(allocator):
    for size in (100, 5 << 20, 700):
        allocator.deallocate(allocator.allocate(size))
    allocator.trim()
    allocator.check()

for name in sys.argv[1:]:
    allocator = allocators.make("check:of=" + name, allocators.SimulatedDevice("64MiB"))
    for _ in range(100):  # the lock is owned by this thread
        use(allocator)
    kept = allocator.allocate(3000)
    if os.fork() == 0:
        use(allocator)
        allocator.deallocate(kept)
        allocator.trim()
        os._exit(int(allocator.device.reserved != 0))
    use(allocator)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, name
    assert allocator.stats().requested == 3000, name
    print(name)
"""

BUSY = """
import os, sys, threading, time
from allocbench import allocators

name, forks = sys.argv[1], int(sys.argv[2])
allocator = allocators.make("check:of=" + name, allocators.SimulatedDevice("64MiB"))
ended = threading.Event()

def work():
    while not ended.is_set():
        for size in (100, 5 << 20, 700):
            allocator.deallocate(allocator.allocate(size))

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(forks):
    if (child := os.fork()) == 0:
        allocator.deallocate(allocator.allocate(1000))
        allocator.check()
        os._exit(0)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.001)
ended.set()
for thread in threads:
    thread.join()
assert allocator.stats().requested == 0
"""

LIVE = """
import sys
from allocbench import allocators
from allocbench.allocators.programs import Program

kept = []
for name in sys.argv[1:]:
    if allocators.info(name).name != "cuda_async":
        kept.append(allocators.make(name, allocators.SimulatedDevice("64MiB")))
        kept[-1].allocate(1000), kept[-1].allocate(3 << 20, stream=1)
    kept.append(Program(name))
    kept[-1].on().allocate(1000)
    print(name)
"""


def test_a_forked_child_has_a_copy_of_its_own() -> None:
    line = [sys.executable, "-c", FORKED, *allocators.names()]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.split() == allocators.names()


@pytest.mark.parametrize("name", ["caching", "per_stream:of=bfc"])
def test_a_child_that_is_forked_while_threads_allocate_has_a_whole_copy(name: str) -> None:
    line = [sys.executable, "-c", BUSY, name, "150"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_process_may_end_with_live_blocks() -> None:
    names = [info.name for info in allocators.strategies()]
    done = null_driver.python(LIVE, *names)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.split() == names


def test_an_exception_in_a_replay_frees_its_blocks(name: str) -> None:
    trace = random_events.events(20_000)
    allocator = allocators.make(f"check:of={name}", allocators.SimulatedDevice("1TiB"))

    def broken(placements: dict[str, np.ndarray]) -> None:
        raise KeyError("of the receiver")

    with pytest.raises(KeyError, match="of the receiver"):
        allocators.replay(trace, allocator, placements=broken)
    assert allocator.stats().requested == 0
    assert allocators.leaks(allocator) == []
    allocator.check()
    assert allocators.replay(trace, allocator).stats.failures == 0
    allocator.deallocate(allocator.allocate(MIB))
    allocator.trim()
    assert allocator.device.reserved == 0
