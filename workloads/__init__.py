# SPDX-License-Identifier: Apache-2.0
"""Traces of what programs request from a GPU memory allocator: create, read, write, describe.

Those that come with the package are found by name in `allocbench.workloads.catalog`. A module is
imported when one of its names is first used, as the imports for type checkers list them: the
catalog can be listed without numpy.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocbench.workloads.block_lifetimes import Lifetimes as Lifetimes
    from allocbench.workloads.block_lifetimes import lifetimes as lifetimes
    from allocbench.workloads.block_lifetimes import read_lifetimes as read_lifetimes
    from allocbench.workloads.block_lifetimes import read_offsets as read_offsets
    from allocbench.workloads.block_lifetimes import write_plan as write_plan
    from allocbench.workloads.files import read as read
    from allocbench.workloads.files import read_large as read_large
    from allocbench.workloads.files import read_plannable as read_plannable
    from allocbench.workloads.files import write as write
    from allocbench.workloads.graphs import OperatorGraph as OperatorGraph
    from allocbench.workloads.graphs import read_graph as read_graph
    from allocbench.workloads.parquet import write_parquet as write_parquet
    from allocbench.workloads.plain_csv import write_csv as write_csv
    from allocbench.workloads.streaming import AnyTrace as AnyTrace
    from allocbench.workloads.streaming import StreamedTrace as StreamedTrace
    from allocbench.workloads.streaming import first_events as first_events
    from allocbench.workloads.trace import Trace as Trace
    from allocbench.workloads.trace_features import Features as Features
    from allocbench.workloads.trace_features import features as features
    from allocbench.workloads.vocabulary import ALLOC as ALLOC
    from allocbench.workloads.vocabulary import FREE as FREE
    from allocbench.workloads.vocabulary import MARK as MARK
    from allocbench.workloads.vocabulary import TRIM as TRIM
    from allocbench.workloads.vocabulary import PrivatePool as PrivatePool
    from allocbench.workloads.vocabulary import Provenance as Provenance
    from allocbench.workloads.vocabulary import TraceError as TraceError

_IMPORT = re.compile(r"^    from (\S+) import (\w+) as", re.MULTILINE)
_HOME = {name: module for module, name in _IMPORT.findall(Path(__file__).read_text("utf-8"))}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """A name of `__all__`, from its module."""
    if name not in _HOME:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
