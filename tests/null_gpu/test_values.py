# SPDX-License-Identifier: Apache-2.0
"""The native library: values that the host copied, and who may have changed them."""

from __future__ import annotations

from tests.null_gpu.core import seen


def test_values_are_known_until_a_kernel_runs() -> None:
    found = seen(
        """
reads = []
bits = 0
@ctypes.CFUNCTYPE(c_uint64, c_uint64)
def on_read(size):
    return reads.append(size) or bits
gpu.null_on_read(on_read)
_, a = malloc(1 << 20)
_, b = malloc(1 << 20)
def write(to, data):
    gpu.null_cudaMemcpy(to, c_char_p(data), c_size_t(len(data)), 1)
def read(at, size):
    out = ctypes.create_string_buffer(b"x" * size, size)
    gpu.null_cudaMemcpy(out, at, c_size_t(size), 2)
    return out.raw.decode("latin-1")
write(a, b"abcdefgh")
write(c_void_p(a.value + 2), b"XY")
seen["written"] = read(a, 8)
gpu.null_cudaMemcpy(b, c_void_p(a.value + 1), c_size_t(5), 3)
seen["copied"] = read(b, 5)
gpu.null_cudaMemset(c_void_p(a.value + 4), ord("z"), c_size_t(100))
seen["filled"] = read(a, 12)
seen["reads"] = list(reads)
seen["beyond"] = read(b, 6)
gpu.null_work()
seen["after a kernel"] = read(a, 2)
write(a, bytes(65 << 10))
read(a, 65 << 10)
seen["unknown"] = list(reads)
bits = 0x6867666564636261
seen["chosen"] = [read(a, size) for size in (1, 2, 3, 8)]
"""
    )
    assert found["written"] == "abXYefgh"
    assert found["copied"] == "bXYef"
    assert found["filled"] == "abXYzzzzzzzz"
    assert found["reads"] == []
    assert found["beyond"] == "bXYef\0"
    assert found["after a kernel"] == "\0\0"
    assert found["unknown"] == [6, 2, 65 << 10]
    assert found["chosen"] == ["a", "ab", "\0\0\0", "abcdefgh"]


def test_kernels_of_other_libraries_and_graphs_are_hidden_writes() -> None:
    found = seen(
        """
writes = c_uint64.in_dll(gpu, "null_hidden_writes")
gpu.null___cudaRegisterFatBinary.restype = c_void_p
handle = c_void_p(gpu.null___cudaRegisterFatBinary(ctypes.pythonapi.Py_IncRef))
class Dim3(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in "xyz"]
def launch(function):
    gpu.null_cudaLaunchKernel(c_void_p(function), Dim3(1, 1, 1), Dim3(1, 1, 1), None, c_size_t(0),
                              None)
    return writes.value
gpu.null___cudaRegisterFunction(handle, c_void_p(8))
seen["other"] = launch(8)
seen["own"] = launch(16)
gpu.null_cudaGraphLaunch(None, None)
seen["graph"] = writes.value
"""
    )
    assert found == {"other": 1, "own": 1, "graph": 2}
