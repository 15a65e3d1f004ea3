# SPDX-License-Identifier: Apache-2.0
"""Write traces to files or standard output, in a given format or by extension."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from allocbench.errors import UsageError
from allocbench.output.files import STDOUT, check_outputs, open_output
from allocbench.output.stdout import tell_notes
from allocbench.workloads import FREE, Trace, TraceError
from allocbench.workloads.files import WRITERS, kind_by_extension


def check_trace_output(path: str, kind: str | None = None) -> str:
    """The format of a trace output, a key of WRITERS: `kind`, or else by extension.

    Raises UsageError unless a trace can be written to the path.
    """
    if kind is not None and kind not in WRITERS:
        raise UsageError(f"--format {kind}: no such format; valid: {', '.join(WRITERS)}")
    try:
        format_ = kind or ("csv" if path == STDOUT else kind_by_extension(path))
    except TraceError as error:
        raise UsageError(str(error)) from error
    check_outputs(path)
    return format_


def beside(path: str, name: str) -> str:
    """The path of one of several traces: trace.parquet and rank0 give trace-rank0.parquet."""
    stem = Path(path).stem
    return str(Path(path).with_stem(f"{stem}-{name}")) if name else path


def write_trace(trace: Trace, path: str, kind: str | None = None) -> None:
    """Write a trace to a file, or to standard output for "-".

    Marks and trims that the format cannot store are counted on standard error. Raises TraceError
    or UsageError naming the path.
    """
    kind = check_trace_output(path, kind)
    with open_output(path) as sink:
        try:
            WRITERS[kind](trace, sink)
        except TraceError as error:
            raise TraceError(f"{path}: {error}") from error
    left_out = np.count_nonzero(trace.op > FREE)
    if kind != "parquet" and left_out:
        tell_notes([f"{left_out:,} marks and trims were left out: CSV cannot store them"])
    if kind != "parquet" and not trace.coverage.whole:
        tell_notes(["the trace is a part of its program; CSV cannot store which part"])
