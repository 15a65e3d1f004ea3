# SPDX-License-Identifier: Apache-2.0
"""allocbench inspect: what is in a trace."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from allocbench import allocators
from allocbench.base import units
from allocbench.base.text import one_line
from allocbench.commands import options
from allocbench.output.terminal import console, plain_table
from allocbench.reports.rows import results
from allocbench.workloads.module_hook import OUTPUT_SHAPES, PARAMETER_SHAPES
from allocbench.workloads.vocabulary import ALLOC, FREE, MARK, POOL_EVENTS, TRIM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from allocbench.workloads import AnyTrace
    from allocbench.workloads.contents import Contents
    from allocbench.workloads.distribution import Distribution

EXAMPLES = (
    "allocbench inspect gpt2-train",
    "allocbench inspect trace.csv",
    "allocbench inspect requests.csv:kv=paged --model qwen2.5-7b",
    "allocbench inspect --device null:h100 --world 64 -- python train.py",
)
_KINDS = {"alloc": ALLOC, "free": FREE, "mark": MARK, "trim": TRIM}
_POOL_KINDS = {name.replace("_", " "): op for name, op in POOL_EVENTS.items()}
_HEADINGS = {"sizes": "sizes are"}  # of the provenance, where its own names say too little
_MOST_MARKS = 12
_PERCENTILES = (0, 50, 90, 99, 100)
_LARGEST = 10  # blocks shown
_PLOT = 72  # the most letters of the plot
_MARGIN = 9  # letters to its left
_SAMPLES = 100_000  # moments behind the plot


def run(workload: options.Workload, model: options.Model = None) -> None:
    """Show the origin, events, features and sizes of a trace, and its load over time."""
    from allocbench.inputs.traces import load_large  # imported late: --help stays fast
    from allocbench.workloads.contents import contents

    (trace,) = load_large(workload, model).values()
    # naive reserves exactly the live bytes, so its reserved bytes are the load.
    endless = allocators.SimulatedDevice(2**62 - 1)
    replayed = allocators.replay(trace, allocators.make("naive", endless), samples=_SAMPLES)
    found = contents(trace, _LARGEST)
    parts = [_facts(trace, found, replayed.max_load), _features(trace)]
    if len(found.sizes):
        parts += [_sizes(found.sizes), _largest(trace, found)]
    out = console()
    for part in (*parts, _load(replayed.timeline, len(trace))):
        out.print(part)
        out.print()


def _facts(trace: AnyTrace, found: Contents, max_load: int) -> Table:
    from allocbench.workloads import modelled_workspaces

    table = plain_table(one_line(trace.name) or "trace", "", "")
    facts = asdict(trace.provenance)
    extra = facts.pop("extra")
    for key in (OUTPUT_SHAPES, PARAMETER_SHAPES):
        if isinstance(shapes := extra.get(key), dict):
            extra[key] = units.count(len(shapes), "module")
    for key, value in [*facts.items(), *extra.items()]:
        if value not in ("", None, {}, []) and (key, value) != ("live_at_start", 0):
            heading = _HEADINGS.get(key, one_line(str(key)).replace("_", " "))
            table.add_row(Text(heading), Text(one_line(_in_words(value))))
    counts = [units.count(found.events[op], kind) for kind, op in _KINDS.items()]
    table.add_row("events", f"{len(trace):,}: {', '.join(counts)}")
    if trace.pools:
        table.add_row("private pools", Text(_pools(trace, found)))
    table.add_row("block ids", f"{found.blocks:,}")
    table.add_row("max load", f"{units.size(max_load)} ({max_load:,} bytes)")
    if trace.coverage.sentence:
        table.add_row("coverage", trace.coverage.sentence)
    if marked := modelled_workspaces.sentence(found.modelled):
        table.add_row("modelled", marked)
    if found.marks:
        most = sorted(found.marks, key=lambda i: (i != trace.step_label, -found.marks[i], i))
        marks = [f"{trace.labels[i]} {found.marks[i]:,}" for i in most]
        table.add_row("marks", Text(one_line(units.names(marks, _MOST_MARKS))))
    if len(found.sizes):
        percentiles = [units.size(found.sizes.percentile(percent)) for percent in _PERCENTILES]
        table.add_row("sizes", "min {}, median {}, p90 {}, p99 {}, max {}".format(*percentiles))
    return table


def _in_words(value: object, *, inside: bool = False) -> str:
    """A value of the provenance; lists and dicts have parentheses if they are inside of others."""
    if isinstance(value, dict):
        items = [f"{key} {_in_words(item, inside=True)}" for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [_in_words(item, inside=True) for item in value]
    else:
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    return f"({', '.join(items)})" if inside else ", ".join(items)


def _pools(trace: AnyTrace, found: Contents) -> str:
    pools = []
    for number, pool in enumerate(trace.pools, 1):
        what = ", ".join([f"{found.allocs_of_pool[number]:,} allocs", *pool.traits])
        pools.append(f"{pool.name or number} ({what})")
    counts = {kind: found.events[op] for kind, op in _POOL_KINDS.items()}
    events = ", ".join(f"{kind} {n:,}" for kind, n in counts.items() if n)
    return one_line(f"{len(pools)}: {', '.join(pools)}{'; ' if events else ''}{events}")


def _features(trace: AnyTrace) -> Table:
    from allocbench.workloads import StreamedTrace, features

    table = plain_table("features", "", "")
    described = trace.features if isinstance(trace, StreamedTrace) else features(trace)
    for name, value in asdict(described).items():
        column = results.SCHEMA[name]
        table.add_row(column.heading, column.text(value))
    return table


def _sizes(sizes: Distribution) -> Table:
    """Sizes in classes that end at powers of four."""
    import numpy as np

    headings = ("up to", "allocs", "bytes", "of all bytes")
    table = plain_table("sizes requested", *headings, right=headings)
    power = np.ceil(np.log2(sizes.values) / 2).astype(np.intp)
    counts = np.bincount(power, weights=sizes.counts)
    held = np.bincount(power, weights=sizes.values.astype(np.float64) * sizes.counts)
    for n in np.flatnonzero(counts):
        share = units.percent(float(held[n] / held.sum()))
        table.add_row(units.size(4.0**n), f"{counts[n]:,.0f}", units.size(float(held[n])), share)
    return table


def _largest(trace: AnyTrace, found: Contents) -> Table:
    numbers = ("bytes", "block", "alloc at event", "free at event")
    table = plain_table("largest blocks", *numbers, "label", right=numbers)
    for held in found.largest:
        table.add_row(
            f"{held.size:,}",
            str(held.block),
            f"{held.event:,}",
            "never" if held.freed is None else f"{held.freed:,}",
            Text("" if held.label is None else one_line(trace.labels[held.label])),
        )
    return table


def _load(timeline: dict[str, NDArray[Any]], events: int) -> Group:
    from allocbench.output.text_drawings import plot

    title = f"live requested bytes over {units.count(events, 'event')}"
    if not len(timeline["event"]):
        return Group(Text(title, "bold"), Text("no alloc and no free"))
    width = max(1, min(_PLOT, console().width - _MARGIN - 2))
    lines = plot(timeline["event"], timeline["requested"], width=width)
    top = units.size(int(timeline["requested"].max()))
    margin = [top, *[""] * (len(lines) - 2), "0 B"]
    drawn = [f"{left:>{_MARGIN}} |{line}" for left, line in zip(margin, lines, strict=True)]
    return Group(Text(title, "bold"), *[Text(line, no_wrap=True) for line in drawn])
