"""RMM's own memory resources get their memory from an allocator.

RMM asks the CUDA runtime, which is linked into it, for the current GPU. The runtime does not start
on the null GPU's driver, so the driver is asked instead.
"""

import ctypes
import json
import threading

import null_driver
import rmm
from cuda.bindings import runtime
from rmm.pylibrmm.stream import DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream

import allocbench.allocators.rmm

seen = {"runtime": null_driver.outcome(rmm._cuda.gpu.getDevice)}
current = 0
runtime.cudaGetDevice = lambda: (runtime.cudaError_t.cudaSuccess, current)
program = allocbench.allocators.rmm.use("caching")
resource = rmm.mr.get_per_device_resource(0)
seen["resource"] = type(resource).__name__
block = resource.allocate(5 << 20, DEFAULT_STREAM)
seen["requested"] = program.uses()[0].stats.requested


class Other:
    """A stream of another library."""

    def __init__(self):
        core, context, self.handle = null_driver.core, ctypes.c_void_p(), ctypes.c_void_p()
        assert core.null_cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert core.null_cuCtxPushCurrent_v2(context) == 0
        assert core.null_cuStreamCreate(ctypes.byref(self.handle), 0) == 0

    def __cuda_stream__(self):
        return 0, self.handle.value


other = Stream(Other())
resource.deallocate(block, 5 << 20, other)
seen["deferred"] = program.on().stats().deferred
seen["reused"] = resource.allocate(5 << 20, DEFAULT_STREAM) == block
seen["beyond"] = null_driver.outcome(lambda: resource.allocate(1 << 45, DEFAULT_STREAM))
addresses = []


def in_a_thread():
    """A block of this thread's default stream; freed before the next thread requests one."""
    made = resource.allocate(3 << 20, PER_THREAD_DEFAULT_STREAM)
    resource.deallocate(made, 3 << 20, PER_THREAD_DEFAULT_STREAM)
    addresses.append(made)


for _ in range(2):
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
seen["threads apart"] = addresses[0] != addresses[1]
current = 1
elsewhere = allocbench.allocators.rmm.use("naive")
address = rmm.mr.get_per_device_resource(1).allocate(1000, DEFAULT_STREAM)
seen["gpus"] = [[use.ordinal for use in each.uses()] for each in (program, elsewhere)]
rmm.mr.get_per_device_resource(1).deallocate(address, 1000, DEFAULT_STREAM)
buffer = rmm.DeviceBuffer(size=1000)
seen["buffer"] = elsewhere.uses()[0].stats.requested
del buffer
elsewhere.trim()  # a default stream may be that of either GPU, so the free waits for both
seen["after"] = elsewhere.uses()[0].stats.requested
print(json.dumps(seen))
