# SPDX-License-Identifier: Apache-2.0
"""Comparison tables as plain data: per workload, and the geometric mean across workloads.

The terminal (`to_rich`), Markdown (`to_markdown`) and the HTML template render `Table`; none of
them computes anything.
"""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pandas as pd
import rich.box
from rich.table import Table as RichTable
from rich.text import Text

from allocbench.base import units
from allocbench.base.cards import label
from allocbench.base.folding import FoldedText, least_width
from allocbench.reports.advice import findings
from allocbench.reports.rows import ranking
from allocbench.reports.rows.assumptions import largest_ratio
from allocbench.reports.rows.ranking import Case, Mark, cases, cell, interval, marks
from allocbench.reports.rows.results import COLUMNS, SCHEMA, Column

TERMINAL = (
    "min_capacity",
    "peak_reserved",
    "wasted",
    "fragmentation_ratio",
    "stable_address_share",
    "alloc_p99_seconds",
    "seconds_per_event_steady",
    "device_seconds",
    "failures",
)
SUMMARY = (*TERMINAL[:-2], "device_calls", *TERMINAL[-2:])
_ENDS = {end for c in COLUMNS if c.low for end in (c.low, c.high)}
ALL = tuple(c.name for c in COLUMNS if c.unit and c.group != "workload" and c.name not in _ENDS)
MEANS = (
    "min_capacity",
    "peak_reserved",
    "seconds_per_event_steady",
    "seconds_per_event_cold",
    "alloc_p50_seconds",
    "alloc_p99_seconds",
    "device_calls",
    "device_seconds",
)

HEAT = ("overhead", "min_capacity", "seconds_per_event_steady", "alloc_p99_seconds")

_STYLES: dict[Mark, str] = {"": "", "best": "bold green", "worst": "red", "failed": "bold red"}
_SIGNS: dict[Mark, str] = {"": " ", "best": "+", "worst": "-", "failed": "!"}


@dataclass(frozen=True)
class Cell:
    """One number: as text, exact, and relative to the reference row (None: n/a).

    `reason` says why there is no number; empty if there is one.
    """

    text: str
    exact: str
    value: float | int | None
    ratio: float | None
    mark: Mark
    reason: str = ""

    @property
    def ratio_text(self) -> str:
        """The ratio to the reference row, or an empty text."""
        return "" if self.ratio is None else units.times(self.ratio)


@dataclass(frozen=True)
class Row:
    """One allocator: its cells in the order of the table's columns."""

    allocator: str
    candidate: bool
    is_reference: bool
    failures: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Heading:
    """A column of a table: the column of the schema, and a label for its numbers, if needed."""

    column: Column
    label: str

    @property
    def text(self) -> str:
        """The heading with its label."""
        return f"{self.column.heading} ({self.label})" if self.label else self.column.heading


@dataclass(frozen=True)
class Table:
    """A comparison: rows are allocators, columns metrics. `absent` names metrics without values."""

    title: str
    caption: str
    headings: tuple[Heading, ...]
    rows: tuple[Row, ...]
    absent: tuple[str, ...]

    def without(self, metrics: Collection[str]) -> Self:
        """The table without some columns, by the names of their metrics."""
        kept = [n for n, one in enumerate(self.headings) if one.column.name not in metrics]
        rows = (replace(row, cells=tuple(row.cells[n] for n in kept)) for row in self.rows)
        headings = tuple(self.headings[n] for n in kept)
        return replace(self, headings=headings, rows=tuple(rows))


def comparison(
    table: pd.DataFrame, metrics: Sequence[str] = ALL, reference: str | None = None
) -> list[Table]:
    """One table for each workload and device of a checked frame.

    Ratios refer to the row `reference`, or to the first candidate if it is None. Best and worst
    are marked among the candidates without failed requests. Raises ResultError if a workload has
    no row `reference`.
    """
    return [case_table(case, metrics, reference) for case in cases(table)]


def case_table(case: Case, metrics: Sequence[str] = ALL, reference: str | None = None) -> Table:
    """The table of one case; see `comparison`."""
    base = case.reference(reference)
    columns = [SCHEMA[name] for name in metrics]
    return _build(case.title, _case_caption(case, base), case.rows, base, columns)


def geometric_means(
    table: pd.DataFrame, metrics: Sequence[str] = MEANS, reference: str | None = None
) -> list[Table]:
    """For each device with two or more workloads, the geometric mean of the ratios over them.

    An allocator has a mean only if it and the reference row have a value above 0 on every
    workload. Failures are added up. Raises ResultError like `comparison`.
    """
    by_device: dict[str, list[Case]] = {}
    for case in cases(table):
        by_device.setdefault(case.device, []).append(case)
    return [
        _means(members, base, metrics)
        for members in by_device.values()
        if len(members) > 1 and (base := _mean_reference(members, reference)) is not None
    ]


def heats(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """The metrics of HEAT that some case has: a title, the titles of the cases, and the rows.

    A row is an allocator, and for each case a text and the ratio to its best, NaN for none.
    """
    names = list(dict.fromkeys(name for case in cases for name in case.allocators))
    found = []
    for column in (SCHEMA[metric] for metric in HEAT):
        if not any(case.rows[column.name].notna().any() for case in cases):
            continue
        ratios, texts = ranking.ratios_to_best(cases, names, column)
        rows = [
            (name, [(texts[n, m], float(ratios[n, m])) for m in range(len(cases))])
            for n, name in enumerate(names)
        ]
        title = f"{column.heading.capitalize()} on every workload"
        found.append({"title": title, "cases": [case.title for case in cases], "rows": rows})
    return found


def to_rich(table: Table) -> RichTable:
    """The table for a terminal: 122 columns wide for `TERMINAL` with names of 22 letters.

    The first memory and the first time column carry the ratio to the reference row. Marks are
    signs as well as colors: + best, - worst, ! failed requests.
    """
    drawn = RichTable(
        title=Text(table.title, style="bold"),
        caption=Text(_legend(table), style="dim"),
        title_justify="left",
        caption_justify="left",
        box=rich.box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    least = max((least_width(row.allocator) for row in table.rows), default=0)
    drawn.add_column("allocator", vertical="top", min_width=least)
    for heading in table.headings:
        drawn.add_column(Text(heading.text.replace(" ", "\n")), justify="right", no_wrap=True)
    with_ratio = [
        next((n for n, h in enumerate(table.headings) if h.column.group == group), -1)
        for group in ("memory", "time")
    ]
    for row in table.rows:
        cells = [_cell_text(cell, n in with_ratio) for n, cell in enumerate(row.cells)]
        drawn.add_row(FoldedText(_row_name(row)), *cells, style="" if row.candidate else "dim")
    return drawn


def _build(
    title: str, caption: str, rows: pd.DataFrame, base: str, columns: Sequence[Column]
) -> Table:
    shown = [column for column in columns if rows[column.name].notna().any()]
    cells = [_cells(rows, column, base) for column in shown]
    return Table(
        title,
        caption,
        tuple(Heading(column, _label(rows, column)) for column in shown),
        tuple(
            Row(
                allocator=str(name),
                candidate=bool(cell(rows, str(name), "candidate")),
                is_reference=name == base,
                failures=int(cell(rows, str(name), "failures") or 0),
                cells=tuple(column[n] for column in cells),
            )
            for n, name in enumerate(rows.index)
        ),
        tuple(column.heading for column in columns if column not in shown),
    )


def _cells(rows: pd.DataFrame, column: Column, base: str) -> list[Cell]:
    marked = _failed(rows) if column.name == "failures" else marks(rows, column)
    against = cell(rows, base, column.name)
    comparable = column.lower_is_better is not None and column.unit != "ratio" and bool(against)
    values = {str(name): cell(rows, str(name), column.name) for name in rows.index}
    return [
        Cell(
            ranking.text(rows, name, column),
            _exact(rows, name, column, value),
            value,
            value / against if comparable and against and value is not None else None,
            marked.get(name, ""),
            _why_absent(rows, name, column) if value is None else "",
        )
        for name, value in values.items()
    ]


def _exact(rows: pd.DataFrame, name: str, column: Column, value: float | int | None) -> str:
    """The number unrounded, with the interval of its passes or of its assumed costs, if any."""
    text = column.exact(value)
    low, high = interval(rows, name, column)
    if value is None or low == high or not math.isfinite(high):
        return text
    what = "the passes" if ranking.measured(rows, name, column) else "within the assumed costs"
    return f"{text}; {what}: {column.text(low)} to {column.text(high)}"


def _why_absent(rows: pd.DataFrame, name: str, column: Column) -> str:
    of_one_case = "max_load" in rows
    if cell(rows, name, "unavailable"):
        return "no result"
    if column.name in ("overhead", "wasted") and cell(rows, name, "failures"):
        return "requests failed"
    if column.name.startswith("external_fragmentation"):
        return "keeps no free blocks"
    if column.name == "min_capacity":
        return "no capacity is large enough" if of_one_case else "not on every workload"
    if column.group == "plan":
        return "has no plan"
    return "not measured" if of_one_case else "not on every workload"


def _failed(rows: pd.DataFrame) -> dict[str, Mark]:
    return {str(name): "failed" for name in rows.index[rows["failures"].fillna(0) > 0]}


def _label(rows: pd.DataFrame, column: Column) -> str:
    if column.name != "device_seconds" or "device_seconds_source" not in rows.columns:
        return ""
    return " and ".join(rows["device_seconds_source"].dropna().unique())


def _case_caption(case: Case, base: str) -> str:
    events = ", ".join(f"{n:,}" for n in case.rows["events"].unique())
    bound = "" if case.max_load is None else f", max load {units.size(case.max_load)}"
    reasons = "".join(f"\n{name} is n/a: it {why}" for name, why in case.unavailable.items())
    return f"{events} events{bound}, on {label(case.device)}; ratios are to {base}{reasons}"


def _mean_reference(members: Sequence[Case], reference: str | None) -> str | None:
    """The reference row of means: `reference`, or the first candidate in every case."""
    if reference is not None:
        for case in members:
            case.reference(reference)
        return reference
    return next(
        (
            name
            for name in members[0].allocators
            if name not in members[0].floors
            and name not in members[0].unavailable
            and all(name in case.rows.index for case in members[1:])
        ),
        None,
    )


def _means(members: Sequence[Case], base: str, metrics: Sequence[str]) -> Table:
    """One row per allocator; each cell is the geometric mean of its ratios over the cases."""
    merged = pd.concat([case.rows for case in members]).sort_values(
        "candidate", ascending=False, kind="stable"
    )
    rows = merged.groupby(level=0, sort=False)[["candidate"]].first()
    rows["failures"] = merged["failures"].groupby(level=0).sum()
    rows["device_seconds_source"] = merged["device_seconds_source"].groupby(level=0).first()
    columns = [replace(SCHEMA[name], unit="ratio", median="") for name in metrics]
    names = [str(name) for name in rows.index]
    for column in columns:
        for metric in filter(None, (column.name, column.low, column.high)):
            rows[metric] = [_mean(members, name, base, metric, column.name) for name in names]
    if "device_seconds" in metrics and set(rows["device_seconds_source"].dropna()) == {"estimate"}:
        ends = [_mean_estimate(members, name, base) for name in names]
        rows[["device_seconds_low", "device_seconds_high"]] = ends
    rows["passes"] = merged["passes"].groupby(level=0).min()
    return _build(
        f"Geometric mean over {len(members)} workloads",
        f"each number is the mean ratio to {base}, on {label(members[0].device)}",
        rows,
        base,
        [*columns, SCHEMA["failures"]],
    )


def _mean(members: Sequence[Case], name: str, base: str, metric: str, against: str) -> float:
    """The geometric mean of one allocator's ratios of a metric to the metric `against` of `base`.

    NaN if a workload has no ratio.
    """
    logarithms = []
    for case in members:
        value = case.number(name, metric) if name in case.rows.index else None
        reference = case.number(base, against)
        if not value or not reference:
            return math.nan
        logarithms.append(math.log(value / reference))
    return math.exp(math.fsum(logarithms) / len(logarithms))


def _mean_estimate(members: Sequence[Case], name: str, base: str) -> tuple[float, float]:
    """The ends of the geometric mean of one allocator's ratios of estimates to those of `base`.

    The costs within their ranges that make a ratio least, or largest, in each workload.
    """
    least = most = 0.0
    for case in members:
        found = name in case.rows.index and case.number(name, "device_seconds")
        if not found or not case.number(base, "device_seconds"):
            return math.nan, math.nan
        mine, reference = ranking.estimate(case.rows, name), ranking.estimate(case.rows, base)
        least -= math.log(largest_ratio(reference, mine))
        most += math.log(largest_ratio(mine, reference))
    return math.exp(least / len(members)), math.exp(most / len(members))


def _legend(table: Table) -> str:
    """The caption of a terminal table: the meaning of numbers and signs."""
    marks = {one.mark for row in table.rows for one in row.cells}
    ranked = "; + best, - worst of the candidates" if marks & {"best", "worst"} else ""
    failed = "; ! requests failed: not ranked" if "failed" in marks else ""
    absent = f"\nnot available: {', '.join(table.absent)}" if table.absent else ""
    return f"{table.caption}\nlower is better{ranked}{failed}{absent}"


def _row_name(row: Row) -> Text:
    name = Text(row.allocator)
    if row.is_reference:
        name.append(" (reference)", "dim")
    if not row.candidate:
        name.append(" (floor)", "dim")
    if row.failures:
        name.append(" (failed)", _STYLES["failed"])
    return name


def _cell_text(cell: Cell, with_ratio: bool) -> Text:
    ratio = f" {cell.ratio_text:>5}" if with_ratio and cell.ratio is not None else ""
    return Text(f"{cell.text}{ratio}{_SIGNS[cell.mark]}", style=_STYLES[cell.mark])


_SIGNIFICANT = re.compile(r"[\\`*_{}\[\]<>#|~&$@]|(?<=:)/|(?<=www)\.")


def to_markdown(table: pd.DataFrame, reference: str | None = None) -> str:
    """A checked frame as GitHub Markdown, with the best in bold; names appear literally.

    Raises ResultError when a workload has no row `reference`.
    """
    parts = []
    for case in cases(table):
        lines = [*findings.advice(case).lines, findings.sentence(findings.verdict(case))]
        parts.append("\n\n".join([f"### {markdown_text(case.title)}", *map(markdown_text, lines)]))
        parts.append(_markdown_table(case_table(case, SUMMARY, reference)))
    parts += [_markdown_table(mean) for mean in geometric_means(table, reference=reference)]
    return "\n\n".join(parts) + "\n"


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it stands, on one line, with no link, tag or mention in it."""
    plain = " ".join(text.split())
    # A reference for each letter of a name with a meaning: a backslash would leave @names alone.
    return _SIGNIFICANT.sub(lambda letter: f"&#{ord(letter[0])};", plain)


def _markdown_table(table: Table) -> str:
    lines = [
        ["allocator", *(heading.text for heading in table.headings)],
        ["---", *("---:" for _ in table.headings)],
        *([_markdown_name(row), *map(_markdown_cell, row.cells)] for row in table.rows),
    ]
    drawn = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    absent = f" Not available: {', '.join(table.absent)}." if table.absent else ""
    signs = "Bold: best of the candidates that served every request."
    title, caption = markdown_text(table.title), markdown_text(table.caption)
    return f"{drawn}\n\n{title}: {caption}. {signs}{absent}"


def _markdown_name(row: Row) -> str:
    notes = [
        *(["reference"] if row.is_reference else []),
        *([] if row.candidate else ["floor"]),
        *([f"{row.failures:,} failed"] if row.failures else []),
    ]
    return markdown_text(row.allocator) + (f" ({', '.join(notes)})" if notes else "")


def _markdown_cell(cell: Cell) -> str:
    text = markdown_text(cell.text)
    note = cell.reason or cell.ratio_text
    ratio = f" ({note})" if note else ""
    return f"**{text}**{ratio}" if cell.mark == "best" else f"{text}{ratio}"
