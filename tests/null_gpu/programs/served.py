"""Prints what a server prints; its engine is another process, which it kills when it ends.

The argument is how that process starts, spawn or fork. With "alarm", both processes reach their
time limit instead of being ready.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time

PRINTED = """\
INFO Initializing a V1 LLM engine (v0.11.2) with config: model='llama-3-8b', max_seq_len=8192, \
tensor_parallel_size=1, enforce_eager=True, kv_cache_dtype=auto
INFO Model loading took 14.9596 GiB and 1.2 seconds
INFO Available KV cache memory: 51.48 GiB
INFO GPU KV cache size: 421,696 tokens"""


def engine(ready: multiprocessing.Queue[bool]) -> None:
    import torch

    cache = torch.empty(3 << 28, dtype=torch.uint8, device="cuda")
    ready.put(True)
    while True:
        time.sleep(0.1)
    del cache


if __name__ == "__main__":
    import torch

    context = multiprocessing.get_context(sys.argv[1])
    ready = context.Queue()
    process = context.Process(target=engine, args=(ready,))
    process.start()
    ready.get()
    torch.zeros(4, device="cuda")
    print(PRINTED, flush=True)
    try:
        if "alarm" in sys.argv:
            os.kill(process.pid or 0, signal.SIGALRM)
            os.kill(os.getpid(), signal.SIGALRM)
        else:
            print("INFO:     Application startup complete.", flush=True)
        while True:
            time.sleep(0.1)
    finally:
        process.kill()
