# SPDX-License-Identifier: Apache-2.0
"""Traces of what programs request from a GPU memory allocator: create, read, write, describe.

Those that come with the package are found by name in `allocbench.workloads.catalog`. A module is
imported when one of its names is first used: the catalog can be listed without numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocbench.workloads.block_lifetimes import (
        Lifetimes,
        lifetimes,
        read_lifetimes,
        read_offsets,
        write_plan,
    )
    from allocbench.workloads.files import read, read_large, read_plannable, write
    from allocbench.workloads.graphs import OperatorGraph, read_graph
    from allocbench.workloads.parquet import write_parquet
    from allocbench.workloads.plain_csv import write_csv
    from allocbench.workloads.streaming import AnyTrace, StreamedTrace, first_events
    from allocbench.workloads.trace import ALLOC, FREE, MARK, TRIM, Provenance, Trace, TraceError
    from allocbench.workloads.trace_features import Features, features
    from allocbench.workloads.vocabulary import PrivatePool

__all__ = [
    "ALLOC",
    "FREE",
    "MARK",
    "TRIM",
    "AnyTrace",
    "Features",
    "Lifetimes",
    "OperatorGraph",
    "PrivatePool",
    "Provenance",
    "StreamedTrace",
    "Trace",
    "TraceError",
    "features",
    "first_events",
    "lifetimes",
    "read",
    "read_graph",
    "read_large",
    "read_lifetimes",
    "read_offsets",
    "read_plannable",
    "write",
    "write_csv",
    "write_parquet",
    "write_plan",
]

_MODULES = {
    "block_lifetimes": (
        "Lifetimes",
        "lifetimes",
        "read_lifetimes",
        "read_offsets",
        "write_plan",
    ),
    "files": ("read", "read_large", "read_plannable", "write"),
    "graphs": ("OperatorGraph", "read_graph"),
    "parquet": ("write_parquet",),
    "plain_csv": ("write_csv",),
    "streaming": ("AnyTrace", "StreamedTrace", "first_events"),
    "trace": ("Trace",),
    "trace_features": ("Features", "features"),
    "vocabulary": ("ALLOC", "FREE", "MARK", "TRIM", "PrivatePool", "Provenance", "TraceError"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A name of `__all__`, from its module."""
    if name not in _HOME:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
