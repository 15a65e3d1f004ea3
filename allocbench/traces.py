# SPDX-License-Identifier: Apache-2.0
"""Traces as output: files by extension, or in a format of choice; CSV to standard output."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import typer

from allocbench.errors import UsageError
from allocbench.outputs import STDOUT, check_outputs, open_output
from allocbench.workloads import FREE, Trace, TraceError
from allocbench.workloads.files import WRITERS, kind_by_extension
from allocbench.workloads.scratch import GPUS, with_scratch


def check_trace_output(path: str, kind: str | None = None) -> str:
    """What a trace written there is: a key of WRITERS, by the extension when `kind` is None.

    Raises UsageError unless a trace can be written there.
    """
    if kind is not None and kind not in WRITERS:
        raise UsageError(f"--format {kind}: no such format; valid: {', '.join(WRITERS)}")
    try:
        found = kind or ("csv" if path == STDOUT else kind_by_extension(path))
    except TraceError as error:
        raise UsageError(str(error)) from error
    check_outputs(path)
    return found


def modelled(trace: Trace, gpu: str | None, convolution: int) -> Trace:
    """The trace with the scratch of kernels on a GPU, or as it is when none is named.

    Raises UsageError for scratch of convolutions alone, and as `with_scratch` does.
    """
    if gpu is None:
        if convolution:
            raise UsageError("--convolution-scratch: needs --scratch, which says for which GPU")
        return trace
    return with_scratch(trace, replace(GPUS[gpu], convolution=convolution))


def write_trace(trace: Trace, path: str, kind: str | None = None) -> None:
    """Write a trace to a file, which appears whole or not at all, or to "-".

    Marks and trims that have no place there are counted on standard error. Raises TraceError or
    UsageError naming the path.
    """
    kind = check_trace_output(path, kind)
    with open_output(path) as sink:
        try:
            WRITERS[kind](trace, sink)
        except TraceError as error:
            raise TraceError(f"{path}: {error}") from error
    left_out = np.count_nonzero(trace.op > FREE)
    if kind != "parquet" and left_out:
        typer.echo(f"note: {left_out:,} marks and trims have no place in CSV", err=True)
