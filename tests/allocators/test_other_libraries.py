# SPDX-License-Identifier: Apache-2.0
"""CuPy, RMM and Numba on an allocator: stand-ins for them make the same calls, on the null GPU."""

from pathlib import Path

from tests.null_driver import CAPACITY, python, reported
from tests.stand_in import MODULES


def run(tmp_path: Path, code: str) -> str:
    """The output of a program, which must free everything."""
    report = tmp_path / "report"
    done = python(code, PYTHONPATH=MODULES, settings={"report": report})
    assert (done.returncode, done.stderr) == (0, "")
    assert set(reported(report).values()) == {0}
    return done.stdout


def test_cupy_uses_an_allocator(tmp_path: Path) -> None:
    output_text = run(
        tmp_path,
        """
import pickle
import cupy
from allocbench import allocators
import allocbench.allocators.cupy
program = allocbench.allocators.cupy.use("record:of=caching")
memory = program.on()
first = cupy.cuda.alloc(5 << 20)
address = first.ptr
cupy.stream.ptr = 0x77
del first  # freed while another stream is current, but a block of the first
assert cupy.cuda.alloc(5 << 20).ptr != address
cupy.stream.ptr = 0
assert cupy.cuda.alloc(5 << 20).ptr == address
assert cupy.cuda.alloc(0).ptr == 0
try:
    cupy.cuda.alloc(1 << 40)
except cupy.cuda.memory.OutOfMemoryError as error:
    print(error)
    assert isinstance(error, allocators.OutOfMemory)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
print(program.recording().stream.tolist())
cupy.current = 1
elsewhere = cupy.cuda.alloc(100)
assert [use.ordinal for use in program.uses()] == [0, 1]
""",
    )
    *failure, streams = output_text.splitlines()
    assert failure[0].startswith("caching: out of memory: asked for 1.00 TiB")
    assert streams == "[0, 0, 1, 1, 0, 0]"


def test_cupy_uses_an_allocator_in_a_block_of_code(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
import cupy
import allocbench.allocators.cupy
outer = allocbench.allocators.cupy.use("naive")
with allocbench.allocators.cupy.using("bfc", poison=True) as inner:
    lives_on = cupy.cuda.alloc(1000)
    goes = cupy.cuda.alloc(1 << 20)
    del goes
    assert inner.uses()[0].stats.allocations == 2
after = cupy.cuda.alloc(1000)
assert outer.uses()[0].stats.allocations == 1
assert inner.uses()[0].stats.requested == 1000
address = inner.address
del inner
import gc; gc.collect()
del lives_on  # the program is still there for it
with allocbench.allocators.cupy.using("buddy", limit="64MiB") as third:
    cupy.cuda.alloc(1000)
assert third.on().device.reserved == 0
""",
    )


def test_rmm_uses_an_allocator(tmp_path: Path) -> None:
    output_text = run(
        tmp_path,
        """
import rmm
from allocbench import allocators
import allocbench.allocators.rmm
program = allocbench.allocators.rmm.use("caching")
one, other = rmm.Stream(0), rmm.Stream(0x77)
resource = rmm.resources[0]
address = resource.allocate(5 << 20, one)
resource.deallocate(address, 5 << 20, other)
assert program.on().stats().deferred == 1
assert resource.allocate(5 << 20, one) == address
try:
    resource.allocate(1 << 40, one)
except MemoryError as error:
    print(error)
rmm.current_device = 1
elsewhere = allocbench.allocators.rmm.use("naive")
assert set(rmm.resources) == {0, 1}
rmm.resources[1].allocate(1000, one)
assert [use.ordinal for use in elsewhere.uses()] == [1]
assert [use.ordinal for use in program.uses()] == [0]
del rmm.Stream.__cuda_stream__
try:
    allocbench.allocators.rmm.use("caching")
except allocators.SpecError as error:
    print(error)
""",
    )
    first, *_, last = output_text.splitlines()
    assert first.startswith("caching: out of memory: asked for 1.00 TiB")
    assert last == "RMM 25.12.00 is too old: handles of streams require 25.12 or later"


def test_numba_uses_an_allocator(tmp_path: Path) -> None:
    output_text = run(
        tmp_path,
        """
import numba
import allocbench.allocators.numba
program = allocbench.allocators.numba.use("tlsf")
pointer = numba.manager.memalloc(5 << 20)
assert pointer.device_pointer_value  # Numba calls int() on what it was given
assert program.uses()[0].stats.requested == 5 << 20
print(*numba.manager.get_memory_info())
del pointer
assert program.uses()[0].stats.requested == 0
numba.config.CUDA_PER_THREAD_DEFAULT_STREAM = True
pointer = numba.manager.memalloc(1000)
assert len(program.on().allocator.snapshot()) == 2  # an instance for each stream
try:
    numba.manager.get_ipc_handle(None)
except NotImplementedError as error:
    print(error)
""",
    )
    info, refusal = output_text.splitlines()
    free, total = (int(word) for word in info.split())
    assert 0 < free < total == CAPACITY
    assert "cannot be shared" in refusal
