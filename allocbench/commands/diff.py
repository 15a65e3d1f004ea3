# SPDX-License-Identifier: Apache-2.0
"""allocbench diff: what changed between two traces, or two allocators, part by part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from allocbench.base import units
from allocbench.commands import options
from allocbench.errors import UsageError
from allocbench.inputs import DEVICE
from allocbench.output.files import STDOUT, check_outputs, write_records, write_text, written
from allocbench.output.stdout import tell_notes
from allocbench.output.terminal import console, plain_table, say
from allocbench.reports.advice import diff as words
from allocbench.reports.rows.results import records

if TYPE_CHECKING:
    from allocbench.output.files import Write
    from allocbench.questions.diff import Difference, Side

EXAMPLES = (
    "allocbench diff snapshot.pickle trace.csv",
    "allocbench diff gpt2-train --versions 2.9,2.13",
    "allocbench diff gpt2-train --allocators caching,caching:expandable_segments=true",
    "allocbench diff --vary batch=8,16 -- python train.py --batch {batch}",
    "allocbench diff --vary torch=2.9.1,2.13.0 -- envs/{torch}/bin/python train.py",
)
_SHOWN = 12  # parts
_COMMON = "caching"


def run(
    old: options.Workload,
    new: Annotated[str | None, typer.Argument(metavar="[WORKLOAD|FILE]")] = None,
    allocators: Annotated[str, typer.Option(metavar="SPEC[,SPEC]")] = _COMMON,
    versions: Annotated[str | None, typer.Option(metavar="OLD,NEW")] = None,
    vary: Annotated[
        str | None, typer.Option(metavar="NAME=A,B", rich_help_panel=options.OF_PROGRAM)
    ] = None,
    device: options.Device = DEVICE,
    model: options.Model = None,
    json: Annotated[str | None, options.json_option("the parts")] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE")] = None,
) -> None:
    """Show what changed between two traces, two allocators, or two values of a program's option.

    The difference of the peaks of reserved bytes is the sum of its parts: blocks by kind, line and
    module of the model, bytes that rounding adds, and free bytes in segments. If both the requests
    and the allocator differ, the new requests are also replayed under the old rules, so that each
    part is due to the program or to the allocator. Parts of the program are new, gone, larger,
    smaller, freed later or earlier, or alive at another moment. The command also shows the first
    request that differs, and how many agree in order.

    A line that has only moved in its file is the same line. A replay has the memory that it needs.

    Options:
        new: The new one; default: the same again.
        allocators: The allocator of both, or that of the old and that of the new; see `list
            allocators`.
        versions: Two versions of PyTorch whose rules are compared: 2.9,2.13.
        vary: Replace {NAME} in the command line of a program by A and by B, numbers or words.
        html: Write a page with both curves as one HTML file.
    """
    from allocbench.inputs.question import check_specs
    from allocbench.questions import diff

    check_outputs(json, html, inputs=[name for name in (old, new) if name is not None])
    write_page = options.html_module().of_difference if html else None
    option = "--allocators" if versions is None else "--versions"
    specs = _specs(allocators, versions)
    check_specs(option, specs, device)
    sides, device = _sides(old, new, specs, vary, device, model)
    found = diff.diff(*sides, device)
    table = diff.frame(found)
    write = partial(write_records, table)
    outputs: dict[str | None, Write] = {json: write}
    if write_page:
        names = found.old.name, found.new.name
        parts = _parts(found, len(found.rows))
        made = write_page(names, _words(found), parts, diff.curves(found))
        outputs[html] = partial(write_text, made)
    with written(outputs, ".json", write):
        if STDOUT not in outputs:
            _print(found)


def _specs(allocators: str, versions: str | None) -> list[str]:
    """The specs of the old and the new side; one if they are equal."""
    from allocbench.inputs.question import allocator_specs

    specs = allocator_specs(allocators)
    if versions is not None:
        if allocators != _COMMON:
            raise UsageError("--versions and --allocators: give one of them")
        # The rules are those of a minor version: 2.9.1 has those of 2.9.
        minors = (".".join(version.split(".")[:2]) for version in versions.split(","))
        specs = [f"{_COMMON}:version={minor}" for minor in minors]
    if len(specs) > 2 or (versions is not None and len(specs) < 2):
        option = "--allocators" if versions is None else "--versions"
        raise UsageError(f"{option}: {len(specs)} given; diff compares two")
    return specs


def _sides(
    old: str, new: str | None, specs: list[str], vary: str | None, device: str, model: str | None
) -> tuple[tuple[Side, Side], str]:
    """The two sides, and the device; raises UsageError, and as `inputs.question.read`."""
    from allocbench.inputs.question import notes_on_recordings, read
    from allocbench.questions.diff import Side

    if vary is not None:
        if new is not None:
            raise UsageError("--vary compares a program with itself; name no other trace")
        traces = _varied(old, vary)
        notes = [
            note
            for name, trace in traces.items()
            for note in notes_on_recordings({name: trace}, specs[:1], device)
        ]
    else:
        if new is None and len(specs) == 1:
            raise UsageError(
                "name two traces, or with one trace two allocators (--allocators A,B), two versions"
                " (--versions 2.9,2.13) or two values of a program's option (--vary batch=8,16)"
            )
        questions = [
            read([workload], specs, device, option="--allocators", model=model)
            for workload in dict.fromkeys((old, new or old))
        ]
        device = questions[-1].device
        traces = dict(question.only for question in questions)
        if len(traces) < len(questions):  # equal names
            traces = dict(zip((old, str(new)), (one.only[1] for one in questions), strict=True))
        notes = [note for question in questions for note in question.notes]
    tell_notes(list(dict.fromkeys(notes)))
    names = list(traces)
    if len(names) == 1:
        names = specs if len(specs) == 2 else [f"{names[0]} ({side})" for side in ("old", "new")]
    first, *others = traces.values()
    return (
        Side(names[0], first, specs[0]),
        Side(names[1], [first, *others][-1], specs[-1]),
    ), device


def _varied(old: str, vary: str) -> dict[str, Any]:
    """The traces of a program with two values of an option, by name."""
    from allocbench.programs import is_program, program
    from allocbench.questions.vary import Variation

    name, _, listed = vary.partition("=")
    values = listed.split(",")
    if not is_program(old):
        raise UsageError("--vary is for a program: -- python train.py --batch {batch}")
    if not name.isidentifier() or not all(values):
        raise UsageError(f"--vary {vary}: write batch=8,16 or torch=2.9.1,2.13.0")
    if len(values) != 2:
        raise UsageError(f"--vary {vary}: {units.count(len(values), 'value')}; diff compares two")
    asked, hole = program.of_text(old), f"{{{name}}}"
    Variation(name, ()).check(asked)
    commands = {
        value: tuple(word.replace(hole, value) for word in asked.command) for value in values
    }
    return {
        f"{name}={value}": program.load(replace(asked, command=command))
        for value, command in commands.items()
    }


def _words(found: Difference) -> list[str]:
    names = found.old.name, found.new.name
    peaks = found.old_peak.reserved, found.between.reserved, found.new_peak.reserved
    lines = [words.headline(names, peaks)]
    parts = records(found.rows)

    def share(part: dict[str, Any]) -> int:
        """How much a part changes the peak as the whole does."""
        return int(part["change"]) * (found.change or 1)

    largest = max(parts, key=share, default=None)
    if largest:
        lines[0] += f" {words.most(largest)}"
    if largest and largest["what"] != "blocks" and found.old.trace is not found.new.trace:
        blocks = max((part for part in parts if part["what"] == "blocks"), key=share, default=None)
        if blocks and share(blocks) > 0:
            lines[0] += f" {words.most(blocks, ' of what the program requests')}"
    if found.first is not None:
        lines.append(
            words.first_change(names, found.first.event, found.first.step, found.first.words)
        )
    elif found.old.trace is not found.new.trace:
        lines.append("All requests are the same.")
    if found.agreement is not None and found.first is not None:
        shares = found.agreement
        lines.append(words.agreement(names, shares.matched, shares.old, shares.new))
    return lines


def _parts(found: Difference, most: int) -> list[tuple[str, str, str, str]]:
    """The largest parts, the rest as one, and their sum: change, old, new, what.

    most: at most so many parts, and none below a thousandth of the largest.
    """
    changes = found.rows["change"].abs()
    most = min(most, int((changes * 1000 >= changes.max()).sum()))

    def row(sizes: Iterable[int], text: str) -> tuple[str, str, str, str]:
        change, old, new = map(int, sizes)
        return words.signed(change), units.size(old), units.size(new), text

    numbers = ["change", "old", "new"]
    rows = [
        row([part[name] for name in numbers], words.what(part))
        for part in records(found.rows)[:most]
    ]
    if len(rest := found.rows[most:]):
        rows.append(row(rest[numbers].sum(), units.count(len(rest), "smaller part")))
    peaks = found.change, found.old_peak.reserved, found.new_peak.reserved
    return [*rows, row(peaks, "peak reserved, the sum")]


def _print(found: Difference) -> None:
    out = console()
    say(_words(found))
    out.print()
    numbers = ("change", "old", "new")
    table = plain_table("what the peak of reserved bytes consists of", *numbers, "", right=numbers)
    *parts, total = _parts(found, _SHOWN)
    for *sizes, text in parts:
        table.add_row(*sizes, Text(text))
    if parts:
        table.add_section()
    table.add_row(*total[:3], Text(total[3]))
    out.print(table)
