# SPDX-License-Identifier: Apache-2.0
"""allocbench asv-compare: whether a commit changed what benchmarks count."""

from __future__ import annotations

from typing import Annotated

import typer

from allocbench import asv_runs
from allocbench.outputs import STDOUT, check_outputs, open_output
from allocbench.reports import asv_cells, gate

EXAMPLES = (
    "allocbench asv-compare main HEAD",
    "allocbench asv-compare HEAD~1 HEAD --bench Memory --markdown summary.md",
    "allocbench asv-compare v0.1 main --results benchmarks/results/asv",
)
EXIT_CODES = {"same": 0, "changed": 1, "nothing ran": 3, "failed": 4}


def run(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A commit, as git names it.")],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="A commit, as git names it.")],
    bench: Annotated[
        str, typer.Option(metavar="REGEX", help="The benchmarks to run, as for `asv run`.")
    ] = "Fast",
    results: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Run nothing: compare what this folder of asv holds."),
    ] = None,
    markdown: Annotated[
        str, typer.Option(metavar="FILE", help="Write the summary there; - is standard output.")
    ] = STDOUT,
) -> None:
    """Run benchmarks on two commits and compare them.

    Bytes, ratios and counts on the simulated device must be equal. A change is accepted when a
    commit message from BASE to HEAD states it in a trailer, `Metric-change: METRIC [ALLOCATOR
    [WORKLOAD]]`, where * and ? match any letters. Time is shown with its spread and fails nothing.

    Exit codes: 0 same, 1 changed, 2 wrong usage, 3 nothing ran, 4 failed.
    """
    check_outputs(markdown)
    commits = asv_runs.commit(base), asv_runs.commit(head)
    statements = asv_runs.statements(*commits)
    found = asv_runs.measure(commits, bench) if results is None else asv_cells.cells(results)
    before, after = ([cell for cell in found if cell.commit == one] for one in commits)
    comparison = gate.compare(before, after, statements)
    text = gate.markdown(comparison, base, head)
    with open_output(markdown) as sink:
        sink.write(text.encode())
    raise typer.Exit(EXIT_CODES[comparison.outcome])
