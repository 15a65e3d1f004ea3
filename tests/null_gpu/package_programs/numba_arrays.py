"""Numba's own driver code gets its memory from an allocator."""

import json
import threading

import null_driver
import numpy as np
from numba import config, cuda

import allocbench.allocators.numba

program = allocbench.allocators.numba.use("caching")
numbers = np.arange(1 << 20, dtype=np.float32)
array = cuda.to_device(numbers)
seen = {"requested": program.uses()[0].stats.requested}
seen["copied"] = bool((cuda.to_device(numbers[:1000]).copy_to_host() == numbers[:1000]).all())
address = array.gpu_data.device_pointer_value
del array
again = cuda.device_array(1 << 20, dtype=np.float32)
seen["reused"] = again.gpu_data.device_pointer_value == address
seen["beyond"] = null_driver.outcome(lambda: cuda.device_array(1 << 45, dtype=np.uint8))
free, total = cuda.current_context().get_memory_info()
seen["free"], seen["total"] = free < total, total
seen["shared"] = null_driver.outcome(lambda: again.get_ipc_handle())
with cuda.gpus[1]:
    elsewhere = cuda.to_device(numbers)
seen["gpus"] = [use.ordinal for use in program.uses()]
config.CUDA_PER_THREAD_DEFAULT_STREAM = True
addresses = []


def in_a_thread():
    """A block of this thread's default stream; freed before the next thread requests one."""
    made = cuda.device_array(3 << 20, dtype=np.uint8)
    addresses.append(made.gpu_data.device_pointer_value)


for _ in range(2):
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
seen["threads apart"] = addresses[0] != addresses[1]
print(json.dumps(seen))
