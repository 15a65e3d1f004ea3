# SPDX-License-Identifier: Apache-2.0
"""What is shown on a terminal: a console, plain tables, a progress bar on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 120  # columns where no terminal limits them


def console() -> Console:
    """A console on standard output, wide enough for tables where it is no terminal."""
    wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=_PIPE_WIDTH if wide else None, highlight=False)


def plain_table(title: str, *headings: str, right: Collection[str] = ()) -> Table:
    """An empty table with these headings, those in `right` over numbers."""
    table = Table(
        title=Text(title, "bold"),
        title_justify="left",
        box=rich.box.SIMPLE_HEAD,
        padding=(0, 2, 0, 0),
        show_edge=False,
        show_header=any(headings),
    )
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    return table


@contextmanager
def progress_bar(steps: int) -> Iterator[Callable[[str], None]]:
    """Show a bar of so many steps; what is yielded takes the name of each step as it begins.

    The bar is drawn at those moments alone: no thread takes time from what is being timed.
    """
    out = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=out,
        transient=True,
        auto_refresh=False,
        disable=not out.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=steps, completed=-1)

        def begin(name: str) -> None:
            bar.update(task, advance=1, description=escape(name), refresh=True)

        yield begin
