# SPDX-License-Identifier: Apache-2.0
"""Task: run a CuPy program with arrays of many sizes on CuPy's own pools or on a strategy."""

import argparse
import random
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.workshop.gpu import contestants, task

STEPS, ARRAYS = 60, 200


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each step, the computed value, and the GPU memory in use at the end."""
    memory = None if arguments.dry else _choose(arguments.contestant)
    xp: Any = import_module("numpy" if arguments.dry else "cupy")
    synchronize = bool if arguments.dry else xp.cuda.Device().synchronize
    free_at_start = 0 if arguments.dry else xp.cuda.runtime.memGetInfo()[0]
    seconds, total = [], 0.0
    for step in range(2 if arguments.dry else STEPS):
        begun = time.perf_counter()
        total += float(_step(xp, step, 10 if arguments.dry else ARRAYS))
        synchronize()
        seconds.append(time.perf_counter() - begun)
    used = None if arguments.dry else free_at_start - xp.cuda.runtime.memGetInfo()[0]
    return {
        "step_seconds": seconds,
        "result": total,
        "gpu_used_at_end": used,
        "row": memory.uses()[0].row() if memory else None,
    }


def _choose(name: str) -> Any:
    """Make CuPy use the contestant; returns the program's memory unless it is CuPy's own pool."""
    cupy: Any = import_module("cupy")
    from allocbench.allocators import cupy as adapter

    own: dict[str, Callable[[], Any]] = {
        "cupy-pool": lambda: cupy.cuda.MemoryPool().malloc,
        "cupy-async-pool": lambda: cupy.cuda.MemoryAsyncPool().malloc,
        "cupy-none": lambda: None,
    }
    if name in own:
        cupy.cuda.set_allocator(own[name]())
        return None
    return adapter.use(contestants.find(name).spec or name)


def _step(xp: Any, seed: int, arrays: int) -> Any:
    """Create and drop arrays of 1e3 to 2e7 elements, each computed from others."""
    draw = random.Random(seed)
    live = [xp.ones(1000, dtype=xp.float32)]
    total = xp.zeros((), dtype=xp.float64)
    for _ in range(arrays):
        size = int(10 ** draw.uniform(3, 7.3))
        array = xp.arange(size, dtype=xp.float32) * 1e-6 + live[draw.randrange(len(live))][0]
        total = total + xp.sqrt(array).sum(dtype=xp.float64)
        live.append(array)
        while len(live) > 12:
            live.pop(draw.randrange(len(live)))
    return total


def main() -> None:
    """The command line."""
    parser = task.new_parser(__doc__)
    parser.add_argument("--contestant", required=True)
    task.finish(parser.parse_args(), measure)


if __name__ == "__main__":
    main()
