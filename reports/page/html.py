# SPDX-License-Identifier: Apache-2.0
"""The HTML report: a bundle of results in, one self-contained file out.

This module collects the parts; `tables`, `findings`, `charts` and the figures compute them;
`templates/` contains the layout and the scripts.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from allocbench.base.extra import needs_extra
from allocbench.reports.advice import findings
from allocbench.reports.advice.findings import Claim
from allocbench.reports.charts import charts
from allocbench.reports.output import ResultError, write_text
from allocbench.reports.page import embedded_tables, tables
from allocbench.reports.page.tables import Table
from allocbench.reports.rows import bundle
from allocbench.reports.rows.bundle import Bundle
from allocbench.reports.rows.details import of_run
from allocbench.reports.rows.ranking import Case, cases, ranked
from allocbench.reports.rows.results import COLUMNS, SCHEMA, Column, Rows, frame

with needs_extra("report"):
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from allocbench.reports.charts import theme
    from allocbench.reports.charts.charts import Chart

_SCRIPTS = ("data.js", "sort.js", "tables.js", "explorer.js", "map.js", "page.js")
_EXPLORED = ("memory", "moments", "free_blocks", "instants", "ranges", "blocks", "failures")
_TABLES = (*_EXPLORED, "omitted", "marks", "latency", "percentiles", "scaling", "lifetimes")
_FIRST = 4  # allocators that an explorer shows at first
_LEAST = ("min_capacity", "peak_reserved")


@dataclass(frozen=True)
class Figure:
    """A chart on the page with a picture for wide screens and, unless None, one for phones."""

    chart: Chart
    wide: Markup
    narrow: Markup | None


@dataclass(frozen=True)
class FailureText:
    """The first failed request of one allocator, in words; whether the address map shows it."""

    allocator: str
    words: str


@dataclass(frozen=True)
class Section:
    """One workload on one device: its verdict, its tables, its charts."""

    key: str
    case: Case
    advice: tuple[str, str]
    answer: Sequence[tuple[str, ...]]
    claims: tuple[Claim, ...]
    why: str
    summary: Table
    everything: Table
    trade: Figure | None
    memory: Figure | None
    has_map: bool
    failures: tuple[FailureText, ...]
    figures: tuple[Figure, ...]


def render(
    results: Bundle | Rows,
    *,
    command: str | None = None,
    reference: str | None = None,
    history: pd.DataFrame | None = None,
) -> str:
    """The report as one HTML document; the same input gives the same text.

    `results` may be rows without details; the report then lacks the charts that need them, and says
    so. `command` is shown as the command line that made the report. Ratios are to the allocator
    `reference`, or to the first candidate. `history` is what `asv.history` reads. Raises
    ResultError for rows that break their schema, for no rows, and for an unknown reference.
    """
    bundle_given = results if isinstance(results, Bundle) else Bundle(frame(results))
    table = bundle_given.rows
    if table.empty:
        raise ResultError("no result rows to report")
    all_cases = cases(table)
    looks = theme.looks(all_cases)
    environment = Environment(
        loader=PackageLoader("allocbench.reports.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [
        _section(bundle_given, case, n, reference, looks) for n, case in enumerate(all_cases, 1)
    ]
    over_all = charts.across(table)
    single = charts.of_rows(table)
    past = [] if history is None else list(charts.of_history(history, looks))
    every = [
        *over_all,
        *single,
        *past,
        *(figure.chart for section in sections for figure in _all(section)),
    ]
    scripts = [_vendored("uPlot.iife.min.js"), "\n".join(_template(name) for name in _SCRIPTS)]
    return environment.get_template("report.html.j2").render(
        sections=sections,
        means=tables.geometric_means(table, reference=reference),
        across=[_figure(chart) for chart in over_all],
        charts=[_figure(chart) for chart in single],
        history=[_figure(chart) for chart in past],
        allocators=list(dict.fromkeys(table["allocator"])),
        workloads=list(dict.fromkeys(table["workload"])),
        devices=list(dict.fromkeys(table["device"])),
        definitions=_definitions(table),
        provenance=_provenance(table, command),
        absent=charts.absent(bundle_given.details, all_cases),
        data=_embedded(bundle_given, sections, every, looks, reference),
        scripts=[Markup(script) for script in scripts],
        policy=" ".join(f"'{_digest(script)}'" for script in scripts),
        styles=Markup(_vendored("uPlot.min.css")),
    )


def write(
    results: Bundle | Rows,
    path: str | Path,
    *,
    command: str | None = None,
    reference: str | None = None,
    history: pd.DataFrame | None = None,
) -> None:
    """Write the report of `render` to a file, whole or not at all; "-" is standard output."""
    text = render(results, command=command, reference=reference, history=history)
    write_text(text, path)


def _section(
    given: bundle.Bundle,
    case: Case,
    number: int,
    reference: str | None,
    looks: Mapping[str, theme.Look],
) -> Section:
    key = f"workload-{number}"
    run = {"workload": case.workload, "device": case.device}
    detailed = list(charts.of_case(given.details, case, key, looks))
    trade = charts.trade(given.rows, case, key)
    memory = next((chart for chart in detailed if chart.table == "memory"), None)
    failures = of_run(given.details, "failures", **run)
    return Section(
        key=key,
        case=case,
        advice=findings.advice(case).lines,
        answer=findings.answer(case),
        claims=findings.verdict(case),
        why=charts.verdict_why(case),
        summary=tables.case_table(case, tables.SUMMARY, reference),
        everything=tables.case_table(case, tables.ALL, reference),
        trade=_figure(trade) if trade else None,
        memory=_figure(memory, phone=False) if memory else None,
        has_map=not of_run(given.details, "blocks", **run).empty,
        failures=tuple(
            FailureText(row["allocator"], charts.failure(row))
            for row in failures.to_dict("records")
        ),
        figures=tuple(_figure(chart) for chart in detailed if not chart.in_explorer),
    )


def _all(section: Section) -> list[Figure]:
    return [figure for figure in (section.trade, section.memory, *section.figures) if figure]


def _figure(chart: Chart, *, phone: bool = True) -> Figure:
    wide = theme.inline(chart.draw(), chart.key, chart.title, chart.words)
    if not phone:
        return Figure(chart, wide, None)
    with theme.narrow():
        figure = chart.draw()
    narrow = theme.inline(figure, f"{chart.key}-narrow", chart.title, chart.words)
    return Figure(chart, wide, narrow)


def _embedded(
    given: Bundle,
    sections: Sequence[Section],
    every: Sequence[Chart],
    looks: Mapping[str, theme.Look],
    reference: str | None,
) -> Markup:
    """The tables that scripts read: those of the details, and of each chart that has its own."""
    kept = {name: given.details[name] for name in _TABLES if not given.details[name].empty}
    if "blocks" in kept:
        kept |= _apart(kept["blocks"])
    kept |= {chart.key: chart.data for chart in every if chart.table is None}
    about = {chart.key: {"table": chart.table or chart.key, "key": chart.of} for chart in every}
    shown = [_about(section, looks, reference) for section in sections]
    packed = embedded_tables.pack(kept, cases=shown, charts=about)
    return Markup(packed)


def _apart(blocks: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Packs the columns that the blocks of all allocators share once; the page joins them again.

    The size of a block is stored as the bytes that it has beyond the request, which differ less.
    """
    of_trace = ["requested", "first", "last", "label"]
    allocs = blocks[["workload", "block", *of_trace]].drop_duplicates(["workload", "block"])
    return {
        "blocks": blocks.assign(rounding=blocks["size"] - blocks["requested"]).drop(
            columns=["size", *of_trace]
        ),
        "allocs": allocs.sort_values(["workload", "block"], kind="stable"),
    }


def _about(
    section: Section, looks: Mapping[str, theme.Look], reference: str | None
) -> dict[str, Any]:
    """What scripts need to know about a case in addition to its tables."""
    case = section.case
    first = _shown_first(case, reference)
    return {
        "id": section.key,
        "workload": case.workload,
        "device": case.device,
        "events": int(case.rows["events"].max()),
        "max_load": case.max_load,
        "reference": case.reference(reference),
        "allocators": [
            {
                "name": name,
                "color": looks[name].color,
                "dash": list(looks[name].dash),
                "first": name in first,
            }
            for name in case.allocators
            if name not in case.unavailable
        ],
    }


def _shown_first(case: Case, reference: str | None) -> set[str]:
    """The allocators shown at first: the reference, those of the verdict, the best by memory."""
    advice = findings.advice(case)
    least = [str(name) for metric in _LEAST for name in ranked(case.rows, SCHEMA[metric]).index]
    wanted = [case.reference(reference), advice.setting, advice.allocator, *least]
    return set([name for name in dict.fromkeys([*wanted, *case.allocators]) if name][:_FIRST])


@cache
def _template(name: str) -> str:
    return (files("allocbench.reports.page") / "templates" / name).read_text(encoding="utf-8")


@cache
def _vendored(name: str) -> str:
    return (
        (files("allocbench.reports.page") / "vendor" / "uplot" / name)
        .read_text(encoding="utf-8")
        .strip()
    )


def _digest(script: str) -> str:
    """The hash with which the page's content security policy allows a script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _definitions(table: pd.DataFrame) -> list[Column]:
    """The columns in which some row has a number."""
    return [column for column in COLUMNS if column.unit and table[column.name].notna().any()]


def _provenance(table: pd.DataFrame, command: str | None) -> list[tuple[str, list[str]]]:
    """Where the numbers come from: each fact with its distinct values."""
    kinds = table[["device", "device_kind"]].drop_duplicates().itertuples(index=False)
    sources = table[["device", "device_seconds_source"]].dropna().drop_duplicates()
    costs = [f"{device}: {source}" for device, source in sources.itertuples(index=False)]
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
