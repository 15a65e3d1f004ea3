# SPDX-License-Identifier: Apache-2.0
"""The end of a process that uses a CUDA device, and its forked child; on the null GPU's driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.allocators.test_cuda_device import SPECS
from tests.conftest import GIB
from tests.null_driver import python, reported

LEAVES = """
import sys
from allocbench import allocators
device = allocators.CudaDevice()
kept = [allocators.make(spec, device) for spec in sys.argv[1:]]
for allocator in kept:
    allocator.allocate(5 << 20)
"""


def test_an_exiting_process_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "report"
    done = python(LEAVES, *SPECS, settings={"report": path, "memory": 16 * GIB})
    assert (done.returncode, done.stderr) == (0, "")
    assert set(reported(path).values()) == {0}


FORKS = """
import os, sys
from allocbench import allocators
device = allocators.CudaDevice()
allocator = allocators.make(sys.argv[1], device)
address = allocator.allocate(5 << 20)
child = os.fork()
if child == 0:
    try:
        allocator.allocate(500 << 20)
    except allocators.DeviceError as error:
        print(error, flush=True)
    except allocators.OutOfMemory as error:
        print("out of memory", flush=True)
    allocator.deallocate(address)
    sys.exit(0)
status = os.waitpid(child, 0)[1]
allocator.deallocate(address)
allocator.trim()
print(status, device.reserved, allocator.stats().failures)
"""


@pytest.mark.parametrize("spec", ["naive", "caching:expandable_segments=true", "cuda_async"])
def test_a_forked_child_is_refused_and_frees_nothing(tmp_path: Path, spec: str) -> None:
    path = tmp_path / "report"
    done = python(FORKS, spec, settings={"report": path})
    assert done.stderr == ""
    shown, parent = done.stdout.splitlines()
    assert "cannot be used in the forked child" in shown
    assert "start processes with spawn" in shown
    assert parent == "0 0 0"
    assert set(reported(path).values()) == {0}
