# SPDX-License-Identifier: Apache-2.0
"""Task: a program of the catalogue at full size on one contestant."""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch

from allocbench.gpu import contestants, driving, dry, task
from allocbench.workloads import catalog

_DRY_STEPS = 4


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Times of the steps, what was computed, and what the allocator did."""
    who = contestants.find(arguments.contestant)
    program = driving.program_of(arguments.workload)
    steps = min(arguments.steps or 0, _DRY_STEPS) if arguments.dry else arguments.steps
    config = driving.configuration(program, tiny=arguments.dry, steps=steps or None)
    if arguments.dry:
        return dry.run(who, program, config, poison=arguments.poison)
    memory = driving.begin(who, limit=arguments.limit, poison=arguments.poison)
    free_at_start = torch.cuda.mem_get_info()[0]
    lowest = [free_at_start]

    def reserved() -> int:
        lowest[0] = min(lowest[0], torch.cuda.mem_get_info()[0])
        return torch.cuda.memory_reserved()

    runs: list[dict[str, list[Any]]] = []
    kept: list[float | None] = []
    for _ in range(arguments.repeats):
        torch.manual_seed(program.seed)
        steps = driving.Steps("cuda", reserved)
        with driving.outcomes() as found:
            program.run(config, "cuda", steps.mark)
        runs.append({"seconds": steps.seconds(), "reserved": steps.samples})
        kept = driving.told(found)
    return {
        **summary(runs, driving.tokens(config)),
        "outcomes": kept,
        "row": memory.uses()[0].row() if memory else driving.torch_row(),
        "gpu_used_at_steps": free_at_start - lowest[0],
        "gpu_peak_used": memory.uses()[0].gpu_peak_used if memory else None,
    }


def summary(runs: list[dict[str, list[Any]]], tokens: list[int] | None) -> dict[str, Any]:
    """The runs, the first of several being a warm-up, and numbers over the steps of the others."""
    measured = runs[1:] or runs
    seconds = [step for run in measured for step in run["seconds"]]
    return {
        "runs": runs,
        "step_seconds_median": statistics.median(seconds) if seconds else None,
        "step_seconds_quartiles": statistics.quantiles(seconds, n=4) if len(seconds) > 1 else None,
        "run_seconds": [sum(run["seconds"]) for run in measured],
        "tokens_per_second": sum(tokens) * len(measured) / sum(seconds)
        if tokens and seconds
        else None,
    }


def main() -> None:
    """The command line."""
    parser = task.parser(__doc__)
    parser.add_argument("--workload", choices=catalog.names(), required=True)
    parser.add_argument("--contestant", required=True)
    parser.add_argument("--steps", type=int, help="so many, of varying lengths")
    parser.add_argument("--repeats", type=int, default=2, help="runs; the first warms up")
    parser.add_argument("--limit", help="bytes of the GPU that may be reserved")
    parser.add_argument("--poison", action="store_true", help="fill freed memory with NaNs")
    task.finish(parser.parse_args(), measure)


if __name__ == "__main__":
    main()
