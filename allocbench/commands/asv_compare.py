# SPDX-License-Identifier: Apache-2.0
"""allocbench asv-compare: compare the benchmark results of two commits."""

from __future__ import annotations

from typing import Annotated

import typer

from allocbench.commands.options import markdown_option
from allocbench.output.files import STDOUT, check_outputs, write_text

EXAMPLES = (
    "allocbench asv-compare main HEAD",
    "allocbench asv-compare HEAD~1 HEAD --bench Memory --markdown summary.md",
    "allocbench asv-compare v0.1 main --results benchmarks/results/asv",
)
EXIT_CODES = {"same": 0, "changed": 1, "nothing ran": 3, "failed": 4}


def run(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A commit, as for git.")],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="A commit, as for git.")],
    bench: Annotated[
        str, typer.Option(metavar="REGEX", help="Run the benchmarks that match, as in `asv run`.")
    ] = "Fast|Instructions",
    results: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Run nothing; compare the results in this folder of asv.",
        ),
    ] = None,
    markdown: Annotated[str, markdown_option("the summary")] = STDOUT,
) -> None:
    """Run benchmarks on two commits and compare them.

    Bytes, ratios and counts on the simulated device must be equal, and instructions per event must
    not grow by more than 2 % where perf or valgrind can count them. A change is accepted when a
    commit message from BASE to HEAD states it in a trailer, `Metric-change: METRIC [ALLOCATOR
    [WORKLOAD]]`, where * and ? are wildcards. Times are shown with their spread and never cause a
    failure.

    Exit codes: 0 same, 1 changed, 2 wrong usage, 3 nothing ran, 4 failed.
    """
    from allocbench.asv import runs  # imported late: --help stays fast
    from allocbench.reports.rows import asv, gate

    check_outputs(markdown)
    commits = runs.commit(base), runs.commit(head)
    statements = runs.statements(*commits)
    measured = runs.measure(commits, bench) if results is None else asv.cells(results)
    before, after = ([cell for cell in measured if cell.commit == commit] for commit in commits)
    comparison = gate.compare(before, after, statements)
    text = gate.markdown(comparison, base, head)
    write_text(text, markdown)
    raise typer.Exit(EXIT_CODES[comparison.outcome])
