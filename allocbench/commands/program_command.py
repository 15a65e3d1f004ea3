# SPDX-License-Identifier: Apache-2.0
"""`-- COMMAND` on the command line: the words after two dashes are a program, and a workload.

`allocbench.cli` makes every command that takes a workload a `ProgramCommand`; to the commands
themselves, a program is just another workload.
"""

from collections.abc import Callable
from inspect import signature
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from allocbench.commands import described, options
from allocbench.inputs.devices import recorded_on
from allocbench.output.stdout import tell_notes

_DASHES = "--"
_COMMAND = "allocbench.command"


def takes_program(run: Callable[..., Any]) -> bool:
    """Whether a command has a workload among its arguments."""
    parameters = signature(run, eval_str=True).parameters.values()
    arguments = (
        about
        for parameter in parameters
        for about in getattr(parameter.annotation, "__metadata__", ())
    )
    return any(options.OR_COMMAND in (about.metavar or "") for about in arguments)


class ProgramCommand(TyperCommand):
    """A command that also takes a program, and the options that say how to run it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = {parameter.name for parameter in self.params}
        self.added = {
            parameter.name: parameter for parameter in _parameters() if parameter.name not in names
        }
        self.params = [*self.params, *self.added.values()]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Turn the words after two dashes into one workload."""
        if _DASHES in args:
            from allocbench.programs.program import text_of

            dashes = args.index(_DASHES)
            ctx.meta[_COMMAND] = command = args[dashes + 1 :]
            args = [*args[: dashes + 1], text_of(command)]
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command with the program's settings active."""
        given = {name: ctx.params.pop(name) for name in self.added}
        if _COMMAND not in ctx.meta:
            for name, value in given.items():
                if value:
                    raise typer.BadParameter(
                        f"--{name} is for a program, such as -- python train.py"
                    )
            return super().invoke(ctx)
        from allocbench.null_gpu.launch import values_of
        from allocbench.programs.program import STEPS, ProgramSettings, asked

        settings = ProgramSettings(
            device=given.get("device") or recorded_on(ctx.meta.get(options.DEVICE_GIVEN)),
            steps=given["steps"] or STEPS,
            seconds=given["timeout"],
            values=values_of(given["value"]),
            world=given["world"],
            again=bool(given["rerun"]),
            tell=lambda line: tell_notes([line]),
        )
        with asked(settings):
            return super().invoke(ctx)


def _parameters() -> list[Any]:
    alone = typer.Typer(add_completion=False)
    alone.command()(_options)
    built = described(typer.main.get_command(alone), _options.__doc__ or "")
    found = [parameter for parameter in built.params if parameter.name != "help"]
    for parameter in found:
        parameter.rich_help_panel = options.OF_PROGRAM
    return found


def _options(
    device: options.NullDevice = None,
    steps: Annotated[int | None, typer.Option(metavar="N", min=1)] = None,
    timeout: options.Timeout = None,
    value: options.Values = None,
    world: Annotated[int | None, typer.Option(metavar="N", min=1)] = None,
    rerun: Annotated[bool, typer.Option("--rerun")] = False,
) -> None:
    """How a program is run.

    Options:
        steps: End a program after this many optimizer steps, not counting one to warm up; default:
            5.
        world: Run the program as the first and the last of N ranks, each on a null GPU.
        rerun: Run the program even if a recording of it is stored.
    """
