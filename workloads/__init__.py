# SPDX-License-Identifier: Apache-2.0
"""Traces of what programs ask of a GPU memory allocator: made, read, written, described.

Those that come with the package are found by name in `allocbench.workloads.catalog`.
"""

from allocbench.workloads.features import Features, features
from allocbench.workloads.files import read, write
from allocbench.workloads.lifetimes import (
    Lifetimes,
    holds_lifetimes,
    lifetimes,
    read_lifetimes,
    write_plan,
)
from allocbench.workloads.parquet import write_parquet
from allocbench.workloads.plain_csv import write_csv
from allocbench.workloads.trace import ALLOC, FREE, MARK, TRIM, Provenance, Trace, TraceError

__all__ = [
    "ALLOC",
    "FREE",
    "MARK",
    "TRIM",
    "Features",
    "Lifetimes",
    "Provenance",
    "Trace",
    "TraceError",
    "features",
    "holds_lifetimes",
    "lifetimes",
    "read",
    "read_lifetimes",
    "write",
    "write_csv",
    "write_parquet",
    "write_plan",
]
