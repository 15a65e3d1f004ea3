# SPDX-License-Identifier: Apache-2.0
"""Verdict and comparison tables as Markdown, for a README or a pull request."""

import re

import pandas as pd

from allocbench.reports.advice import findings
from allocbench.reports.page import tables
from allocbench.reports.page.tables import Cell, Row, Table
from allocbench.reports.rows.ranking import cases

_SIGNIFICANT = re.compile(r"[\\`*_{}\[\]<>#|~&$@]|(?<=:)/|(?<=www)\.")


def render(table: pd.DataFrame, reference: str | None = None) -> str:
    """A checked frame as GitHub Markdown, with the best in bold; names appear literally.

    Raises ResultError when a workload has no row `reference`.
    """
    parts = []
    for case in cases(table):
        lines = [*findings.advice(case).lines, findings.sentence(findings.verdict(case))]
        parts.append("\n\n".join([f"### {escape(case.title)}", *map(escape, lines)]))
        parts.append(_table(tables.case_table(case, tables.SUMMARY, reference)))
    parts += [_table(mean) for mean in tables.geometric_means(table, reference=reference)]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it stands, on one line, with no link, tag or mention in it."""
    plain = " ".join(text.split())
    # A reference for each letter of a name with a meaning: a backslash would leave @names alone.
    return _SIGNIFICANT.sub(lambda letter: f"&#{ord(letter[0])};", plain)


def _table(table: Table) -> str:
    headings = ["allocator", *(heading.text for heading in table.headings)]
    lines = [
        _line(headings),
        _line(["---", *("---:" for _ in table.headings)]),
        *(_line([_name(row), *map(_cell, row.cells)]) for row in table.rows),
    ]
    absent = f" Not available: {', '.join(table.absent)}." if table.absent else ""
    signs = "Bold: best of the candidates that served every request."
    return "\n".join(
        [*lines, "", f"{escape(table.title)}: {escape(table.caption)}. {signs}{absent}"]
    )


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _name(row: Row) -> str:
    notes = [
        *(["reference"] if row.is_reference else []),
        *([] if row.candidate else ["floor"]),
        *([f"{row.failures:,} failed"] if row.failures else []),
    ]
    return escape(row.allocator) + (f" ({', '.join(notes)})" if notes else "")


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    note = cell.reason or cell.ratio_text
    ratio = f" ({note})" if note else ""
    return f"**{text}**{ratio}" if cell.mark == "best" else f"{text}{ratio}"
