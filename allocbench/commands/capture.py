# SPDX-License-Identifier: Apache-2.0
"""allocbench capture: capture a bundled workload again from its PyTorch program."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from allocbench.commands import options
from allocbench.errors import UsageError
from allocbench.workloads import catalog

EXAMPLES = (
    "allocbench capture gpt2-train -o gpt2.parquet",
    "allocbench capture gpt2-train -o gpt2.parquet --device null:l4 --python cuda/bin/python",
    "allocbench capture llm-decode -o - | head",
)


def run(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A bundled workload; see `list workloads`.")
    ],
    output: options.TraceOutput,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="null:CARD|cuda|fake",
            help="A null GPU, this machine's GPU, or fake tensors. Default: fake tensors if "
            "PyTorch is not built for CUDA; otherwise the GPU, or null:h100 without a GPU.",
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The Python whose PyTorch runs the program; it needs a CUDA build. Default: the "
            "one that runs allocbench.",
        ),
    ] = None,
    scratch: options.Scratch = None,
    convolution_scratch: options.ConvolutionScratch = 0,
) -> None:
    """Run the PyTorch program of a workload and record its allocations; needs no GPU.

    With a CUDA build of PyTorch, the program runs on a GPU: this machine's, or a null GPU, whose
    kernels compute nothing. The trace has every request that PyTorch's allocator gets.

    With a CPU build, it runs under fake tensors, which needs a C++ compiler. That trace lacks what
    CUDA kernels allocate for themselves; --scratch adds a model of it. `match` measures how well
    two traces agree.
    """
    from allocbench.output.traces import check_trace_output, modelled, write_trace
    from allocbench.programs.capturing import FAKE, where  # imported late: --help stays fast

    workload = catalog.bundled(name)
    check_trace_output(output)
    there = where(device, python)
    if scratch and there.device != FAKE:
        raise UsageError(
            f"--scratch: models what fake tensors miss; a capture on {there.device} already"
            " includes it"
        )
    with Console(stderr=True).status(f"capturing {escape(name)}"):
        trace, notes = there.capture(workload.module, workload.name)
    write_trace(modelled(trace, scratch, convolution_scratch), output)
    made_with = f"{trace.provenance.device}, PyTorch {trace.provenance.torch}"
    reason = f": {there.because}" if there.because else ""
    typer.echo(f"note: {name}: {len(trace):,} events on {made_with}{reason}", err=True)
    for line in notes:
        typer.echo(f"note: {line}", err=True)
