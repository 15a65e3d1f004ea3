# SPDX-License-Identifier: Apache-2.0
"""The command line: help, errors and exit codes.

A user error is one line on standard error and exit code 2; nothing is left half-written. A command
imports what it needs when it runs, so help and version appear quickly.
"""

import gc
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from allocbench.base.errors import UserError
from allocbench.base.text import command_text, one_line
from allocbench.commands import COMMANDS, EXAMPLES, described
from allocbench.output import stdout

_OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Python's 700 look at all modules again and again while they are imported: 5 % of a comparison."""


class _Quick:
    """A command without arguments to convert, which therefore does not import pydantic."""

    def get_help_option(self, context: Any) -> Any:
        """The help option with the default False; None would be converted to a bool."""
        option = super().get_help_option(context)  # type: ignore[misc]
        if option is not None:
            option.default = False
        return option


class _QuickGroup(_Quick, TyperGroup):
    pass


class _PartsGroup(_QuickGroup):
    """A command with optional subcommands."""

    def get_command(self, context: Any, name: str) -> Any:
        """The subcommand with a name; the error for a wrong name lists all names."""
        known_command = super().get_command(context, name)
        if known_command is None:
            valid = ", ".join(f"'{command}'" for command in self.commands)
            raise typer.BadParameter(f"'{name}' is not one of {valid}", ctx=context)
        return known_command


class _QuickCommand(_Quick, TyperCommand):
    pass


class Group(_QuickGroup):
    """Commands whose errors are one line; `context.obj` is the command line as written."""

    _writing_help = False

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run a command and exit with its code."""
        command_line = sys.argv[1:] if args is None else [*args]
        extra |= {"standalone_mode": False, "obj": command_text(["allocbench", *command_line])}
        stdout.open_closed()
        stdout.accept_any_text()
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        if {"-h", "--help"} & {*command_line}:
            _shape_help()
        try:
            code = super().main(_with_outputs(command_line) or ["--help"], *rest, **extra)
            sys.stdout.flush()
        except BrokenPipeError:
            stdout.abandon()
            code = 1
        except Exception as error:
            code = _fail(error)
        sys.exit(code if isinstance(code, int) else 0)

    def get_command(self, context: Any, name: str) -> Any:
        """The command with a name, imported; while help is written, only its entry."""
        entry = super().get_command(context, name)
        if entry is None and (instead := _meant(name)):
            raise UserError(f"no command '{name}': try 'allocbench {instead}'")
        return entry if entry is None or self._writing_help else _loaded(name)

    def format_help(self, context: Any, formatter: Any) -> None:
        """Write the help without importing any command."""
        self._writing_help = True
        try:
            super().format_help(context, formatter)
        finally:
            self._writing_help = False


def _meant(name: str) -> str:
    """What to write instead of a word that is no command, if it is a file or what `list` lists."""
    from allocbench.commands.list import PARTS

    if name in PARTS:
        return f"list {name}"
    if not Path(name).is_file():
        return ""
    return f"check -- python {name}" if name.endswith(".py") else f"check {name}"


def _shape_help() -> None:
    """Let typer fold a name that is longer than its column, and show no type of a flag."""
    from rich.table import Table
    from typer import rich_utils

    class Folding(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(*("" if str(cell) == "<bool>" else cell for cell in cells), **options)
            texts = [part for cell in cells for part in getattr(cell, "renderables", ())]
            for one in (*self.columns, *texts):
                one.overflow = "fold"

    rich_utils.Table = Folding  # type: ignore[attr-defined]


def _with_outputs(command_line: Sequence[str]) -> list[str]:
    """The command line in which --json and --markdown without a file name standard output."""
    end = command_line.index("--") if "--" in command_line else len(command_line)
    arguments: list[str] = []
    for argument, following in pairwise([*command_line[:end], "--"]):
        arguments.append(argument)
        if argument in ("--json", "--markdown") and following.startswith("-") and following != "-":
            arguments.append("-")
    return [*arguments, *command_line[end:]]


def _fail(error: Exception) -> int:
    """Print a user error in one line; raises all other errors again."""
    if isinstance(error, TyperException):
        message = error.format_message().replace("Value error, ", "")
    elif isinstance(error, OSError) and (failure := stdout.failure(error)):
        stdout.abandon()
        message = failure
    elif isinstance(error, OSError):
        message = _told(error)
    elif isinstance(error, MemoryError):
        message = f"not enough memory: {error}" if str(error) else "not enough memory"
    else:
        from allocbench.errors import USER_ERRORS

        if not isinstance(error, USER_ERRORS):
            raise error
        message = str(error)
    stdout.tell_error(f"error: {one_line(message)}")
    return 2


def _told(error: OSError) -> str:
    """What the system refused: a file, or a process, memory or space that a command needs."""
    try:
        os.getcwd()
    except OSError:
        return "the current folder no longer exists; change to another one"
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"{error.filename}: {reason}"


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
    """Say whether a program fits a GPU and what would help, and compare memory allocators."""


def _epilog(examples: Sequence[str]) -> str:
    return "\n".join(["Examples:", *(f"  $ {example}" for example in examples)])


def _loaded(name: str) -> Any:
    """Import the module of a command, and build the command with its arguments and options."""
    (command,) = (listed for listed in COMMANDS if listed.name == name)
    module = command.load()
    docstring = module.run.__doc__ or command.summary  # python -OO keeps no docstrings
    epilog = _epilog(module.EXAMPLES)
    parts = getattr(module, "PARTS", None)
    if parts is None:
        from allocbench.commands.program_command import ProgramCommand, takes_program

        alone = typer.Typer(add_completion=False)
        kind = ProgramCommand if takes_program(module.run) else TyperCommand
        alone.command(name, cls=kind, epilog=epilog)(module.run)
    else:
        alone = typer.Typer(
            cls=_PartsGroup,
            name=name,
            add_completion=False,
            subcommand_metavar="[PART]",
            result_callback=lambda tables: tables and module.show(tables),
        )
        alone.callback(invoke_without_command=True, epilog=epilog)(module.run)
        for part, tables in parts.items():
            alone.command(part, cls=_QuickCommand, help=tables.__doc__)(tables)
    return described(typer.main.get_command(alone), docstring)


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
