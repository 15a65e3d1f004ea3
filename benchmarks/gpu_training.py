# SPDX-License-Identifier: Apache-2.0
"""Training workloads on a GPU: measured bytes and seconds; n/a without a GPU."""

from benchmarks import common, gpu


@common.tracks(**gpu.COLUMNS)
class Training(common.Suite):
    """Replays each pair in its own process, and thus CUDA context."""

    params: common.Params = (gpu.ALLOCATORS, ("gpt2-train", "llama3-8b-lora"))
    param_names = ("allocator", "workload")

    def cell(self, allocator: str, workload: str) -> common.Cell:
        return gpu.cell(allocator, workload)

    def setup_cache(self) -> object:
        return self.cells()
