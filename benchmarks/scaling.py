# SPDX-License-Identifier: Apache-2.0
"""Host seconds per event as a workload grows in one dimension."""

from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from benchmarks import common
from benchmarks.packages import allocators, catalog


class _Growing(common.Suite):
    """One workload whose option `grows` takes the values of `params`."""

    grows: ClassVar[str]

    def cell(self, allocator: str, n: int) -> common.Cell:
        workload = self.grows.format(n)
        return common.replay(allocator, workload, "--time", "3", "--no-min-capacity")


@common.tracks(seconds_per_event_steady="seconds", peak_reserved="bytes")
class Events(_Growing):
    """More events of the same program."""

    params: common.Params = (common.ALLOCATORS, (1_000, 10_000, 100_000))
    param_names = ("allocator", "allocs")
    grows = "random:max_live=1GiB,max_size=4MiB,allocs={}"

    def setup_cache(self) -> object:
        return self.cells()


@common.tracks(seconds_per_event_steady="seconds", peak_reserved="bytes")
class LiveBlocks(_Growing):
    """More blocks alive at the same time."""

    params: common.Params = (common.ALLOCATORS, (100, 1_000, 10_000))
    param_names = ("allocator", "live_blocks")
    grows = "ramp:size=4KiB,order=shuffled,blocks={}"

    def setup_cache(self) -> object:
        return self.cells()


@common.tracks(seconds_per_event_steady="seconds", peak_reserved="bytes")
class Streams(_Growing):
    """The same blocks over more streams."""

    params: common.Params = (common.ALLOCATORS, (1, 4, 16))
    param_names = ("allocator", "streams")
    grows = "ping-pong:size=1MiB,streams={}"

    def setup_cache(self) -> object:
        return self.cells()


class Threads:
    """Threads that replay a workload concurrently through one allocator and its lock."""

    params: common.Params = (common.ALLOCATORS, (1, 2, 4))
    param_names = ("allocator", "threads")

    def setup(self, allocator: str, threads: int) -> None:
        with common.not_there():
            self.trace = catalog.load("ramp:size=4KiB,blocks=1000")
            device = allocators.make_device(common.DEVICE)
            self.allocator = allocators.make(allocator, device)
        allocators.time_pass(self.trace, self.allocator)

    def track_seconds_per_event(self, allocator: str, threads: int) -> float:
        """Mean over the threads of the seconds per event, including waiting."""
        with ThreadPoolExecutor(threads) as pool:
            passes = pool.map(
                lambda _: allocators.time_pass(self.trace, self.allocator), range(threads)
            )
            return sum(passes) / threads

    track_seconds_per_event.unit = "seconds"  # type: ignore[attr-defined]
    track_seconds_per_event.version = "1"  # type: ignore[attr-defined]
