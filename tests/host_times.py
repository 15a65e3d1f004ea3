# SPDX-License-Identifier: Apache-2.0
"""Made-up host times, so that no test depends on the machine or on its load.

Passes and calls run as usual, but the reported seconds depend only on the name of the allocator and
on its history. The functions are patched for the whole test run.
"""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from allocbench.allocators import Allocator, _core

REAL: dict[str, Callable[..., Any]] = {"time_pass": _core.time_pass, "time_each": _core.time_each}
TIMER = 20e-9
Seconds: TypeAlias = NDArray[np.float32]


def _seed(allocator: Allocator) -> int:
    return zlib.crc32(f"{allocator.info.name} {allocator.stats().allocations}".encode())


def time_pass(trace: Any, allocator: Allocator) -> float:
    """Between 20 and 100 ns per event, 0 without events."""
    seconds = 20e-9 + 80e-9 * _seed(allocator) / 2**32
    return seconds if REAL["time_pass"](trace, allocator) else 0.0


def time_each(trace: Any, allocator: Allocator, seen: Callable[[Seconds, Seconds], None]) -> float:
    """About 50 ns for each call, a hundred times as long for one in a thousand."""
    random = np.random.default_rng(_seed(allocator))

    def told(*calls: Seconds) -> None:
        made = [random.lognormal(np.log(50e-9), 0.4, len(call)) for call in calls]
        for seconds in made:
            seconds[random.random(len(seconds)) < 1e-3] *= 100
        seen(made[0].astype(np.float32), made[1].astype(np.float32))

    REAL["time_each"](trace, allocator, told)
    return TIMER


@contextmanager
def made_up() -> Iterator[None]:
    """Report made-up seconds until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_core, "time_pass", time_pass)
        patch.setattr(_core, "time_each", time_each)
        yield


@contextmanager
def real() -> Iterator[None]:
    """Report measured seconds until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        for name, function in REAL.items():
            patch.setattr(_core, name, function)
        yield
