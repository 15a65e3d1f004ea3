# SPDX-License-Identifier: Apache-2.0
"""Traces as output: files by extension, or CSV to standard output."""

from pathlib import Path

from allocbench.errors import UsageError
from allocbench.outputs import STDOUT, check_outputs, open_output
from workloads import Trace, write, write_csv

_EXTENSIONS = (".parquet", ".csv")


def is_csv(path: str) -> bool:
    """Whether a trace written there is CSV."""
    return path == STDOUT or Path(path).suffix == ".csv"


def check_trace_output(path: str) -> None:
    """Raise UsageError unless a trace can be written there."""
    if path != STDOUT and Path(path).suffix not in _EXTENSIONS:
        raise UsageError(f"{path}: the extension must say the format, {' or '.join(_EXTENSIONS)}")
    check_outputs(path)


def write_trace(trace: Trace, path: str) -> None:
    """Write a trace to a file, which appears whole or not at all, or as CSV to "-".

    Raises TraceError or UsageError naming the path.
    """
    if path == STDOUT:
        with open_output(path) as sink:
            write_csv(trace, sink)
    else:
        write(trace, path)
