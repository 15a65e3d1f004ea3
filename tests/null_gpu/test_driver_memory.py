# SPDX-License-Identifier: Apache-2.0
"""The native library's driver: virtual memory, and calls that fail on purpose."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from allocbench.allocators import SpecError
from allocbench.null_gpu.device import FAILING, read
from tests.null_gpu import PROGRAMS, ROOT, asked, python
from tests.null_gpu.core import seen

MIB = 1 << 20
SOURCES = ROOT / "null_gpu" / "native"

BEFORE = """
U = c_ulonglong
context()
class Access(ctypes.Structure):
    _fields_ = [("type", c_int), ("device", c_int), ("flags", c_int)]
def call(name, *arguments):
    return getattr(gpu, "null_" + name)(*arguments)
def size(mib):
    return c_size_t(mib << 20)
def reserve(mib):
    address = U()
    return call("cuMemAddressReserve", byref(address), size(mib), size(0), U(0), U(0)), address
def create(mib):
    piece = U()
    return call("cuMemCreate", byref(piece), size(mib), None, U(0)), piece
def map(address, at, mib, piece):
    return call("cuMemMap", U(address.value + (at << 20)), size(mib), size(0), piece, U(0))
def unmap(address, at, mib):
    return call("cuMemUnmap", U(address.value + (at << 20)), size(mib))
def allow(address, at, mib):
    return call("cuMemSetAccess", U(address.value + (at << 20)), size(mib), byref(Access(1, 0, 3)),
                c_size_t(1))
def used():
    counters = (c_uint64 * 6)()
    gpu.null_counters(counters)
    return counters[1] >> 20
"""


def driven(program: str, **settings: int | str) -> Any:
    """What a program stores in `seen` with these functions at hand."""
    return seen(BEFORE + program, **settings)


def test_memory_is_mapped_as_the_driver_documents_it() -> None:
    found = driven(
        """
_, address = reserve(16)
(_, two), (_, four), (_, gone) = create(2), create(4), create(2)
call("cuMemRelease", gone)
seen["created"] = [create(3)[0], used()]
seen["mapped"] = [map(address, 0, 2, two), map(address, 2, 4, four)]
seen["not mapped"] = {
    "another size": map(address, 8, 4, two),
    "beyond the reservation": map(address, 15, 2, two),
    "not reserved": map(U(address.value - (8 << 20)), 0, 2, two),
    "over another": map(address, 4, 4, four),
    "released": map(address, 8, 2, gone),
}
seen["access"] = [allow(address, 0, 6), allow(address, 0, 3), allow(address, 2, 6)]
seen["released"] = [call("cuMemRelease", two), call("cuMemRelease", two), used()]
seen["reserved"] = call("cuMemAddressFree", address, size(16))
seen["half of a mapping"] = [unmap(address, 2, 2), unmap(address, 4, 2), unmap(address, 1, 1)]
seen["unmapped"] = [unmap(address, 0, 6), unmap(address, 0, 6), used()]
seen["last handle"] = [call("cuMemRelease", four), used()]
seen["freed"] = [call("cuMemAddressFree", address, size(8)),
                 call("cuMemAddressFree", address, size(16)),
                 call("cuMemAddressFree", address, size(16))]
""",
        context=0,
    )
    assert found == {
        "created": [1, 6],  # MiB in use
        "mapped": [0, 0],
        "not mapped": dict.fromkeys(found["not mapped"], 1) | {"another size": 801},
        "access": [0, 1, 1],
        "released": [0, 1, 6],  # a mapping keeps the memory
        "reserved": 1,
        "half of a mapping": [1, 1, 1],
        "unmapped": [0, 1, 4],
        "last handle": [0, 0],
        "freed": [1, 0, 1],
    }


def test_a_handle_of_mapped_memory_keeps_it() -> None:
    found = driven(
        """
(_, address), (_, piece), again = reserve(2), create(2), U()
map(address, 0, 2, piece)
inside = c_void_p(address.value + 5)
seen["retained"] = call("cuMemRetainAllocationHandle", byref(again), inside)
seen["same"] = again.value == piece.value
beyond = c_void_p(address.value + (2 << 20))
seen["beyond"] = call("cuMemRetainAllocationHandle", byref(again), beyond)
call("cuMemRelease", piece)
unmap(address, 0, 2)
seen["kept"] = used()
seen["last"] = [call("cuMemRelease", piece), used()]
""",
        context=0,
    )
    assert found == {"retained": 0, "same": True, "beyond": 1, "kept": 2, "last": [0, 0]}


def test_every_function_that_can_fail_does_and_is_counted() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES.glob("*.cpp"))
    named = re.findall(r'entered\w*\("(\w+)"\)', text)
    named += re.findall(r"NULL_GPU_(?:PAIR\(\s*\w+,|RETURNS\(|CHECKED\()\s*(\w+),\s*entered", text)
    assert sorted(named) == sorted(FAILING)
    found = seen(
        f"""
gpu.null_calls.restype = c_uint64
for name in {FAILING}:
    seen[name] = [getattr(gpu, "null_" + name)(), gpu.null_calls(name.encode())]
""",
        fail=",".join(f"{name}:1:700" for name in FAILING),
    )
    assert found == {name: [700, 1] for name in FAILING}


def test_calls_fail_by_number_and_only_those_of_the_runtime_stay_as_the_last_error() -> None:
    found = seen(
        """
def alloc(name):
    return getattr(gpu, "null_" + name)(byref(c_void_p()), c_size_t(1))
def last():
    return gpu.null_cudaGetLastError()
seen["runtime"] = [(alloc("cudaMalloc"), last()) for _ in range(4)]
seen["driver"] = [(alloc("cuMemAlloc_v2"), last()) for _ in range(3)]
gpu.null_fail(b"cudaMalloc:2")
seen["from now on"] = [alloc("cudaMalloc") for _ in range(3)]
gpu.null_fail(b"cudaMalloc:0:1")
seen["each"] = [alloc("cudaMalloc") for _ in range(3)]
gpu.null_fail(b"")
seen["none"] = [alloc("cudaMalloc") for _ in range(3)]
""",
        fail="cudaMalloc:2,cudaMalloc:3:700,cuMemAlloc_v2:1:4",
    )
    assert found == {
        "runtime": [[0, 0], [2, 2], [700, 700], [0, 0]],
        "driver": [[4, 0], [0, 0], [0, 0]],
        "from now on": [0, 2, 0],
        "each": [1, 1, 1],
        "none": [0, 0, 0],
    }


def test_a_program_meets_a_call_that_fails(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for fail in ("cudaMalloc:3", "cudaMalloc:3,cudaMalloc:4"):
        line = ("run", "--device", f"null:h100,fail={fail}", "--json", str(tmp_path / "row.json"))
        program = (python(), str(PROGRAMS / "training.py"))
        done = asked(*line, "--", *program, code=len(rows))  # the second one fails
        rows += json.loads((tmp_path / "row.json").read_text())
    assert "OutOfMemoryError: CUDA out of memory" in done.stderr
    # PyTorch frees its cached memory and asks once more.
    assert [(row["retries"], row["failures"]) for row in rows] == [(1, 0), (1, 1)]
    assert rows[1]["device"] == "null:h100-sxm-80gb,fail=cudaMalloc:3,cudaMalloc:4"


@pytest.mark.parametrize(
    ("fail", "complaint"),
    [
        ("cudaMaloc:1", "fail=cudaMaloc:1: cudaMaloc cannot be made to fail; these can"),
        ("cudaMalloc", "fail=cudaMalloc: write FUNCTION:NUMBER or FUNCTION:NUMBER:ERROR"),
        ("cudaMalloc:x", "fail=cudaMalloc:x: write FUNCTION:NUMBER"),
        ("cudaMalloc:1:0", "fail=cudaMalloc:1:0: 0 is not an error of CUDA"),
    ],
)
def test_what_cannot_fail_is_an_error(fail: str, complaint: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(f"null:h100,fail={fail}")
    assert str(caught.value).startswith(complaint)


def test_managed_memory_is_the_hosts() -> None:
    found = driven(
        """
pointer, kind, free = c_void_p(), c_int(), c_size_t()
def managed():
    outs = [call("cuPointerGetAttribute", byref(kind), 8, pointer), kind.value]
    runtime = (c_int * 6)()
    call("cudaPointerGetAttributes", runtime, pointer)
    return [*outs, runtime[0]]
before = used()
for name in ("cudaMallocManaged", "cuMemAllocManaged"):
    steps = [call(name, byref(pointer), size(4096), 1), used() - before, managed()]
    ctypes.memset(pointer.value + (4095 << 20), 7, 1)
    steps.append(call("cudaMemPrefetchAsync", pointer, size(4096), 0, None))
    steps.append(call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(5), c_size_t(3)))
    steps.append(list(ctypes.string_at(pointer, 4)))
    free = "cudaFree" if name.startswith("cuda") else "cuMemFree_v2"
    seen[name] = [*steps, call(free, pointer), call(free, pointer)]
seen["nothing"] = call("cudaMallocManaged", byref(pointer), size(0), 1)
"""
    )
    # Four times the memory of the card takes none of it, and the host can read and write it.
    expected = [0, 0, [0, 1, 3], 0, 0, [5, 5, 5, 0], 0, 1]
    assert found == {"cudaMallocManaged": expected, "cuMemAllocManaged": expected, "nothing": 1}
