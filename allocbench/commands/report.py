# SPDX-License-Identifier: Apache-2.0
"""allocbench report: results files to an HTML report, figures, or a table in Markdown."""

from __future__ import annotations

from typing import Annotated

import typer

from allocbench.commands.options import (
    Reference,
    markdown_option,
    output_option,
    reference_of,
)
from allocbench.errors import UsageError
from allocbench.output.files import check_folder, check_outputs, write_text
from allocbench.output.stdout import tell_notes

EXAMPLES = (
    "allocbench report results.zip -o report.html",
    "allocbench report monday.zip tuesday.json --reference bfc",
    "allocbench report results.zip --figures figures",
    "allocbench report results.json --markdown -",
    "allocbench report sweep.jsonl -o report.html",
)
_DEFAULT = "report.html"


def run(
    context: typer.Context,
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULTS...", help="Files written by compare (--results, --json) or sweep."
        ),
    ],
    output: Annotated[
        str | None,
        output_option(
            f"Write the report as one HTML file; - is standard output. Default: {_DEFAULT}, "
            "unless another output is requested."
        ),
    ] = None,
    figures: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Write every figure as SVG and PNG into a folder."),
    ] = None,
    markdown: Annotated[str | None, markdown_option("the verdict and tables")] = None,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Also chart benchmarks across commits from these asv results."
        ),
    ] = None,
    reference: Reference = None,
) -> None:
    """Make a report from saved results.

    A bundle that `compare --results` wrote contains the data of every chart. Rows that `--json` or
    `sweep` wrote contain enough for the tables and the charts of single metrics; the report says
    which charts are missing. If a sweep repeated a run, the last result counts.
    """
    from allocbench.reports.page.tables import to_markdown
    from allocbench.reports.rows import asv, bundle

    if output is None and figures is None and markdown is None:
        output = _DEFAULT
    check_outputs(output, markdown, inputs=results)
    check_folder(figures)
    bundle_read = bundle.read_all(results)
    if bundle_read.rows.empty:
        raise UsageError(f"{', '.join(results)}: no result rows to report")
    tell_notes(bundle_read.notes)
    names = list(bundle_read.rows["allocator"].unique())
    base = reference_of(reference, names)
    past = asv.history(history) if history else None
    if markdown:
        write_text(to_markdown(bundle_read.rows, base), markdown)
    if output is None and figures is None:
        return
    try:
        from allocbench.reports.charts import figures as drawings
        from allocbench.reports.page import html
    except ModuleNotFoundError as error:
        raise UsageError(str(error)) from error
    if output:
        html.write(bundle_read, output, command=context.obj, reference=base, history=past)
    if figures:
        drawings.write(bundle_read, figures)
