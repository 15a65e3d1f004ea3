# SPDX-License-Identifier: Apache-2.0
"""allocbench report: results files to an HTML report, figures, or a table in Markdown."""

from typing import Annotated

import typer

from allocbench.commands import options
from allocbench.errors import UsageError
from allocbench.output.files import check_folder, check_outputs, write_text
from allocbench.output.stdout import tell_notes

EXAMPLES = (
    "allocbench report results.zip -o report.html",
    "allocbench report monday.zip tuesday.json --reference bfc",
    "allocbench report results.zip --figures figures",
    "allocbench report results.json --markdown -",
    "allocbench report sweep.jsonl -o report.html",
    "allocbench report --history .asv/results -o history.html",
)
_DEFAULT = "report.html"


def run(
    context: typer.Context,
    results: Annotated[list[str] | None, typer.Argument(metavar="[RESULTS...]")] = None,
    output: Annotated[
        str | None,
        options.output_option(
            f"Write the report as one HTML file; - is standard output. Default: {_DEFAULT}, "
            "unless another output is requested."
        ),
    ] = None,
    figures: Annotated[str | None, typer.Option(metavar="DIR")] = None,
    markdown: Annotated[str | None, options.markdown_option("the verdict and tables")] = None,
    history: Annotated[str | None, typer.Option(metavar="DIR")] = None,
    reference: options.Reference = None,
) -> None:
    """Make a report from saved results.

    A bundle that `compare --results` wrote contains the data of every chart. Rows that `--json` or
    `sweep` wrote contain enough for the tables and the charts of single metrics; the report says
    which charts are missing. If a sweep repeated a run, the last result counts. --history adds
    charts and changes of benchmarks across commits; without RESULTS, they are a page of their own,
    which needs no network, unlike that of `asv publish`.

    Options:
        results: Files written by compare (--results, --json) or sweep; none for a page of --history
            alone.
        figures: Write every figure as SVG and PNG into a folder.
        history: Also chart benchmarks across commits from these asv results.
    """
    from allocbench.reports.page.tables import to_markdown
    from allocbench.reports.rows import asv, bundle

    if output is None and figures is None and markdown is None:
        output = _DEFAULT
    check_outputs(output, markdown, inputs=results or ())
    check_folder(figures)
    past = asv.history(history) if history else None
    if not results:
        if past is None or markdown or figures:
            raise UsageError("name files of results; only a page of --history needs none")
        page = options.imported("reports.page.html").of_history(past, "Benchmarks across commits")
        write_text(page, output or _DEFAULT)
        return
    bundle_read = bundle.read_all(results)
    if bundle_read.rows.empty:
        raise UsageError(f"{', '.join(results)}: no result rows to report")
    tell_notes(bundle_read.notes)
    names = list(bundle_read.rows["allocator"].unique())
    base = options.reference_of(reference, names)
    if markdown:
        write_text(to_markdown(bundle_read.rows, base), markdown)
    if output:
        write = options.imported("reports.page.html").write
        write(bundle_read, output, command=context.obj, reference=base, history=past)
    if figures:
        options.imported("reports.charts.figures").write(bundle_read, figures)
