# SPDX-License-Identifier: Apache-2.0
"""The C functions that PyTorch calls, through their addresses, on the null GPU's driver."""

import ctypes
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from allocbench import allocators
from allocbench.allocators import _core
from allocbench.allocators.programs import Program
from tests import null_driver
from tests.conftest import MIB, START
from tests.null_driver import CAPACITY, Driver

SIDE, OTHER = 0x1000, 0x2000

TORCH_ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
TORCH_FREE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p
)


@pytest.fixture
def torch_calls(start: START) -> Iterator[Callable[[str], tuple[Program, object, object]]]:
    def serve(spec: str) -> tuple[Program, object, object]:
        program = start(spec)
        _core.serve_torch(program._core)
        alloc = TORCH_ALLOC(_core.entry_point("allocbench_torch_alloc"))
        return program, alloc, TORCH_FREE(_core.entry_point("allocbench_torch_free"))

    yield serve
    _core.serve_torch(None)


@pytest.mark.parametrize("spec", ["bfc", "caching", "check:of=per_stream:of=tlsf", "cuda_async"])
def test_threads_share_the_entry_points(
    torch_calls: Callable[[str], tuple[Program, Callable[..., int], Callable[..., None]]],
    driver: Driver,
    spec: str,
) -> None:
    program, alloc, free = torch_calls(spec)

    def work(seed: int) -> list[tuple[int, int]]:
        rng = random.Random(seed)
        mine: list[tuple[int, int]] = []
        for _ in range(200):
            size, stream = rng.choice([1, 300, 5000, 100_000]), rng.choice([0, SIDE, OTHER])
            mine.append((alloc(size, 0, stream), size))
            if rng.random() < 0.3:
                program.on().use_on(mine[-1][0], rng.choice([SIDE, OTHER]))
            if rng.random() < 0.5:
                address, size = mine.pop(rng.randrange(len(mine)))
                free(address, size, 0, stream)
        return mine

    with ThreadPoolExecutor(4) as pool:
        live = sorted(block for mine in pool.map(work, range(4)) for block in mine)
    for (address, size), (following, _) in pairwise(live):
        assert address + size <= following
    program.on().allocator.check()
    for address, size in live:
        free(address, size, 0, 0)
    program.trim()
    assert program.on().allocator.stats().requested == 0


def test_each_gpu_has_its_own_memory(
    torch_calls: Callable[[str], tuple[Program, Callable[..., int], Callable[..., None]]],
    driver: Driver,
) -> None:
    program, alloc, free = torch_calls("naive")
    assert alloc(0, 0, 0) is None
    first, second = alloc(600 * MIB, 0, 0), alloc(600 * MIB, 1, 0)
    assert first != second
    assert [use.ordinal for use in program.uses()] == [0, 1]
    free(second, 600 * MIB, 1, 0)
    assert [use.reserved for use in program.uses()] == [600 * MIB, 0]


def test_an_invalid_free_prints_a_line_on_standard_error(
    torch_calls: Callable[[str], tuple[Program, Callable[..., int], Callable[..., None]]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    _, _, free = torch_calls("naive")
    free(0x1234, 1, 0, 0)
    assert capfd.readouterr().err == (
        "allocbench: free of 0x1234 on cuda:0, which is not an allocated block\n"
    )


def test_a_caller_that_is_not_pytorch_gets_an_error_and_no_exception(start: START) -> None:
    """An exception through its frames would end the process, so this is a process of its own."""
    done = null_driver.python(
        """
import ctypes
from allocbench.allocators import _core
from allocbench.allocators.programs import Program

alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(
    _core.entry_point("allocbench_torch_alloc"))
fraction = ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_int)(
    _core.entry_point("allocbench_torch_memory_fraction"))
print(alloc(1000, 0, None), _core.last_failure())
program = Program("naive")
_core.serve_torch(program._core)
print(alloc(1 << 50, 0, None), _core.last_failure().split(";")[0])
print(alloc(1000, 99, None), _core.last_failure())
for share in (float("nan"), -0.5, 1.5):
    fraction(share, 0)
    print(_core.last_failure())
fraction(0.5, 99)
assert program.on().device.capacity == program.on().device.total
assert alloc(1000, 0, None)
"""
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "None no allocator has been selected",
        "None CUDA out of memory. naive: out of memory: asked for 1024.00 TiB "
        "(1125899906842624 bytes)",
        "None there is no CUDA device 99",
        "a memory fraction of nan must be from 0 to 1",
        "a memory fraction of -0.500000 must be from 0 to 1",
        "a memory fraction of 1.500000 must be from 0 to 1",
    ]
    assert len(done.stderr.splitlines()) >= len(done.stdout.splitlines())


def served(start: START, spec: str, **options: object) -> Program:
    program = start(spec, **options)
    _core.serve_torch(program._core)
    return program


@pytest.fixture
def set_fraction() -> Iterator[Callable[[float, int], None]]:
    signature = ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_int)
    yield signature(_core.entry_point("allocbench_torch_memory_fraction"))
    _core.serve_torch(None)


def test_a_fraction_of_the_gpu_is_a_limit_and_lifts_none(
    start: START, set_fraction: Callable[[float, int], None]
) -> None:
    program = served(start, "naive", limit=256 * MIB)
    for fraction, expected in ((0.9, 256 * MIB), (0.125, CAPACITY // 8), (1.0, 256 * MIB)):
        set_fraction(fraction, 0)
        assert program.on().device.capacity == expected
        with pytest.raises(allocators.OutOfMemory):
            program.on().allocate(expected + 1)


def test_the_segment_of_an_address_is_found(start: START) -> None:
    program = served(start, "caching")
    signature = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t))
    base = signature(_core.entry_point("allocbench_torch_base"))
    first, second = program.on().allocate(1000), program.on().allocate(1000)
    size = ctypes.c_size_t()
    assert base(second, ctypes.byref(size)) == first
    assert size.value == 2 * MIB
    _core.serve_torch(None)
