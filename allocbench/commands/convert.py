# SPDX-License-Identifier: Apache-2.0
"""allocbench convert: convert a trace to Parquet or CSV."""

from __future__ import annotations

from typing import Annotated

import typer

from allocbench.commands import options
from allocbench.errors import UsageError
from allocbench.workloads.formats import OUTPUTS

EXAMPLES = (
    "allocbench convert trace.csv -o trace.parquet",
    "allocbench convert gpt2-train -o - | head",
    "allocbench convert gpt2-train -o blocks.csv --format lifetimes",
    "allocbench convert snapshot.pickle:device=0 -o trace.parquet",
    "allocbench convert random:allocs=1000,max_size=4KiB -o random.csv",
)


def run(
    source: options.WorkloadFile,
    out: Annotated[
        str | None, typer.Argument(metavar="[OUT]", help="The same as --output OUT.")
    ] = None,
    output: Annotated[str | None, options.output_option(options.TRACE_OUTPUT)] = None,
    model: options.Model = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help=f"One of {', '.join(OUTPUTS)}; overrides the extension. lifetimes is CSV "
            "id,lower,upper,size in units of events.",
        ),
    ] = None,
) -> None:
    """Convert a trace in any format to Parquet, or to plain CSV op,id,size.

    Parquet stores everything. CSV cannot store marks, trims, times and labels: they are left out
    and counted on standard error. PyTorch snapshots and Perfetto traces show what an allocator
    did, so `replay --snapshot` and `replay --perfetto` write them.
    """
    from allocbench.inputs.traces import load  # imported late: --help stays fast
    from allocbench.output.files import check_trace_output, write_trace

    if out is None or output is None:
        target = out if output is None else output
    else:
        raise UsageError(f"two outputs, {out} and {output}: give one")
    if target is None:
        raise UsageError("no output: allocbench convert IN -o OUT, where - is standard output")
    check_trace_output(target, to)
    write_trace(load(source, model), target, to)
