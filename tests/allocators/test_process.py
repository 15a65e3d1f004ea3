# SPDX-License-Identifier: Apache-2.0
"""Allocators in a forked child, at the end of a process with live blocks, and in broken replays."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from allocbench import allocators
from tests import null_driver, random_events
from tests.allocators.test_cuda_device import SPECS
from tests.conftest import GIB, MIB

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

cuda, kept = allocators.CudaDevice(), []
for name in sys.argv[1:]:
    if name != "cuda_async":
        kept.append(allocators.make(name, allocators.SimulatedDevice("64MiB")))
        kept[-1].allocate(1000), kept[-1].allocate(3 << 20, stream=1)
    kept.append(allocators.make(name, cuda))
    kept[-1].allocate(5 << 20)
    kept.append(Program(name))
    memory = kept[-1].on()
    waits, freed, _ = (memory.allocate(5 << 20, stream) for stream in (0, 7, 7))
    memory.use_on(waits, 7)
    memory.deallocate(waits)
    memory.deallocate(freed)
    print(name)
"""

REFUSED = """
import os, sys
from allocbench import allocators
from allocbench.allocators.programs import Program

of_program = sys.argv[1] == "program"
memory = (
    Program("naive").on() if of_program else allocators.make(sys.argv[1], allocators.CudaDevice())
)
address = memory.allocate(5 << 20)
child = os.fork()
if child == 0:
    try:
        memory.allocate(500 << 20)
    except (allocators.DeviceError, MemoryError) as error:
        print(*str(error).split(), flush=True)
    memory.deallocate(address)
    sys.exit(0)
status = os.waitpid(child, 0)[1]
memory.deallocate(address)
memory.trim()
print(status, memory.device.reserved, memory.stats().failures)
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


def test_a_process_that_ends_with_live_blocks_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "report"
    done = null_driver.python(LIVE, *SPECS, settings={"report": path, "memory": 64 * GIB})
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.split() == SPECS
    assert set(null_driver.reported(path).values()) == {0}


@pytest.mark.parametrize(
    "of", ["naive", "caching:expandable_segments=true", "cuda_async", "program"]
)
def test_a_forked_child_cannot_use_a_gpu_and_frees_nothing(tmp_path: Path, of: str) -> None:
    path = tmp_path / "report"
    done = null_driver.python(REFUSED, of, settings={"report": path})
    assert done.stderr == ""
    shown, parent = done.stdout.splitlines()
    assert "cannot be used in the forked child" in shown
    assert "start processes with spawn" in shown
    assert parent == "0 0 0"
    assert set(null_driver.reported(path).values()) == {0}


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
