"""CuPy's own memory code gets its memory from an allocator.

CuPy's modules call a module, `runtime`, into which the CUDA runtime is linked. It does not start on
the null GPU's driver. Before the other modules import its functions, those that memory needs are
replaced by functions of the null GPU.
"""

import ctypes
import json
import pickle
import sys
import threading

import null_driver
from cupy_backends.cuda.api import runtime

core = null_driver.core
HANDLE, SIZE = ctypes.c_ssize_t, ctypes.c_size_t
OBJECT, INT = ctypes.py_object, ctypes.c_int
kept = []


def replace(name, result, *parameters):
    """Replace a function that other modules of CuPy import from `runtime`."""

    def put(function):
        new = ctypes.PYFUNCTYPE(result, *parameters)(function)
        capsules = ctypes.pythonapi
        capsules.PyCapsule_GetName.restype = ctypes.c_char_p
        capsules.PyCapsule_GetName.argtypes = [OBJECT]
        capsules.PyCapsule_New.restype = OBJECT
        capsules.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        name_of = capsules.PyCapsule_GetName(runtime.__pyx_capi__[name])
        text = ctypes.create_string_buffer(name_of)
        kept.extend((new, text))
        address = ctypes.cast(new, ctypes.c_void_p)
        runtime.__pyx_capi__[name] = capsules.PyCapsule_New(address, text, None)
        return function

    return put


@replace("getDevice", INT, INT)
def get_device(_):
    device = INT()
    core.null_cudaGetDevice(ctypes.byref(device))
    return device.value


@replace("getDeviceCount", INT, INT)
def get_device_count(_):
    count = INT()
    core.null_cudaGetDeviceCount(ctypes.byref(count))
    return count.value


@replace("setDevice", OBJECT, INT, INT)
def set_device(device, _):
    core.null_cudaSetDevice(device)


@replace("_ensure_context", OBJECT)
def ensure_context():
    core.null_cudaSetDevice(get_device(0))


@replace("streamCreateWithPriority", HANDLE, ctypes.c_uint, INT, INT)
def stream_create(flags, priority, _):
    handle = ctypes.c_void_p()
    core.null_cudaStreamCreateWithFlags(ctypes.byref(handle), flags)
    return handle.value


@replace("streamDestroy", OBJECT, HANDLE, INT)
def stream_destroy(handle, _):
    core.null_cudaStreamDestroy(ctypes.c_void_p(handle))


@replace("streamSynchronize", OBJECT, HANDLE, INT)
def stream_synchronize(handle, _):
    core.null_cudaStreamSynchronize(ctypes.c_void_p(handle))


seen = {"runtime": null_driver.outcome(runtime.getDeviceCount)}
runtime.getDevice = lambda: get_device(0)

import cupy  # noqa: E402

from allocbench import allocators  # noqa: E402
from allocbench.allocators import cupy as adapter  # noqa: E402

program = adapter.use("caching")
first = cupy.cuda.alloc(5 << 20)
seen["owner"] = type(first.mem).__name__
seen["requested"] = program.uses()[0].stats.requested
address = first.ptr
with cupy.cuda.Stream(non_blocking=True):
    del first
    seen["apart"] = cupy.cuda.alloc(5 << 20).ptr != address
seen["reused"] = cupy.cuda.alloc(5 << 20).ptr == address
seen["array"] = cupy.empty((1000, 1000), cupy.float32).nbytes
try:
    cupy.cuda.alloc(1 << 45)
except cupy.cuda.memory.OutOfMemoryError as error:
    seen["beyond"] = type(error).__name__
    seen["ours"] = isinstance(error, allocators.OutOfMemory)
    seen["pickled"] = str(pickle.loads(pickle.dumps(error))) == str(error)
    seen["text"] = str(error)[:40]
addresses = []


def in_a_thread():
    """A block of this thread's default stream; freed before the next thread requests one."""
    with cupy.cuda.Stream.ptds:
        made = cupy.cuda.alloc(3 << 20)
        addresses.append(made.ptr)
        del made


for _ in range(2):
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
seen["threads apart"] = addresses[0] != addresses[1]
with cupy.cuda.Device(1):
    elsewhere = cupy.cuda.alloc(1000)
seen["gpus"] = [use.ordinal for use in program.uses()]
with adapter.using("bfc") as inner:
    inside = cupy.cuda.alloc(1000)
seen["using"] = inner.uses()[0].stats.requested
print(json.dumps(seen))
sys.stdout.flush()
