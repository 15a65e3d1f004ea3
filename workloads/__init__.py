# SPDX-License-Identifier: Apache-2.0
"""Traces of what programs ask of a GPU memory allocator: bundled, read, written, captured.

The bundled ones are found by name in `workloads.catalog`.
"""

from workloads.files import read, write
from workloads.lifetimes import (
    Lifetimes,
    holds_lifetimes,
    lifetimes,
    read_lifetimes,
    write_plan,
)
from workloads.parquet import write_parquet
from workloads.plain_csv import write_csv
from workloads.trace import ALLOC, FREE, MARK, TRIM, Provenance, Trace, TraceError

__all__ = [
    "ALLOC",
    "FREE",
    "MARK",
    "TRIM",
    "Lifetimes",
    "Provenance",
    "Trace",
    "TraceError",
    "holds_lifetimes",
    "lifetimes",
    "read",
    "read_lifetimes",
    "write",
    "write_csv",
    "write_parquet",
    "write_plan",
]
