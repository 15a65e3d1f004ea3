# SPDX-License-Identifier: Apache-2.0
"""A second run of every bundled training workload on other data, for testing plans.

A plan made from one run must serve the other, which differs in sequence lengths, bags, routes and
last batches. `make traces` recreates these traces too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from allocbench.workloads import catalog
from allocbench.workloads.files import read, write
from allocbench.workloads.trace import Trace, TraceError

DATA = catalog.DATA / "again"


def names() -> list[str]:
    """The sorted names of the workloads with a second run: the training workloads."""
    return [name for name in catalog.captured() if catalog.bundled(name).purpose == "training"]


def load(name: str) -> Trace:
    """The second run of a workload; raises TraceError if it has none."""
    if name not in names():
        raise TraceError(f"{name}: has no second run; workloads with one: {', '.join(names())}")
    return read(DATA / f"{name}.parquet")


def recreate(names: Iterable[str], folder: Path, capture_module: catalog.Capture) -> None:
    """Capture the second runs and write them as `folder`/NAME.parquet."""
    for name in names:
        workload = catalog.bundled(name)
        package, _, module = workload.module.rpartition(".")
        trace = capture_module(f"{package}.again.{module}", f"{name}-again", workload.date)
        write(trace, folder / f"{name}.parquet")
