# SPDX-License-Identifier: Apache-2.0
"""What holds memory when it matters, in one sentence: at the request that fails, or at the peak."""

import numpy as np
import pandas as pd

from allocbench.base import units
from allocbench.reports.rows.details import Details, of_run

_MOST = 3  # names


def sentence(details: Details, workload: str, device: str, allocator: str) -> str:
    """The bytes that the program had requested then, and most of their kinds and lines.

    allocator: whose first failed request counts. Empty without the tables `program` and `sites`.
    """
    blocks = of_run(details, "program", workload=workload)
    if blocks.empty:
        return ""
    failure = of_run(details, "failures", workload=workload, device=device, allocator=allocator)
    if failure.empty:
        event = peak(blocks)
        when = f"At the peak of the program (event {event:,}"
    else:
        event = int(failure["event"].iloc[0]) - 1
        when = f"When a request for {units.size(failure['requested'].iloc[0])} fails (event"
        when += f" {event + 1:,}"
    alive = blocks[(blocks["first"] <= event) & (blocks["last"] > event)]
    if alive.empty:
        return ""
    sites = of_run(details, "sites", workload=workload).reset_index(drop=True)
    named = alive[["size", "site", "step"]].join(sites, on="site")
    total = int(named["size"].sum())
    step = f", step {named['step'].max()}" if named["step"].any() else ""
    words = f"{when}{step}), {units.size(total)} are in use"
    by = next((name for name in ("kind", "operator") if named[name].any()), "")
    parts = [units.names(_largest(named, name, total)) for name in (by, "line") if name]
    held = [part for part in parts if part != units.names([])]
    if not held:
        return f"{words}."
    lines = f" By line: {held[1]}." if len(held) > 1 else ""
    return f"{words}: {held[0]}.{lines}"


def peak(blocks: pd.DataFrame) -> int:
    """The first event after which the most bytes of a table `program` are alive."""
    first, last = blocks["first"].to_numpy(), blocks["last"].to_numpy()
    change = np.zeros(int(last.max()) + 1, np.int64)
    np.add.at(change, first, blocks["size"].to_numpy())
    np.subtract.at(change, last, blocks["size"].to_numpy())
    return int(change.cumsum().argmax())


def _largest(named: pd.DataFrame, column: str, total: int) -> list[str]:
    """The values of a column with the most bytes, and their shares of all bytes."""
    known = named[named[column] != ""]
    sums = known.groupby(column)["size"].sum().sort_values(ascending=False, kind="stable")
    return [
        f"{units.size(size)} ({units.percent(size / total)}) {name}"
        for name, size in sums.head(_MOST).items()
    ]
