# SPDX-License-Identifier: Apache-2.0
"""Task: find the largest batch of GPT-2 that trains within a memory limit."""

import argparse
import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.workshop.gpu import contestants, driving, task

MOST = 4096


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """The largest batch that trains, every batch that was tried, and the result row."""
    who = contestants.find(arguments.contestant)
    program = driving.program_of("gpt2-train")
    config = program.tiny if arguments.dry else program.full
    lengths = tuple(sorted(config.lengths)[-3:])
    if arguments.dry:
        return hunt(lambda batch: batch <= 5)
    memory = driving.begin(who, limit=arguments.limit)

    def trains(batch: int) -> bool:
        torch.manual_seed(program.seed)
        batched = dataclasses.replace(config, batch=batch, lengths=lengths)
        try:
            program.run(batched, "cuda", lambda label: None)
        except torch.OutOfMemoryError:
            return False
        finally:
            gc.collect()
            torch.cuda.empty_cache()
        return True

    result = hunt(trains)
    return result | {"row": memory.uses()[0].row() if memory else driving.torch_row()}


def hunt(trains: Callable[[int], bool]) -> dict[str, Any]:
    """The largest batch that trains, by doubling and bisection, and the outcome of each trial."""
    tried: dict[int, bool] = {}

    def try_(batch: int) -> bool:
        if batch not in tried:
            tried[batch] = trains(batch)
        return tried[batch]

    low, high = 0, 1
    while high <= MOST and try_(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if try_(middle) else (low, middle)
    return {"largest_batch": low, "tried": tried}


def main() -> None:
    """The command line."""
    parser = task.new_parser(__doc__)
    parser.add_argument("--contestant", required=True)
    parser.add_argument("--limit", required=True, help="largest number of reserved bytes")
    task.finish(parser.parse_args(), measure)


if __name__ == "__main__":
    main()
