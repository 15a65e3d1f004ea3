# SPDX-License-Identifier: Apache-2.0
"""allocbench capture: a bundled workload captured anew from its PyTorch program."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from allocbench import options
from allocbench.traces import check_trace_output, modelled, write_trace
from allocbench.workloads import catalog

EXAMPLES = (
    "allocbench capture gpt2-train -o gpt2.parquet",
    "allocbench capture llm-decode -o - | head",
)


def run(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A bundled workload; see `list workloads`.")
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The trace file, .parquet or .csv; - is CSV to stdout.",
        ),
    ],
    scratch: options.Scratch = None,
    convolution_scratch: options.ConvolutionScratch = 0,
) -> None:
    """Run the PyTorch program of a workload under fake tensors and record its allocations.

    This needs PyTorch (pip install torch) and a C++ compiler, but no GPU. On a machine with a GPU
    and a CUDA build of PyTorch, the program runs on the GPU, and the real allocator is recorded.
    `match` measures how well the two traces agree.
    """
    catalog.bundled(name)
    check_trace_output(output)
    with Console(stderr=True).status(f"capturing {escape(name)}"):
        trace = catalog.capture(name)
    write_trace(modelled(trace, scratch, convolution_scratch), output)
