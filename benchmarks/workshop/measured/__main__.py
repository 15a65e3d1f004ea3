# SPDX-License-Identifier: Apache-2.0
"""Predict peaks with `fit`, measure them on a GPU, and compare.

    python -m benchmarks.workshop.measured predict --python PATH [--only WORD]
        [--formulas 0,spatial] [--after]
    python -m benchmarks.workshop.measured run --into FOLDER [--jobs N] [--budget SECONDS]
        [--null null:h100]
    python -m benchmarks.workshop.measured compare --into FOLDER

`--round second` is about the runs of `second.txt`; their results are in benchmarks/results/second.
`predict` needs no GPU. `run` needs one, and the Python that runs it must have what the programs
import; with `--null` it rehearses on a null GPU. Predictions are in the folder of `--results`.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allocbench.allocators import SpecError
from allocbench.allocators.devices import parse_bytes
from allocbench.null_gpu import device, launch
from allocbench.null_gpu.torch_build import NullGpuError
from benchmarks.workshop.gpu.provenance import NULL, ROOT
from benchmarks.workshop.measured import measure, predict, report
from benchmarks.workshop.measured.plan import CONVOLUTIONS, EARLIER, ROUNDS, runs

RESULTS = {
    name: ROOT / "benchmarks" / "results" / folder
    for name, folder in (("first", "h100"), ("second", "second"), ("third", "third"))
}
"""The folder of each round."""
PREDICTIONS = "predictions.json"
AFTER = "predictions-after.json"
"""Predictions that were made when the measurements were known."""
WRONG = 2


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.workshop.measured",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("predict", "run", "compare"))
    parser.add_argument("--round", choices=ROUNDS, default="first", help="which runs")
    parser.add_argument("--results", type=Path, help="folder of the predictions")
    parser.add_argument("--into", type=Path, help="folder of the measurements")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--python", default=sys.executable, help="the Python of the programs")
    parser.add_argument("--card", default="null:h100", help="predict: the null GPU")
    parser.add_argument(
        "--formulas",
        default=",".join(name for name in CONVOLUTIONS if name != EARLIER),
        help="predict: workspaces of convolutions",
    )
    parser.add_argument(
        "--after", action="store_true", help=f"predict: measurements are known; write {AFTER}"
    )
    parser.add_argument("--jobs", type=int, default=14, help="run: processes at a time")
    parser.add_argument("--memory", default="70GiB", help="run: bytes of the card to use")
    parser.add_argument("--budget", type=float, default=300, help="run: seconds")
    parser.add_argument("--null", metavar="DEVICE", help="run: rehearse on a null GPU")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """The exit code: 2 for a wrong command line, 3 if the time was too short for all runs."""
    told = arguments(given)
    table = ROUNDS[told.round]
    told.results = told.results or RESULTS[told.round]
    told.into = told.into or told.results
    chosen = [run for run in runs(table) if told.only in run.name]
    try:
        if told.what == "predict":
            formulas = told.formulas.split(",")
            todo = [(run, name) for name in formulas for run in chosen if name in run.formulas]
            todo += [(run, run.formula) for run in chosen if run.formula not in ("", *formulas)]
            into = told.results / (AFTER if told.after else PREDICTIONS)
            predict.predict_all(todo, into, told.card, told.python, after=told.after, table=table)
            return 0
        predictions = _read(told.results / PREDICTIONS)
        if told.what == "run":
            return _run(told, measure.jobs(chosen, predictions["runs"]), table)
        later = _read(told.results / AFTER) if (told.results / AFTER).exists() else None
        provenance, rows = report.read(told.into / measure.RESULTS)
    except (SpecError, NullGpuError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return WRONG
    every = [predictions] if later is None else [predictions, later]
    if any(said["fingerprint"] != provenance["fingerprint"] for said in every):
        print("error: the programs of the predictions and measurements differ", file=sys.stderr)
        return WRONG
    found = [report.by_formula(chosen, said, rows) for said in every]
    print("\n".join(report.lines(*found)))
    return 0


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _run(told: argparse.Namespace, todo: list[measure.Job], table: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="allocbench-null-") as folder:
        variables = {}
        if told.null:
            spec = device.read(told.null)
            variables = launch.environment(spec, folder) | {NULL: told.null}
        left = measure.measure(
            todo,
            told.into,
            most_jobs=told.jobs,
            memory=parse_bytes(told.memory),
            budget=told.budget,
            python=told.python,
            variables=variables,
            table=table,
        )
    return 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
