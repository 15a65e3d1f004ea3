# SPDX-License-Identifier: Apache-2.0
"""Every bundled training workload run again on other data: lengths, bags, routes, last batches.

A plan of one run has to serve the other. `python -m allocbench.workloads.again` makes all of them
again, byte for byte (needs the extra `torch`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from allocbench.workloads import catalog, recreating
from allocbench.workloads.capture import capture
from allocbench.workloads.files import read, write
from allocbench.workloads.trace import Trace, TraceError

DATA = catalog.DATA / "again"


def names() -> list[str]:
    """The workloads that there is another run of: those in training, sorted."""
    return [name for name in catalog.captured() if catalog.bundled(name).purpose == "training"]


def load(name: str) -> Trace:
    """The other run of a workload; raises TraceError where there is none."""
    if name not in names():
        raise TraceError(f"{name}: no other run of it; there is one of {', '.join(names())}")
    return read(DATA / f"{name}.parquet")


def recreate(names: Iterable[str], folder: Path = DATA) -> None:
    """Capture the other runs anew and write them as `folder`/NAME.parquet."""
    for name in names:
        workload = catalog.bundled(name)
        package, _, module = workload.module.rpartition(".")
        trace = capture(f"{package}.again.{module}", f"{name}-again", workload.date)
        write(trace, folder / f"{name}.parquet")


if __name__ == "__main__":
    sys.exit(recreating.main("allocbench.workloads.again", names(), recreate, DATA))
