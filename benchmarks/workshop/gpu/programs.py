# SPDX-License-Identifier: Apache-2.0
"""The captured programs that run on a real GPU."""

from allocbench.workloads import catalog
from allocbench.workloads.catalog import Workload

MAIN = ("gpt2-train", "llama3-8b-lora", "llm-decode")
"""Workloads that every stage uses: training and inference with varying lengths."""


def captured(*, main: bool = True) -> list[str]:
    """The workloads of the catalog that are programs: the main ones, or the others."""
    programs = [name for name in catalog.names() if isinstance(catalog.info(name), Workload)]
    return [name for name in programs if (name in MAIN) == main]
