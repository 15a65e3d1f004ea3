# SPDX-License-Identifier: Apache-2.0
"""allocbench match: how far a capture agrees with a recording of the same program."""

from __future__ import annotations

import json as json_text
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from allocbench.base import units
from allocbench.commands import options
from allocbench.output.files import STDOUT, check_outputs, open_output, written
from allocbench.output.terminal import console, plain_table

if TYPE_CHECKING:
    from allocbench.workloads.alignment import Match

EXAMPLES = (
    "allocbench match gpt2-train trace.parquet",
    "allocbench match trace.parquet trace.csv --rounding 512 --smallest 1MiB",
)
_MISSED = 10  # sizes shown


def run(
    captured: Annotated[
        str, typer.Argument(metavar="CAPTURED", help="The trace to check, a workload or a file.")
    ],
    recorded: Annotated[
        str,
        typer.Argument(metavar="RECORDED", help="The trace that is correct, a workload or a file."),
    ],
    rounding: Annotated[int, options.bytes_option("Round sizes up to multiples of BYTES.")] = 1,
    smallest: Annotated[int, options.bytes_option("Ignore blocks smaller than BYTES.")] = 0,
    json: options.Json = None,
) -> None:
    """Match two traces of the same program event by event, and compare their peaks.

    The match is the longest sequence of allocs and frees, compared by size, that both traces
    contain in the same order. Marks, streams and block ids are ignored.
    """
    from allocbench.inputs.traces import load  # imported late: --help stays fast
    from allocbench.workloads.alignment import agreement

    check_outputs(json, inputs=[captured, recorded])
    match = agreement(load(captured), load(recorded), rounding, smallest)
    write = partial(_write, match)
    with written({json: write} if json else {}, ".json", write):
        if json != STDOUT:
            _print(match)


def _write(match: Match, path: str) -> None:
    derived = {name: getattr(match, name) for name in ("precision", "recall", "peak_error")}
    with open_output(path) as sink:
        sink.write(json_text.dumps(asdict(match) | derived).encode() + b"\n")


def _print(match: Match) -> None:
    out = console()
    out.print(_table(match))
    if match.missed:
        out.print()
        out.print(_missed(match))


def _table(match: Match) -> Table:
    table = plain_table("", "", "captured", "recorded", right=("captured", "recorded"))
    events = f"{match.captured_events:,}", f"{match.recorded_events:,}"
    table.add_row("allocs and frees", *events)
    table.add_row("matched", f"{match.matched:,}", f"{match.matched:,}")
    shares = (f"{share:.2%}" for share in (match.precision, match.recall))
    table.add_row("share matched", *shares)
    table.add_row("peak", units.size(match.captured_peak), units.size(match.recorded_peak))
    table.add_row("peak error", f"{match.peak_error:+.2%}", "")
    return table


def _missed(match: Match) -> Table:
    numbers = ("size", "more allocs", "bytes")
    table = plain_table("recorded more often than captured", *numbers, right=numbers)
    most = sorted(match.missed.items(), key=lambda item: -item[0] * item[1])
    for size, count in most[:_MISSED]:
        table.add_row(units.size(size), f"{count:,}", units.size(size * count))
    if len(most) > _MISSED:
        table.add_row(Text(f"{len(most) - _MISSED:,} more sizes"), "", "")
    return table
