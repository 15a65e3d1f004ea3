# SPDX-License-Identifier: Apache-2.0
"""Task: a round of runs that were predicted before they are measured.

The measurements lie in a folder next to the JSON file; a run that has one is not repeated. A dry
run only says what would run.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.workshop.gpu import task
from benchmarks.workshop.gpu.sharing import BLIND
from benchmarks.workshop.measured import measure as measuring
from benchmarks.workshop.measured.__main__ import PREDICTIONS, RESULTS
from benchmarks.workshop.measured.plan import ROUNDS, runs

MOST_JOBS = 14


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """How many runs there are, were predicted, and have a measurement."""
    stored, table = RESULTS[arguments.round] / PREDICTIONS, ROUNDS[arguments.round]
    predicted = json.loads(stored.read_text(encoding="utf-8"))["runs"]
    chosen = [run for run in runs(table) if arguments.only in run.name]
    todo = measuring.jobs(chosen, predicted)
    found: dict[str, Any] = {"jobs": [job.name for job in todo]}
    found["not_predicted"] = [run.name for run in chosen if run.name not in predicted]
    if arguments.dry:
        return found
    into: Path = arguments.output.with_suffix("")
    left = measuring.measure(
        todo,
        into,
        most_jobs=MOST_JOBS,
        memory=BLIND << 30,
        budget=arguments.seconds,
        python=sys.executable,
        variables={},
        table=table,
    )
    if left:
        raise SystemExit(f"{left} of {len(todo)} runs are left: run it again")
    return found


def main() -> None:
    """The command line."""
    parser = task.new_parser(__doc__)
    parser.add_argument("--round", choices=ROUNDS, required=True)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--seconds", type=float, default=400, help="for all runs")
    task.finish(parser.parse_args(), measure)


if __name__ == "__main__":
    main()
