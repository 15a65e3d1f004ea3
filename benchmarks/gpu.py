# SPDX-License-Identifier: Apache-2.0
"""Shared by the GPU suites: the columns that are measured on a real device."""

from benchmarks import common

DEVICE = "cuda"
COLUMNS = {
    "peak_reserved": "bytes",
    "device_seconds": "seconds",
    "seconds_per_event_cold": "seconds",
    "seconds_per_event_steady": "seconds",
}
ALLOCATORS = (*common.ALLOCATORS, "cuda_async")


def cell(allocator: str, workload: str) -> common.Cell:
    """A replay on a GPU's memory; the reason if there is no GPU."""
    options = ("--time", "3", "--no-min-capacity")
    return common.replay(allocator, workload, *options, device=DEVICE)
