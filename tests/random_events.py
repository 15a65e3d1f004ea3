# SPDX-License-Identifier: Apache-2.0
"""Random events that need ever more of a device, from a small part of it to more than it has."""

import math
import random

import numpy as np

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, Trace

CAPACITY = 384 << 20
LOADS = (0.2, 0.5, 0.8, 1.0, 1.5)
"""Of each fifth of the events: the mean live bytes, as parts of CAPACITY."""
LARGEST = 8 << 20


def events(count: int, seed: int = 8) -> Trace:
    """Blocks of 1 B to 8 MiB, log-uniform, one in eight on a second stream; frees are uniform."""
    drawn = random.Random(seed).random
    top = math.log(LARGEST)
    op, stream = np.zeros(count, np.uint8), np.zeros(count, np.uint16)
    block, size = np.zeros(count, np.uint32), np.zeros(count, np.uint64)
    live: list[tuple[int, int, int]] = []
    held = blocks = 0
    for index in range(count):
        most = 2 * CAPACITY * LOADS[index * len(LOADS) // count]
        if not live or drawn() > held / most:
            made = blocks, int(math.exp(top * drawn())), int(drawn() < 0.125)
            op[index], (block[index], size[index], stream[index]) = ALLOC, made
            live.append(made)
            held += made[1]
            blocks += 1
        else:
            victim = int(drawn() * len(live))
            live[victim], live[-1] = live[-1], live[victim]
            gone, freed, stream[index] = live.pop()
            op[index], block[index] = FREE, gone
            held -= freed
    trace = Trace(op, block, size, stream)
    trace.validate()
    return trace


def device_for(trace: Trace, *, reuses: bool) -> allocators.SimulatedDevice:
    """A device of CAPACITY bytes; for a strategy that reuses nothing, one that holds all blocks."""
    if reuses:
        return allocators.SimulatedDevice(CAPACITY)
    return allocators.SimulatedDevice(2 * int(trace.size.sum(dtype=np.uint64)))
