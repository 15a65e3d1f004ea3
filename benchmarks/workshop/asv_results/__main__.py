# SPDX-License-Identifier: Apache-2.0
"""Results of asv: compare those of two commits, describe this machine, remove its paths.

    python -m benchmarks.workshop.asv_results compare main HEAD
    python -m benchmarks.workshop.asv_results machine --machine gpu-h200
    python -m benchmarks.workshop.asv_results scrub benchmarks/results/asv

`compare` runs benchmarks on two commits. Bytes, ratios and counts on the simulated device must be
equal, and instructions per event must not grow by more than 2 % where perf or valgrind can count
them. A change is accepted when a commit message from BASE to HEAD states it in a trailer,
`Metric-change: METRIC [ALLOCATOR [WORKLOAD]]`, where * and ? are wildcards. Times are shown with
their spread and never cause a failure. Exit codes: 0 same, 1 changed, 2 wrong usage, 3 nothing ran,
4 failed.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from allocbench.errors import USER_ERRORS
from allocbench.output.files import STDOUT, check_outputs, write_text
from allocbench.reports.rows import asv
from benchmarks.workshop.asv_results import files, gate, runs

EXIT_CODES = {"same": 0, "changed": 1, "nothing ran": 3, "failed": 4}
_WRONG = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.workshop.asv_results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    compare = commands.add_parser("compare", help="compare the results of two commits")
    compare.add_argument("base", help="a commit, as for git")
    compare.add_argument("head", help="a commit, as for git")
    compare.add_argument("--bench", default="Fast|Instructions", help="as in `asv run`")
    compare.add_argument("--results", help="run nothing; compare the results in this folder")
    compare.add_argument("--markdown", default=STDOUT, help="write the summary to this file")
    compare.set_defaults(run=_compare)
    machine = commands.add_parser("machine", help="record GPU, driver, CUDA and torch for asv")
    machine.add_argument("--machine", default=files.host(), help="its name in results")
    machine.add_argument("--file", default=files.MACHINES, help="the file of asv")
    machine.set_defaults(run=_machine)
    scrub = commands.add_parser("scrub", help="remove interpreter paths before a commit")
    scrub.add_argument("results", type=Path, help="the results folder of asv")
    scrub.set_defaults(run=_scrub)
    parsed = parser.parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except USER_ERRORS as error:
        print(f"error: {error}", file=sys.stderr)
        return _WRONG


def _compare(parsed: argparse.Namespace) -> int:
    check_outputs(parsed.markdown)
    commits = runs.commit(parsed.base), runs.commit(parsed.head)
    statements = runs.statements(*commits)
    measured = asv.cells(parsed.results) if parsed.results else runs.measure(commits, parsed.bench)
    before, after = ([cell for cell in measured if cell.commit == commit] for commit in commits)
    comparison = gate.compare(before, after, statements)
    write_text(gate.markdown(comparison, parsed.base, parsed.head), parsed.markdown)
    return EXIT_CODES[comparison.outcome]


def _machine(parsed: argparse.Namespace) -> int:
    record = files.update_machine(Path(parsed.file).expanduser(), parsed.machine)
    print(", ".join(f"{key} {value}" for key, value in record.items()))
    return 0


def _scrub(parsed: argparse.Namespace) -> int:
    changed = files.scrub(parsed.results)
    print(f"{len(changed)} of {files.count(parsed.results)} files changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
