# SPDX-License-Identifier: Apache-2.0
"""The native library: values that the host copied, and who may have changed them."""

from tests.null_gpu.core import seen


def test_values_are_known_until_a_kernel_runs() -> None:
    found = seen(
        """
reads = []
answer = b""
@ctypes.CFUNCTYPE(None, c_void_p, c_uint64)
def on_read(to, size):
    reads.append(size)
    ctypes.memmove(to, answer, min(len(answer), size))
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
answer = b"abcdefgh"
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
    assert found["chosen"] == ["a", "ab", "abc", "abcdefgh"]


def test_kernels_of_other_libraries_and_graphs_may_change_what_is_followed() -> None:
    found = seen(
        """
gpu.null___cudaRegisterFatBinary.restype = c_void_p
handle = c_void_p(gpu.null___cudaRegisterFatBinary(ctypes.pythonapi.Py_IncRef))
class Dim3(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in "xyz"]
def launch(function):
    gpu.null_cudaLaunchKernel(c_void_p(function), Dim3(1, 1, 1), Dim3(1, 1, 1), None, c_size_t(0),
                              None)
_, a = malloc(1 << 20)
_, b = malloc(1 << 20)
out = ctypes.create_string_buffer(4)
def known(after):
    for place in (a, b):
        gpu.null_follow(place, b"1234", c_uint64(4))
    after()
    return [gpu.null_known(place, out, c_uint64(4)) for place in (a, b)]
def triton(place):
    gpu.null_cuPointerGetAttribute(out, 3, place)
    gpu.null_cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, None)
gpu.null___cudaRegisterFunction(handle, c_void_p(8))
seen["own"] = known(lambda: launch(16))
seen["other"] = known(lambda: launch(8))
seen["graph"] = known(lambda: gpu.null_cudaGraphLaunch(None, None))
seen["of the driver"] = known(lambda: gpu.null_cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, None))
out = ctypes.create_string_buffer(8)
seen["of an address"] = known(lambda: triton(a))
seen["copied over"] = known(lambda: gpu.null_cudaMemset(b, 0, c_size_t(2)))
"""
    )
    assert found == {
        "own": [1, 1],
        "other": [0, 0],
        "graph": [0, 0],
        "of the driver": [0, 0],
        "of an address": [0, 1],
        "copied over": [1, 1],
    }
