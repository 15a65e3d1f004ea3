# SPDX-License-Identifier: Apache-2.0
"""allocbench replay: replay one trace through one allocator and show every metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer
from rich.table import Table

from allocbench.commands import options
from allocbench.inputs import DEVICE
from allocbench.output.files import STDOUT, Write, open_output, written
from allocbench.output.stdout import tell_notes
from allocbench.output.terminal import console, plain_table, progress_bar
from allocbench.replays import PASSES
from allocbench.reports.rows import results

if TYPE_CHECKING:
    from allocbench.replays.runner import Arrays, Row
    from allocbench.workloads.exporters.replayed_trace import ReplayedTrace

EXAMPLES = (
    "allocbench replay gpt2-train --allocator bfc",
    "allocbench replay trace.csv --allocator buddy --placements placed.csv",
    "allocbench replay llm-decode --allocator buddy:region=2GiB --time 21 --pin 0",
    "allocbench replay trace.parquet --allocator arena --json -",
    "allocbench replay gpt2-train --allocator bfc --snapshot bfc.pickle --perfetto bfc.json",
)
_PLACEMENTS = ("block", "segment", "offset", "size")


def run(
    workload: options.Workload,
    allocator: options.Allocator = "caching",
    device: options.Device = DEVICE,
    model: options.Model = None,
    time: options.Passes = PASSES,
    min_capacity: options.Capacity = True,
    pin: options.Pin = None,
    json: options.Json = None,
    placements: Annotated[str | None, typer.Option(metavar="FILE")] = None,
    snapshot: Annotated[str | None, typer.Option(metavar="FILE")] = None,
    perfetto: Annotated[str | None, typer.Option(metavar="FILE")] = None,
) -> None:
    """Replay a trace through one allocator and show every metric.

    A failed request is counted, and the replay continues without its block. If a file goes to
    standard output, nothing else is printed. A trace of more than 10 million events is not kept in
    memory if it is Parquet or CSV as allocbench writes it: the file is read again for each replay,
    unless --snapshot or --perfetto needs all of it.

    Options:
        placements: Write a CSV of block,segment,offset,size, one row per alloc event; a failed
            request has -1,-1 and size 0; - is standard output.
        snapshot: Write a PyTorch memory snapshot of the simulated segments and blocks at the end,
            with the history, for pytorch.org/memory_viz; - is standard output.
        perfetto: Write requested, allocated and reserved bytes over time, with steps and phases, as
            Chrome JSON for ui.perfetto.dev; - is standard output.
    """
    from allocbench.inputs.question import read_large
    from allocbench.replays import experiment, replayed  # imported late: --help stays fast
    from allocbench.replays.experiment import Effort
    from allocbench.workloads import Trace
    from allocbench.workloads.exporters.perfetto import write_perfetto
    from allocbench.workloads.exporters.pytorch_snapshot import write_snapshot

    question = read_large(
        workload,
        allocator,
        device,
        model=model,
        outputs=[json, placements, snapshot, perfetto],
        pin=pin,
        whole=bool(snapshot or perfetto),
    )
    tell_notes(question.notes)
    (name, trace), device = question.only, question.device
    effort = Effort(time, min_capacity)
    with _placements_to(placements) as write, progress_bar(len(effort.stages)) as begin:
        row, _ = experiment.run(
            trace, allocator, device, effort, workload=name, stage=begin, placements=write
        )
        write_row = partial(results.write, [row])
        outputs: dict[str | None, Write] = {json: write_row}
        tell_notes(question.notes_on_failures(row["failures"]))
        if snapshot or perfetto:
            assert isinstance(trace, Trace)
            after = replayed.replayed(trace, allocator, device)
            exports = {snapshot: write_snapshot, perfetto: write_perfetto}
            outputs |= {path: partial(_export, after, to) for path, to in exports.items()}
    with written(outputs, ".json", write_row):
        if STDOUT not in (placements, *outputs):
            console().print(_metrics(row))


@contextmanager
def _placements_to(path: str | None) -> Iterator[Callable[[Arrays], None] | None]:
    if path is None:
        yield None
        return
    import pyarrow as pa
    import pyarrow.csv

    with open_output(path) as sink:

        def write(placements: Arrays) -> None:
            table = pa.table({name: placements[name] for name in _PLACEMENTS})
            pyarrow.csv.write_csv(table, sink, pyarrow.csv.WriteOptions(include_header=False))

        sink.write(",".join(_PLACEMENTS).encode() + b"\n")
        yield write


def _export(
    after: ReplayedTrace, write: Callable[[ReplayedTrace, BinaryIO], None], path: str
) -> None:
    with open_output(path) as sink:
        write(after, sink)


def _metrics(row: Row) -> Table:
    title = f"{row['workload']} through {row['allocator']} on {row['device']}"
    headings = "metric", "value", "exactly"
    table = plain_table(title, *headings, right=headings[1:], spare=headings[2:])
    group = ""
    for column in results.COLUMNS:
        if not column.unit or row[column.name] is None:
            continue
        if group not in ("", column.group):
            table.add_section()
        group = column.group
        source = f" ({row['device_seconds_source']})" if column.name == "device_seconds" else ""
        number = row[column.name]
        shown = column.text(number), column.exact(number)
        table.add_row(column.heading + source, *shown)
    return table
