# SPDX-License-Identifier: Apache-2.0
"""Bytes, fragmentation and device calls on the simulated device: the same on every machine."""

from benchmarks import common

_QUICK = ("--time", "0", "--no-min-capacity")
_METRICS = {
    "peak_reserved": "bytes",
    "overhead": "ratio",
    "internal_fragmentation": "ratio",
    "external_fragmentation": "ratio",
    "device_calls": "count",
    "failures": "count",
}


@common.tracks(**_METRICS)
class FastMemory(common.Suite):
    """The workloads of the fast set."""

    params: common.Params = (common.ALLOCATORS, common.FAST_WORKLOADS)
    param_names = ("allocator", "workload")
    parallel = True

    def cell(self, allocator: str, workload: str) -> common.Cell:
        return common.replay(allocator, workload, *_QUICK)

    def setup_cache(self) -> object:
        return self.cells()


@common.tracks(**_METRICS)
class Memory(FastMemory):
    """The other workloads."""

    params: common.Params = (common.ALLOCATORS, common.WORKLOADS)

    def setup_cache(self) -> object:
        return self.cells()


@common.tracks(min_capacity="bytes")
class Capacity(common.Suite):
    """The smallest device on which each workload completes, found by many replays."""

    params: common.Params = (common.ALLOCATORS, common.FAST_WORKLOADS + common.WORKLOADS)
    param_names = ("allocator", "workload")
    parallel = True

    def cell(self, allocator: str, workload: str) -> common.Cell:
        return common.replay(allocator, workload, "--time", "0")

    def setup_cache(self) -> object:
        return self.cells()
