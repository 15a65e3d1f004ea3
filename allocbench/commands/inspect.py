# SPDX-License-Identifier: Apache-2.0
"""allocbench inspect: what is in a trace."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from allocbench import allocators, options
from allocbench.base.text import one_line
from allocbench.reports import results, units
from allocbench.terminal import console, plain_table
from allocbench.workloads import ALLOC, FREE, MARK, TRIM
from allocbench.workloads.vocabulary import POOL_EVENTS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from allocbench.workloads import Trace

EXAMPLES = (
    "allocbench inspect gpt2-train",
    "allocbench inspect trace.csv",
    "allocbench inspect requests.csv:kv=paged --model qwen2.5-7b",
    "allocbench inspect --device null:h100 --world 64 -- python train.py",
)
_KINDS = {"alloc": ALLOC, "free": FREE, "mark": MARK, "trim": TRIM}
_POOL_KINDS = {name.replace("_", " "): op for name, op in POOL_EVENTS.items()}
_PERCENTILES = (0, 50, 90, 99, 100)
_LARGEST = 10  # blocks shown
_PLOT = 72  # the most letters of the plot
_MARGIN = 9  # letters to its left
_SAMPLES = 100_000  # moments behind the plot


def run(workload: options.Workload, model: options.Model = None) -> None:
    """Show the origin, events, features and sizes of a trace, and its load over time."""
    from allocbench import inputs  # imported late: --help stays fast

    trace = inputs.load(workload, model)
    # naive reserves exactly the live bytes, so its reserved bytes are the load.
    endless = allocators.SimulatedDevice(2**62 - 1)
    replayed = allocators.replay(trace, allocators.make("naive", endless), samples=_SAMPLES)
    sizes = trace.size[trace.op == ALLOC]
    parts = [_facts(trace, sizes, replayed.max_load), _features(trace)]
    if len(sizes):
        parts += [_sizes(sizes), _largest(trace)]
    out = console()
    for part in (*parts, _load(replayed.timeline, len(trace))):
        out.print(part)
        out.print()


def _facts(trace: Trace, sizes: NDArray[np.uint64], max_load: int) -> Table:
    import numpy as np

    from allocbench.workloads import modelled

    table = plain_table(one_line(trace.name) or "trace", "", "")
    for key, value in asdict(trace.provenance).items():
        if value not in ("", None, {}) and (key, value) != ("live_at_start", 0):
            table.add_row(key, Text(one_line(str(value))))
    counts = [
        units.count(int(np.count_nonzero(trace.op == op)), kind) for kind, op in _KINDS.items()
    ]
    table.add_row("events", f"{len(trace):,}: {', '.join(counts)}")
    if trace.pool is not None:
        table.add_row("private pools", Text(_pools(trace)))
    table.add_row("block ids", f"{trace.blocks:,}")
    table.add_row("max load", f"{units.size(max_load)} ({max_load:,} bytes)")
    if marked := modelled.sentence(modelled.modelled(trace)):
        table.add_row("modelled", marked)
    labels, times = np.unique(trace.block[trace.op == MARK], return_counts=True)
    if len(labels):
        marks = [f"{trace.labels[i]} {n:,}" for i, n in zip(labels, times, strict=True)]
        table.add_row("marks", Text(one_line(", ".join(marks))))
    if len(sizes):
        percentiles = [units.size(float(value)) for value in np.percentile(sizes, _PERCENTILES)]
        table.add_row("sizes", "min {}, median {}, p90 {}, p99 {}, max {}".format(*percentiles))
    return table


def _pools(trace: Trace) -> str:
    """The private pools with their blocks, and the counts of their events."""
    assert trace.pool is not None
    allocs = np.bincount(trace.pool[trace.op == ALLOC], minlength=len(trace.pools) + 1)
    pools = []
    for number, pool in enumerate(trace.pools, 1):
        what = ", ".join([f"{allocs[number]:,} allocs", *pool.traits])
        pools.append(f"{pool.name or number} ({what})")
    counts = {kind: np.count_nonzero(trace.op == op) for kind, op in _POOL_KINDS.items()}
    events = ", ".join(f"{kind} {n:,}" for kind, n in counts.items() if n)
    return one_line(f"{len(pools)}: {', '.join(pools)}{'; ' if events else ''}{events}")


def _features(trace: Trace) -> Table:
    from allocbench.workloads import features

    table = plain_table("features", "", "")
    for name, value in asdict(features(trace)).items():
        column = results.SCHEMA[name]
        table.add_row(column.heading, units.value(column, value))
    return table


def _sizes(sizes: NDArray[np.uint64]) -> Table:
    """Sizes in classes that end at powers of four."""
    import numpy as np

    headings = ("up to", "allocs", "bytes", "of all bytes")
    table = plain_table("sizes requested", *headings, right=headings)
    power = np.ceil(np.log2(sizes) / 2).astype(np.intp)
    counts, held = np.bincount(power), np.bincount(power, weights=sizes)
    for n in np.flatnonzero(counts):
        share = units.percent(float(held[n] / held.sum()))
        table.add_row(units.size(4.0**n), f"{counts[n]:,}", units.size(float(held[n])), share)
    return table


def _largest(trace: Trace) -> Table:
    import numpy as np

    numbers = ("bytes", "block", "alloc at event", "free at event")
    table = plain_table("largest blocks", *numbers, "label", right=numbers)
    allocs = np.flatnonzero(trace.op == ALLOC)
    order = np.argsort(trace.size[allocs], kind="stable")[::-1]
    for event in allocs[order[:_LARGEST]]:
        block = trace.block[event]
        later = np.flatnonzero((trace.block[event:] == block) & (trace.op[event:] == FREE))
        table.add_row(
            f"{trace.size[event]:,}",
            str(block),
            f"{event:,}",
            f"{event + later[0]:,}" if len(later) else "never",
            Text("" if trace.label is None else one_line(trace.labels[trace.label[event]])),
        )
    return table


def _load(timeline: dict[str, NDArray[Any]], events: int) -> Group:
    from allocbench.plot import plot

    title = f"live requested bytes over the {events:,} events"
    if not len(timeline["event"]):
        return Group(Text(title, "bold"), Text("no alloc and no free"))
    width = max(1, min(_PLOT, console().width - _MARGIN - 2))
    lines = plot(timeline["event"], timeline["requested"], width=width)
    top = units.size(int(timeline["requested"].max()))
    margin = [top, *[""] * (len(lines) - 2), "0 B"]
    drawn = [f"{left:>{_MARGIN}} |{line}" for left, line in zip(margin, lines, strict=True)]
    return Group(Text(title, "bold"), *[Text(line, no_wrap=True) for line in drawn])
