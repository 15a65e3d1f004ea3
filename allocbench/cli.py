# SPDX-License-Identifier: Apache-2.0
"""The command line: its help, and what happens when a command cannot do what it is asked.

A user's mistake is one line on standard error and exit code 2; nothing is left half-written. What a
command needs is imported when the command is run, so that help and version come at once.
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

from allocbench.base.text import one_line
from allocbench.commands import COMMANDS, EXAMPLES, Command


class Group(TyperGroup):
    """Commands whose errors are one line; `context.obj` is the command line as written."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run a command and leave with its exit code."""
        given = sys.argv[1:] if args is None else [*args]
        extra |= {"standalone_mode": False, "obj": shlex.join(["allocbench", *given])}
        try:
            code = super().main(given or ["--help"], *rest, **extra)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        except Exception as error:
            code = _fail(error)
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, context: Any, args: list[str]) -> Any:
        """Put the command itself in the place of its entry in the help."""
        name, _, rest = super().resolve_command(context, args)
        (command,) = (one for one in COMMANDS if one.name == name)
        return name, _loaded(command), rest


def _fail(error: Exception) -> int:
    """Tell a user's mistake in one line; raises again what is none."""
    if isinstance(error, TyperException):
        message = error.format_message()
    else:
        from allocbench.errors import USER_ERRORS  # imports all that raises them

        if not isinstance(error, USER_ERRORS):
            raise error
        message = str(error)
    print(f"error: {one_line(message)}", file=sys.stderr)
    return 2


def _version(wanted: bool) -> None:
    if wanted:
        from allocbench import __version__

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


def _loaded(command: Command) -> Any:
    """The command with its arguments and options, which imports its module."""
    module = command.load()
    alone = typer.Typer(add_completion=False)
    help_, epilog = _help(module.run.__doc__), _epilog(module.EXAMPLES)
    alone.command(command.name, help=help_, epilog=epilog)(module.run)
    return typer.main.get_command(alone)


def _app() -> typer.Typer:
    app = typer.Typer(
        cls=Group,
        name="allocbench",
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(epilog=_epilog(EXAMPLES))(_allocbench)
    for command in COMMANDS:
        entry = app.command(command.name, help=command.summary, rich_help_panel=command.group)
        entry(lambda: None)
    return app


app = _app()
