# SPDX-License-Identifier: Apache-2.0
"""The tables of `compare` and `sweep`: advice, metrics of each workload, means, findings."""

from collections.abc import Sequence

import pandas as pd
from rich.console import Console

from allocbench.base.cards import notes
from allocbench.base.folding import least_width
from allocbench.output.terminal import console, fitting, left_out, say
from allocbench.reports.advice import findings
from allocbench.reports.page import tables
from allocbench.reports.rows import ranking, results

_SPARE = (
    "stable_address_share",
    "fragmentation_ratio",
    "device_seconds",
    "alloc_p99_seconds",
    "device_calls",
    "alloc_p50_seconds",
    "seconds_per_event_cold",
    "wasted",
    "peak_reserved",
)
"""Metrics that are left out on a narrow terminal, in this order."""
_NAME = 16  # letters of an allocator that are not folded, or more if a part of it is longer
_WIDEST = 1000


def show(table: pd.DataFrame, reference: str | None, everything: bool = False) -> None:
    """Print a checked frame: advice, a table for each workload and device, means, verdicts.

    everything: also what is assumed about cards.
    """
    out = console()
    cases = ranking.cases(table)
    for case in cases:
        say(f"{case.title}: {line}" for line in findings.advice(case).lines)
    with_cards = [case.device for case in cases if case.rows["card"].notna().any()]
    said = [line for device in with_cards for line in notes(device, everything=everything)]
    say(dict.fromkeys(said), "dim")
    out.print()
    _print_tables(out, tables.comparison(table, tables.TERMINAL, reference))
    _print_tables(out, tables.geometric_means(table, tables.MEANS, reference))
    say(f"{case.title}: {findings.sentence(findings.verdict(case))}" for case in cases)


def _print_tables(out: Console, complete: Sequence[tables.Table]) -> None:
    """Print tables with as many metrics as fit, and list the omitted ones."""
    shown = {heading.column.name for table in complete for heading in table.headings}
    built, hidden = fitting(
        lambda omitted: [table.without(omitted) for table in complete],
        lambda built: all(_width(out, table) <= out.width for table in built),
        [metric for metric in _SPARE if metric in shown],
    )
    for table in built:
        out.print(tables.to_rich(table))
        if hidden:
            headings = [results.SCHEMA[metric].heading for metric in hidden]
            out.print(left_out(headings, "--json, --html"))
        out.print()


def _width(out: Console, table: tables.Table) -> int:
    """Width of a table in characters if long names of allocators are folded."""
    options = out.options.update(max_width=_WIDEST)
    least = max(_NAME, *(least_width(row.allocator) for row in table.rows))
    folded = max(len(row.allocator) for row in table.rows) - least
    return out.measure(tables.to_rich(table), options=options).maximum - max(0, folded)
