# SPDX-License-Identifier: Apache-2.0
"""The HTML report: rows and timelines in, one self-contained file out.

This module gathers; `tables`, `findings` and `figures` compute; `templates/` says how it looks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from reports import findings, tables
from reports.extra import needs_extra
from reports.findings import Claim
from reports.output import ResultError, write_text
from reports.ranking import Case, cases
from reports.results import COLUMNS, Column, Rows, frame
from reports.tables import Table

with needs_extra("report"):
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from reports import figures, svg
    from reports.figures import Timelines

Words: TypeAlias = Callable[[Sequence[Case]], str]


@dataclass(frozen=True)
class Chart:
    """A figure on the page: its heading, how to read it, what it shows in words, the picture."""

    key: str
    title: str
    caption: str
    words: str
    picture: Markup


@dataclass(frozen=True)
class Section:
    """One workload on one device: its verdict, its tables, its memory over time."""

    key: str
    case: Case
    claims: tuple[Claim, ...]
    tables: tuple[tuple[str, Table], ...]
    everything: Table
    chart: Chart | None


@dataclass(frozen=True)
class _Kind:
    """A chart over all workloads, drawn when some row has all of `needs`."""

    key: str
    title: str
    caption: str
    draw: Callable[[pd.DataFrame], Figure]
    words: Words
    needs: tuple[str, ...]


def _kind(
    key: str,
    title: str,
    caption: str,
    draw: Callable[[pd.DataFrame], Figure],
    metrics: Sequence[str],
) -> _Kind:
    """A chart that shows each metric by itself."""
    return _Kind(key, title, caption, draw, lambda found: _each(found, metrics), tuple(metrics[:1]))


def _each(found: Sequence[Case], metrics: Sequence[str]) -> str:
    """The metrics in words, one after the other, named when there are several."""
    words = [findings.describe(found, metric) for metric in metrics]
    if len(metrics) == 1:
        return words[0]
    names = [metric.replace("_", " ").capitalize() for metric in metrics]
    return " ".join(f"{name}: {text}" for name, text in zip(names, words, strict=True))


_KINDS = (
    _Kind(
        "trade",
        "Latency against peak memory",
        "Down and to the left is better: less memory held, less host time for one alloc. The line"
        " joins the median to the 99th percentile. Host time only; device time is below.",
        figures.latency_against_memory,
        lambda found: findings.describe_trade(found, figures.LATENCY[1]),
        ("peak_reserved", *figures.LATENCY),
    ),
    _kind(
        "capacity",
        "Min capacity",
        "The smallest device on which each workload completes with no failed request. Nothing can"
        " go below the load bound.",
        figures.min_capacity,
        ["min_capacity"],
    ),
    _kind(
        "overhead",
        "Overhead",
        "Peak reserved bytes over the max load; 1 is the bound. The axis fits the candidates: a"
        " floor's bar may be cut, its number is not.",
        figures.overhead,
        ["overhead"],
    ),
    _kind(
        "fragmentation",
        "Internal and external fragmentation",
        "At the instant reserved bytes first peak. Internal: bytes lost to rounding. External: the"
        " part of the free bytes that is not in the largest free block.",
        figures.fragmentation,
        figures.FRAGMENTATION,
    ),
    _kind(
        "host",
        "Host time per event",
        "The minimum of the passes, with a line to their median. Steady: the same allocator"
        " replays the trace again. Cold: a new allocator each pass.",
        figures.host_time,
        figures.HOST_TIME,
    ),
    _kind(
        "device",
        "Device time",
        "What the calls to the device cost, on a logarithmic axis. On a simulated device it is"
        " modelled, an estimate; it is never part of host time.",
        figures.device_time,
        ["device_seconds"],
    ),
)


def render(
    rows: Rows,
    timelines: Timelines | None = None,
    *,
    command: str | None = None,
    reference: str | None = None,
) -> str:
    """The report as one HTML document; the same input gives the same text.

    `timelines` maps (workload, allocator) to columns event, requested, allocated, reserved; they
    do not say on which device, and are drawn for the workloads that have one device only.
    `command` is shown as the command line that made the report. Ratios are to the allocator
    `reference`, or to the first candidate. Raises ResultError for rows or timelines that break
    their schema, for no rows, and for an unknown reference.
    """
    table = frame(rows)
    if table.empty:
        raise ResultError("no result rows to report")
    found = cases(table)
    environment = Environment(
        loader=PackageLoader("reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        sections=[
            _section(table, case, n, timelines or {}, reference) for n, case in enumerate(found, 1)
        ],
        means=tables.geometric_means(table, reference=reference),
        charts=[_chart(table, found, kind) for kind in _KINDS if _drawable(table, kind)],
        allocators=list(dict.fromkeys(table["allocator"])),
        devices=list(dict.fromkeys(table["device"])),
        definitions=_definitions(table),
        provenance=_provenance(table, command),
    )


def write(
    rows: Rows,
    timelines: Timelines | None,
    path: str | Path,
    *,
    command: str | None = None,
    reference: str | None = None,
) -> None:
    """Write the report of `render` to a file, whole or not at all; "-" is standard output."""
    write_text(render(rows, timelines, command=command, reference=reference), path)


def _section(
    table: pd.DataFrame, case: Case, number: int, timelines: Timelines, reference: str | None
) -> Section:
    key = f"workload-{number}"
    return Section(
        key=key,
        case=case,
        claims=findings.verdict(case),
        tables=(
            ("Memory", tables.case_table(case, tables.MEMORY, reference)),
            ("Time", tables.case_table(case, tables.TIME, reference)),
        ),
        everything=tables.case_table(case, tables.ALL, reference),
        chart=_memory_chart(table, case, key, timelines),
    )


def _memory_chart(table: pd.DataFrame, case: Case, key: str, timelines: Timelines) -> Chart | None:
    one_device = table.loc[table["workload"] == case.workload, "device"].nunique() == 1
    if not one_device or not any((case.workload, name) in timelines for name in case.allocators):
        return None
    figure = figures.memory_over_time(table, timelines, case.workload)
    title = f"Memory over time: {case.title}"
    words = findings.describe_memory(case)
    picture = svg.inline(figure, f"{key}-memory", title, words)
    caption = (
        "Light: reserved bytes; dark: allocated bytes; what lies between is held from the device"
        " but allocated to nothing. All panels share one scale. Long traces are drawn by the"
        " maximum of each interval."
    )
    return Chart(f"{key}-memory", "Memory over time", caption, words, picture)


def _drawable(table: pd.DataFrame, kind: _Kind) -> bool:
    return bool(table[list(kind.needs)].notna().all(axis=1).any())


def _chart(table: pd.DataFrame, found: Sequence[Case], kind: _Kind) -> Chart:
    words = kind.words(found)
    picture = svg.inline(kind.draw(table), kind.key, kind.title, words)
    return Chart(kind.key, kind.title, kind.caption, words, picture)


def _definitions(table: pd.DataFrame) -> list[Column]:
    """The columns some row has a number for."""
    return [column for column in COLUMNS if column.unit and table[column.name].notna().any()]


def _provenance(table: pd.DataFrame, command: str | None) -> list[tuple[str, list[str]]]:
    """Where the numbers come from: each fact with its distinct values."""
    kinds = table[["device", "device_kind"]].drop_duplicates().itertuples(index=False)
    sources = table[["device", "device_seconds_source"]].dropna().drop_duplicates()
    costs = [
        f"{device}: {'modelled, estimate' if source == 'estimate' else source}"
        for device, source in sources.itertuples(index=False)
    ]
    facts = [
        ("device", [f"{device} ({kind})" for device, kind in kinds]),
        ("device time", costs),
        *(
            (column.heading, [str(value) for value in table[column.name].dropna().unique()])
            for column in COLUMNS
            if column.group == "origin"
        ),
        ("command", [command.encode("utf-8", "replace").decode()] if command else []),
    ]
    return [(label, values) for label, values in facts if values]
