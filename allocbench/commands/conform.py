# SPDX-License-Identifier: Apache-2.0
"""allocbench conform: which promises of an allocator hold."""

from typing import Annotated

import typer

from allocbench.base.text import one_line
from allocbench.commands import options
from allocbench.errors import errors_naming
from allocbench.output.files import STDOUT, check_outputs, write_json
from allocbench.output.terminal import console, plain_table

EXAMPLES = ("allocbench conform caching", "allocbench conform naive --json -")


def run(
    allocator: Annotated[str, typer.Argument(metavar="ALLOCATOR")],
    json: Annotated[str | None, options.json_option("the promises")] = None,
) -> None:
    """Try which promises of an allocator hold: one from the list, or one of your own.

    Exit code 1 if a promise is broken that every allocator must keep.

    Options:
        allocator: A name of `list allocators` with its options, a shared library ./mine.so, or a
            Python class module:Class.
    """
    from allocbench.questions.conform import as_json, conform  # imported late: --help stays fast

    check_outputs(json)
    with errors_naming(allocator):
        promises = conform(allocator)
    if json:
        write_json(as_json(allocator, promises), json)
    if json != STDOUT:
        table = plain_table(f"promises of {one_line(allocator)}", "", "", "")
        before = ""
        for promise in promises:
            verdict = (
                "holds" if promise.holds else "BROKEN" if promise.required else "does not hold"
            )
            again = promise.seen and promise.seen == before
            table.add_row(promise.name, verdict, "the same" if again else one_line(promise.seen))
            before = promise.seen
        console().print(table)
    if any(promise.required and not promise.holds for promise in promises):
        raise typer.Exit(1)
