# SPDX-License-Identifier: Apache-2.0
"""The command line: the list of commands, and what happens when one cannot do what it is asked.

A user's mistake is one line on standard error and exit code 2; nothing is left half-written.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from inspect import cleandoc
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from allocbench import __version__
from allocbench.base.text import one_line
from allocbench.commands import (
    asv_compare,
    asv_machine,
    asv_scrub,
    capture,
    compare,
    convert,
    explain,
    fit,
    inspect,
    match,
    plan,
    recommend,
    record,
    replay,
    report,
    sweep,
    tune,
)
from allocbench.commands import list as listing
from allocbench.commands import run as running
from allocbench.errors import USER_ERRORS

COMMANDS = (
    listing,
    compare,
    report,
    recommend,
    fit,
    explain,
    tune,
    sweep,
    replay,
    inspect,
    plan,
    convert,
    capture,
    record,
    match,
    running,
    asv_compare,
    asv_machine,
    asv_scrub,
)


class Group(TyperGroup):
    """Commands whose errors are one line; `context.obj` is the command line as written."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run a command and leave with its exit code."""
        given = sys.argv[1:] if args is None else [*args]
        extra |= {"standalone_mode": False, "obj": shlex.join(["allocbench", *given])}
        try:
            code = super().main(given or ["--help"], *rest, **extra)
            sys.stdout.flush()
        except TyperException as error:
            code = _fail(error.format_message())
        except USER_ERRORS as error:
            code = _fail(str(error))
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> int:
    print(f"error: {one_line(message)}", file=sys.stderr)
    return 2


def _version(wanted: bool) -> None:
    if wanted:
        print(f"allocbench {__version__}")
        raise typer.Exit


def _allocbench(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Compare GPU memory allocator strategies on real workloads, without a GPU."""


def _help(docstring: str) -> str:
    """A docstring with its paragraphs unbroken, for the terminal to break."""
    paragraphs = cleandoc(docstring).split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def _epilog(examples: Sequence[str]) -> str:
    return "\n".join(["Examples:", *(f"  $ {example}" for example in examples)])


def _app() -> typer.Typer:
    app = typer.Typer(
        cls=Group,
        name="allocbench",
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(epilog=_epilog(compare.EXAMPLES))(_allocbench)
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2].replace("_", "-")
        epilog = _epilog(command.EXAMPLES)
        app.command(name, help=_help(command.run.__doc__), epilog=epilog)(command.run)
    return app


app = _app()
