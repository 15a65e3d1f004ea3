# SPDX-License-Identifier: Apache-2.0
"""The native library: handles, and objects of the program that graphs keep."""

from __future__ import annotations

from tests.null_gpu.core import seen


def test_handles_of_every_device_are_aligned_like_pointers() -> None:
    found = seen(
        """
streams = []
for device in range(3):
    gpu.null_cudaSetDevice(device)
    stream = c_void_p()
    gpu.null_cudaStreamCreateWithFlags(byref(stream), 1)
    streams.append((stream.value, gpu.null_cudaStreamQuery(stream)))
seen["streams"] = streams
""",
        count=3,
    )
    assert [(stream % 16, status) for stream, status in found["streams"]] == [(0, 0)] * 3


def test_an_object_lives_as_long_as_a_graph_that_keeps_it() -> None:
    found = seen(
        """
gone = []
destroy = ctypes.CFUNCTYPE(None, c_void_p)(gone.append)
def made(value, references=1):
    thing = c_void_p()
    assert gpu.null_cudaUserObjectCreate(byref(thing), c_void_p(value), destroy, references, 1) == 0
    return thing
graph, executable = c_void_p(), c_void_p()
gpu.null_cudaGraphCreate(byref(graph), 0)
moved, shared = made(7), made(8)
assert gpu.null_cudaGraphRetainUserObject(graph, moved, 1, 1) == 0
assert gpu.null_cudaGraphRetainUserObject(graph, shared, 1, 0) == 0
gpu.null_cudaGraphInstantiate(byref(executable), graph, c_ulonglong(0))
gpu.null_cudaGraphDestroy(graph)
seen["graph destroyed"] = list(gone)
gpu.null_cudaGraphExecDestroy(executable)
seen["executable destroyed"] = list(gone)
assert gpu.null_cudaUserObjectRelease(shared, 1) == 0
seen["released"] = list(gone)
seen["twice"] = gpu.null_cudaUserObjectRelease(shared, 1)
"""
    )
    assert found == {
        "graph destroyed": [],
        "executable destroyed": [7],
        "released": [7, 8],
        "twice": 1,
    }
