# SPDX-License-Identifier: Apache-2.0
"""allocbench convert: convert a trace to Parquet or CSV."""

from typing import Annotated

import typer

from allocbench.commands import options
from allocbench.workloads.formats import OUTPUTS

EXAMPLES = (
    "allocbench convert trace.csv -o trace.parquet",
    "allocbench convert gpt2-train -o - | head",
    "allocbench convert gpt2-train -o blocks.csv --format lifetimes",
    "allocbench convert snapshot.pickle:device=0 -o trace.parquet",
    "allocbench convert random:allocs=1000,max_size=4KiB -o random.csv",
)
_OUTPUT = "The trace file, .parquet or .csv; - is CSV on standard output."


def run(
    source: options.WorkloadFile,
    output: Annotated[str, options.output_option(_OUTPUT)],
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

    check_trace_output(output, to)
    write_trace(load(source, model), output, to)
