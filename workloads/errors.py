# SPDX-License-Identifier: Apache-2.0
"""File errors, reported as a single line that names the file."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allocbench.workloads.vocabulary import TraceError


@contextmanager
def errors_naming(path: str | Path) -> Iterator[None]:
    """Turn any exception of reading or writing into a TraceError of one line."""
    import pyarrow as pa

    try:
        yield
    except (OSError, ValueError, MemoryError, csv.Error, pa.ArrowException) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error) or repr(error)
        raise TraceError(f"{path}: {reason.splitlines()[0]}") from error
    except RecursionError as error:
        raise TraceError(f"{path}: is nested too deeply") from error
