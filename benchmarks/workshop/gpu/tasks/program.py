# SPDX-License-Identifier: Apache-2.0
"""Task: run a program of the catalog at full size on one contestant."""

import argparse
from typing import Any

import torch

from allocbench.workloads import catalog
from benchmarks.workshop.gpu import contestants, driving, dry, task

_DRY_STEPS = 4


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Step times, computed values, and statistics of the allocator."""
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
    outcomes: list[float | None] = []
    for _ in range(arguments.repeats):
        torch.manual_seed(program.seed)
        steps = driving.Steps("cuda", reserved)
        with driving.outcomes() as collected:
            program.run(config, "cuda", steps.mark)
        runs.append({"seconds": steps.seconds(), "reserved": steps.samples})
        outcomes = driving.finite(collected)
    return {
        **driving.step_times(runs, driving.tokens(config)),
        "outcomes": outcomes,
        "row": memory.uses()[0].row() if memory else driving.torch_row(),
        "gpu_used_at_steps": free_at_start - lowest[0],
        "gpu_peak_used": memory.uses()[0].gpu_peak_used if memory else None,
    }


def main() -> None:
    """The command line."""
    parser = task.new_parser(__doc__)
    parser.add_argument("--workload", choices=catalog.names(), required=True)
    parser.add_argument("--contestant", required=True)
    parser.add_argument("--steps", type=int, help="number of steps, of random lengths")
    parser.add_argument("--repeats", type=int, default=2, help="runs; the first is a warm-up")
    parser.add_argument("--limit", help="largest number of reserved bytes")
    parser.add_argument("--poison", action="store_true", help="fill freed memory with NaNs")
    task.finish(parser.parse_args(), measure)


if __name__ == "__main__":
    main()
