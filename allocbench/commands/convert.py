# SPDX-License-Identifier: Apache-2.0
"""allocbench convert: convert a trace to Parquet or CSV."""

from __future__ import annotations

from typing import Annotated

import typer

from allocbench.arguments import options
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
    output: options.TraceOutput,
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
    scratch: options.Scratch = None,
    convolution_scratch: options.ConvolutionScratch = 0,
) -> None:
    """Convert a trace in any format to Parquet, or to plain CSV op,id,size.

    Parquet stores everything. CSV cannot store marks, trims, times and labels: they are left out
    and counted on standard error. PyTorch snapshots and Perfetto traces show what an allocator
    did, so `replay --snapshot` and `replay --perfetto` write them.
    """
    from allocbench.arguments import inputs  # imported late: --help stays fast
    from allocbench.output.traces import check_trace_output, modelled, write_trace

    check_trace_output(output, to)
    trace = modelled(inputs.load(source, model), scratch, convolution_scratch)
    write_trace(trace, output, to)
