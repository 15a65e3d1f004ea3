# SPDX-License-Identifier: Apache-2.0
"""Compare predicted peaks with published measurements.

    python -m benchmarks.workshop.truth [--rows FILE.csv] [--json FILE]
        [--device OPTIONS] [--jobs N]

Each row's training program runs on the null GPU as the row's card; no GPU is needed. Predictions
are kept in `build/truth/cache` until the programs or the null GPU change.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.workshop.truth import environment, report, rows
from benchmarks.workshop.truth.predict import fingerprint, predict
from benchmarks.workshop.truth.rows import TruthError

ROWS = Path(__file__).parents[4] / "shared" / "data" / "xmem" / "xmem.csv"
WRONG = 2


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workshop.truth")
    parser.add_argument("--rows", type=Path, default=ROWS, help="a CSV file of measurements")
    parser.add_argument("--json", type=Path, help="write the rows and the errors; - is the output")
    parser.add_argument("--device", default="", help="options of the null GPU: context=400MiB")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    return parser.parse_args(given)


def outcomes(table: Sequence[rows.Row], device: str, jobs: int) -> list[report.Outcome]:
    """Predict each row, several at a time; earlier predictions come from the cache."""
    from joblib import Memory, Parallel, delayed

    missing = _missing_environments({row.run.torch or environment.USUAL for row in table})
    stored = Memory(environment.FOLDER / "cache", verbose=0).cache(predict)
    mark = fingerprint()

    def outcome(row: rows.Row) -> report.Outcome:
        try:
            if why_not := missing.get(row.run.torch or environment.USUAL):
                raise TruthError(why_not)
            return report.Outcome(row, stored(row.run, device, mark))
        except TruthError as error:
            return report.Outcome(row, None, str(error))

    found: list[report.Outcome] = Parallel(n_jobs=jobs, backend="threading")(
        delayed(outcome)(row) for row in table
    )
    return found


def _missing_environments(versions: Iterable[str]) -> dict[str, str]:
    """Create the environments before several runs need them; the versions without one, and why."""
    missing = {}
    for version in sorted(versions):
        try:
            environment.python(version)
        except TruthError as error:
            missing[version] = str(error)
    return missing


def main(given: Sequence[str] | None = None) -> int:
    """Print the tables, and write the JSON file; the exit code."""
    told = arguments(given)
    if told.rows == ROWS and not ROWS.exists():
        print(
            f"error: {ROWS} is not there: name a table with --rows FILE.csv (make truth "
            "ROWS=FILE.csv); docs/truth.md describes its columns",
            file=sys.stderr,
        )
        return WRONG
    try:
        found = outcomes(rows.read(told.rows), told.device, max(1, told.jobs))
    except TruthError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG
    to_output = str(told.json) == "-"
    if not to_output:
        print("\n".join(report.lines(found)))
    if told.json:
        text = json.dumps(report.as_json(found), indent=1) + "\n"
        try:
            print(text, end="") if to_output else told.json.write_text(text, encoding="utf-8")
        except OSError as error:
            print(f"error: {told.json}: {error.strerror}", file=sys.stderr)
            return WRONG
    if all(outcome.said is None for outcome in found):
        print(f"error: no row could be predicted: {found[0].why_not}", file=sys.stderr)
        return WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main())
