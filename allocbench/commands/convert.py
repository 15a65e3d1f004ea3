# SPDX-License-Identifier: Apache-2.0
"""allocbench convert: a trace from CSV to Parquet and back."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from allocbench import inputs, options
from allocbench.traces import check_trace_output, is_csv, write_trace
from workloads import FREE

EXAMPLES = (
    "allocbench convert trace.csv trace.parquet",
    "allocbench convert gpt2-train - | head",
)


def run(
    source: options.Workload,
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="A file; .parquet or .csv says the format; - is CSV to stdout."
        ),
    ],
) -> None:
    """Convert a trace between Parquet, which holds everything, and plain CSV op,id,size.

    CSV has no place for marks, trims, times and labels: they are left out, and counted on
    standard error.
    """
    check_trace_output(target)
    trace = inputs.load(source)
    write_trace(trace, target)
    left_out = int(np.count_nonzero(trace.op > FREE))
    if is_csv(target) and left_out:
        typer.echo(f"note: {left_out:,} marks and trims have no place in CSV", err=True)
