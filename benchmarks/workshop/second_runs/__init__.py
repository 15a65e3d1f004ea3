# SPDX-License-Identifier: Apache-2.0
"""A second run of every bundled training workload on other data, for testing plans.

A plan made from one run must serve the other, which differs in sequence lengths, bags, routes and
last batches. `make traces` recreates these traces too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from allocbench.workloads import catalog

if TYPE_CHECKING:
    from allocbench.workloads import Trace


def names() -> list[str]:
    """The sorted names of the workloads with a second run: the training workloads."""
    return [name for name in catalog.captured() if catalog.bundled(name).purpose == "training"]


def path_of(name: str) -> Path:
    """The file of a second run."""
    return Path(__file__).with_name(f"{name}.parquet")


def load(name: str) -> Trace:
    """The second run of a workload; raises TraceError if it has none."""
    from allocbench.workloads import TraceError, read  # the programs run without numpy

    if name not in names():
        raise TraceError(f"{name}: has no second run; workloads with one: {', '.join(names())}")
    return read(path_of(name))
