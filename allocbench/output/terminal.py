# SPDX-License-Identifier: Apache-2.0
"""Output on a terminal: a console, plain tables, a progress bar on standard error.

The modules of the progress bar are imported when the first one is shown.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from typing import Any, TypeAlias, TypeVar

import rich.box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from allocbench.base.folding import FoldedText
from allocbench.base.text import printable

Row: TypeAlias = Mapping[str, Any]
Built = TypeVar("Built")

_WATCHED = (
    "min_capacity",
    "peak_reserved",
    "overhead",
    "seconds_per_event_steady",
    "alloc_p99_seconds",
    "device_seconds",
    "failures",
)
_PIPE_WIDTH = 120  # characters, without a terminal
_LEAST_TEXT = 12  # characters of a column of text: narrower ones cannot be read
_GAP = 2  # characters to the right of each column


class _TextConsole(Console):
    """A console that folds text as tables do, and to which no text can send commands."""

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """Print objects; soft_wrap: leave the lines as they are, such as those of code."""
        folds = [FoldedText(one) if isinstance(one, Text) else one for one in objects]
        super().print(*(objects if soft_wrap else folds), soft_wrap=soft_wrap, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text, "\n"), style, control)


def console() -> Console:
    """A console on standard output; wide enough for tables if it is not a terminal."""
    wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return _TextConsole(width=_PIPE_WIDTH if wide else None, highlight=False)


def say(lines: Iterable[str], style: str = "") -> None:
    """Print sentences on standard output."""
    for line in lines:
        console().print(Text(line, style))


def show(parts: Iterable[RenderableType | None]) -> None:
    """Print parts with a line between them, without those that are None."""
    out = console()
    for n, part in enumerate(part for part in parts if part is not None):
        if n:
            out.print()
        out.print(part)


class _PlainTable(Table):
    """A table that stays readable on a narrow terminal.

    If its columns do not fit, it leaves out those in `spare`. If they still do not fit, each row is
    a list of its cells, one below the other.
    """

    spare: Collection[str] = ()
    """Headings of columns that repeat what others say."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:  # a line of its own, so that it is not as narrow as the columns
            yield self.title
        self = copy(self)
        self.title = None
        self.columns = [copy(column) for column in self.columns]
        widths = self._widths(console, options)
        if widths is not None or not self.show_header:
            for column, width in zip(self.columns, widths or (), strict=False):
                column.width = width
            yield from super().__rich_console__(console, options)
        elif self.spare:
            self.columns = [c for c in self.columns if str(c.header) not in self.spare]
            self.spare = ()
            yield self
        else:
            yield from self._one_below_the_other()

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row; text in columns that are not of numbers is folded between parts of names."""
        folds = [not column.no_wrap for column in self.columns]
        shown = [
            FoldedText(cell) if fold and isinstance(cell, str | Text) else cell
            for cell, fold in zip(cells, [*folds, *[True] * len(cells)], strict=False)
        ]
        super().add_row(*shown, **options)

    def _widths(self, console: Console, options: ConsoleOptions) -> list[int] | None:
        """The width of each column, at most that of the console; None if that is too narrow."""
        measured = [
            [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
            for column in self.columns
        ]
        most = [max(cell.maximum for cell in column) for column in measured]
        least = [
            width
            if column.no_wrap
            else min(width, max(_LEAST_TEXT, *(cell.minimum for cell in cells)))
            for column, width, cells in zip(self.columns, most, measured, strict=True)
        ]
        room = options.max_width - _GAP * len(most) - self._extra_width
        if sum(least) > room:
            return None
        while sum(most) > room:
            widest = max((n for n in range(len(most)) if most[n] > least[n]), key=lambda n: most[n])
            most[widest] -= 1
        return most

    def _one_below_the_other(self) -> RenderResult:
        headings = [str(column.header).replace("\n", " ") for column in self.columns]
        for number, cells in enumerate(zip(*(c.cells for c in self.columns), strict=True)):
            if number:
                yield ""
            row = plain_table("", "", "")
            for heading, cell in zip(headings, cells, strict=True):
                if str(cell):
                    row.add_row(heading, cell)
            yield row


def plain_table(
    title: str, *headings: str, right: Collection[str] = (), spare: Collection[str] = ()
) -> Table:
    """An empty table with these headings; columns in `right` hold numbers, aligned right.

    On a narrow terminal, text is folded; numbers never are. If the columns still do not fit, those
    in `spare` are left out, and then the cells of each row are shown one below the other.
    """
    narrow = console().width < _PIPE_WIDTH
    table = _PlainTable(
        title=Text(title, "bold"),
        title_justify="left",
        box=rich.box.SIMPLE_HEAD,
        padding=(0, _GAP, 0, 0),
        show_edge=False,
        show_header=any(headings),
    )
    table.spare = spare
    for heading in headings:
        if heading in right:
            words = heading.replace(" ", "\n") if narrow else heading
            table.add_column(words, justify="right", no_wrap=True)
        else:
            table.add_column(heading, overflow="fold")
    return table


def fitting(
    build: Callable[[Sequence[str]], Built], fits: Callable[[Built], bool], spare: Sequence[str]
) -> tuple[Built, Sequence[str]]:
    """What `build` makes without as few of `spare` as possible, and the ones that are left out.

    The first of `spare` are left out first, until the result fits or all are left out.
    """
    for count in range(len(spare)):
        built = build(spare[:count])
        if fits(built):
            return built, spare[:count]
    return build(spare), spare


def left_out(headings: Sequence[str], options: str) -> Text:
    """The line below a table without some columns; options: those that show all of them."""
    hidden = ", ".join(headings)
    return Text(f"not shown for lack of space: {hidden}; see {options}", "dim")


@contextmanager
def progress_bar(stages: int | None) -> Iterator[Callable[[str], None]]:
    """Show a bar; call the yielded function with the name of each stage as it begins.

    The bar is drawn only in these calls: no thread takes time from the measured code.
    """
    with dashboard(stages) as (begin, _):
        yield begin


@contextmanager
def dashboard(stages: int | None) -> Iterator[tuple[Callable[[str], None], Callable[[Row], None]]]:
    """Show a bar, like `progress_bar`, and above it a table of the results so far.

    Call the second function with each finished result row. Both disappear when the block ends.
    """
    from rich.live import Live
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    out = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )
    task = bar.add_task("", total=stages, completed=-1)
    rows: list[Row] = []

    def drawn() -> RenderableType:
        room = max(1, out.height - 6)  # the table's own lines, the bar and the prompt
        return Group(_so_far(rows, room), bar) if rows else bar

    with (
        Live(get_renderable=drawn, console=out, transient=True, auto_refresh=False)
        if out.is_terminal
        else nullcontext() as live
    ):

        def begin(name: str) -> None:
            bar.update(task, advance=1, description=escape(name))
            if live:
                live.refresh()

        def done(row: Row) -> None:
            rows.append(row)
            if live:
                live.refresh()

        yield begin, done


def _so_far(rows: Sequence[Row], most: int) -> Table:
    """The latest rows; the best of each workload so far is green."""
    from allocbench.reports.rows.results import SCHEMA  # imports pandas

    headings = [SCHEMA[name].heading for name in _WATCHED]
    table = plain_table("So far", "workload", "allocator", *headings, right=headings)
    for row in rows[-most:]:
        rivals = [other for other in rows if other["workload"] == row["workload"]]
        cells = [
            Text(SCHEMA[name].text(row[name]), "green" if leads(row, rivals, name) else "")
            for name in _WATCHED
        ]
        table.add_row(Text(row["workload"]), Text(row["allocator"]), *cells)
    return table


def leads(row: Row, rivals: Sequence[Row], metric: str) -> bool:
    """Whether a row has the least of the candidates that served every request."""
    ranked = [other for other in rivals if other["candidate"] and not other["failures"]]
    values = [other[metric] for other in ranked if other[metric] is not None]
    return row in ranked and bool(values) and row[metric] == min(values)
