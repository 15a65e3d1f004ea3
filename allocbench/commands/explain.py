# SPDX-License-Identifier: Apache-2.0
"""allocbench explain: why a workload does not fit, and what would have saved it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from allocbench.base import units
from allocbench.base.cards import label, notes
from allocbench.base.text import one_line
from allocbench.commands import options
from allocbench.inputs import DEVICE
from allocbench.output.files import STDOUT, records_written
from allocbench.output.stdout import tell_notes
from allocbench.output.terminal import console, plain_table, progress_bar, say, show
from allocbench.reports.rows.results import records

if TYPE_CHECKING:
    import pandas as pd

    from allocbench.questions.explain import Attempt, Explanation

EXAMPLES = (
    "allocbench explain gpt2-train --allocator caching --device sim:8GiB",
    "allocbench explain trace.csv --allocator bfc --device sim:2MiB --json -",
    "allocbench explain --device null:l4 -- python train.py",
    "allocbench explain error.txt",
)
_PINS = 8  # shown
_MODULES = 8  # shown
_KINDS = 3  # shown of each module
_CHANGES = 10  # shown
_BAR = 64  # letters, where there is room
_SIZES = {
    "capacity": "capacity",
    "reserved": "reserved",
    "allocated": "allocated",
    "live": "requested",
    "free": "reserved but not allocated",
    "largest_free": "largest free block",
    "room": "not reserved",
}


def run(
    workload: options.Workload,
    allocator: options.Allocator = "caching",
    device: options.Device = DEVICE,
    model: options.Model = None,
    everything: options.Everything = False,
    exit_code: options.ExitCode = False,
    json: Annotated[str | None, options.json_option("the facts")] = None,
) -> None:
    """Explain the first request that fails: was the device full, or its free memory fragmented?

    The command shows the request and the operator that made it, the memory held and free, the
    blocks in the way, a map of the address space, and which single change of a setting or of the
    allocator completes the trace. Each change is tried in a replay. The memory is shown as it is
    after the allocator has returned everything that it can return to the device.

    For a training program, and for a recording with lines and optimizer steps, the command also
    shows what holds the memory: parameters, gradients, optimizer state, activations and workspaces,
    by line and by module of the model.

    The file may also be the text of an error, with a log around it, or - for standard input. The
    answer is then what its numbers prove: is the memory full, or may another arrangement help?
    Of a memory profile of JAX or a buffer assignment of XLA, the command shows what holds memory.
    """
    from allocbench.commands import error_answer
    from allocbench.inputs.question import Question, read_any
    from allocbench.questions import check, explain  # imported late: --help stays fast
    from allocbench.questions.holding import holders

    question = read_any(workload, allocator, device, model=model, outputs=[json])
    if not isinstance(question, Question):
        error_answer.answer(workload, question, json, device, failure_parts)
        if exit_code:
            raise typer.Exit(error_answer.as_check(workload, question, device).exit_code)
        return
    tell_notes(question.notes)
    run, device = question.runner(), question.device
    trace = run.trace
    with progress_bar(explain.STAGES) as begin:
        explanation = explain.explain(run, allocator, begin)
    title = f"{run.workload} through {allocator} on {label(device)}"
    held = holders(trace, None if explanation is None else explanation.failure.event - 1)
    with records_written(_records(explanation, held, trace.coverage.sentence or None), json):
        if json != STDOUT:
            if explanation is None:
                say([f"{title}: {explain.served(run, allocator, label(device))}"])
            else:
                say([explain.verdict(explanation)])
            say(notes(device, trace.provenance.device, everything), "dim")
            console().print()
            told: list[Table | Group | None] = [*_holders(held, explanation)]
            if explanation is not None:
                told = [_facts(title, explanation), *told, *failure_parts(explanation)]
            show(told)
    if exit_code:
        raise typer.Exit(check.exit_code(run, allocator))


def _records(
    explanation: Explanation | None, held: pd.DataFrame, coverage: str | None
) -> pd.DataFrame:
    """The facts of an explanation, with what holds the memory in the column `held`.

    Without a failure, one row if the trace tells what its blocks are or lacks something of its
    program, otherwise none. coverage: what it lacks, or None.
    """
    import pandas as pd

    from allocbench.questions.explain import frame

    rows = frame(explanation)
    told = bool(held["kind"].any() or held["module"].any())
    if rows.empty and (told or coverage):
        verdict = "no recorded request fails" if coverage else "no request fails"
        row = {"event": None, "kind": None, "verdict": verdict, "coverage": coverage}
        rows = pd.DataFrame([row])
    return rows.assign(held=pd.Series([tuple(held.to_dict("records"))])) if told else rows


def failure_parts(explanation: Explanation) -> list[Table | Group | None]:
    """The map of the memory, the blocks in the way, and the changes that help."""
    return [_map(explanation), _pins(explanation), _changes(explanation)]


def _facts(title: str, explanation: Explanation) -> Table:
    failure = explanation.failure
    table = plain_table(f"{title}: the first request that fails", "", "")
    by = f" by {one_line(failure.operator)}" if failure.operator else ""
    table.add_row("request", Text(f"{_size(failure.requested)}{by}"))
    step = f", step {failure.step:,}" if failure.step else ""
    table.add_row("when", f"event {failure.event:,} (from 0){step}")
    for name, words in _SIZES.items():
        table.add_row(words, _size(getattr(failure, name)))
    return table


def _size(size: int) -> str:
    return f"{units.size(size)} ({size:,} bytes)"


def _map(explanation: Explanation) -> Group:
    from allocbench.output.text_drawings import LEGEND, MARGIN, picture
    from allocbench.questions.explain import pins

    failure = explanation.failure
    width = max(1, min(_BAR, console().width - MARGIN))
    lines = picture(failure.segments, set(pins(explanation)["address"]), width=width)
    return Group(Text(f"segments: {LEGEND}"), Text("\n".join(lines)))


def _pins(explanation: Explanation) -> Table | None:
    from allocbench.questions.explain import pins

    rows = records(pins(explanation))
    if not rows:
        return None
    where = "one stretch of memory" if explanation.failure.in_one_stretch else "segments to release"
    count = f"{len(rows):,}" if len(rows) <= _PINS else f"the largest {_PINS} of {len(rows):,}"
    title = f"blocks in the way of the request, in {where}: {count}"
    headings = ("size", "alloc at event", "freed at event")
    table = plain_table(title, *headings, "operator", right=headings)
    for row in sorted(rows, key=lambda row: -row["size"])[:_PINS]:
        freed = "never" if row["freed"] is None else f"{row['freed']:,}"
        cells = units.size(row["size"]), f"{row['event']:,}", freed
        table.add_row(*cells, Text(one_line(row["operator"])))
    return table


def _changes(explanation: Explanation) -> Table | None:
    if not explanation.changes:
        return None
    saved = explanation.saved_by
    passing = [change for change in explanation.changes if change.passes and not change.completes]
    tried = len(explanation.changes)
    title = f"{len(saved)} of {tried} changes of a setting or of the allocator complete the trace"
    if passing:
        title += f"; {len(passing)} more serve this request but fail later"
    lines = [(text, "") for text in _by_setting(saved)]
    lines += [(text, "fails later") for text in _by_setting(passing)]
    if len(lines) > _CHANGES:
        title += f"; the first {_CHANGES} of {len(lines)} lines"
    table = plain_table(title, "change", "")
    for text, end in lines[:_CHANGES]:
        table.add_row(Text(text), end)
    return table


def _by_setting(changes: Sequence[Attempt]) -> list[str]:
    """The specs of the changes; values of the same setting are in one line."""
    values: dict[str, list[str]] = {}
    for change in changes:
        setting, equals, value = change.spec.rpartition("=")
        values.setdefault(setting + equals, []).append(value)
    return [f"{start}{' or '.join(found)}" for start, found in values.items()]


def _holders(held: pd.DataFrame, explanation: Explanation | None) -> Iterator[Table]:
    """What holds the memory by kind and by module, as far as the trace tells."""
    from allocbench.questions.holding import by_kind, by_module, places_in_words

    when = "at the peak of the load" if explanation is None else "when the request failed"
    numbers = ("bytes", "share", "blocks")
    if held["kind"].any() or held["place"].any():
        table = plain_table(
            f"what holds memory {when}", *numbers, "kind", "largest parts", right=numbers
        )
        for row in by_kind(held):
            cells = units.size(row["bytes"]), units.percent(row["share"]), f"{row['blocks']:,}"
            places = Text(places_in_words(row["places"]))
            table.add_row(*cells, Text(one_line(row["kind"]) or "of unknown kind"), places)
        yield table
    modules = by_module(held)
    if modules:
        count = f"the largest {_MODULES} of {len(modules)}" if len(modules) > _MODULES else "all"
        title = f"by module: {count}"
        table = plain_table(title, *numbers[:2], "module", "largest parts", right=numbers[:2])
        for row in modules[:_MODULES]:
            name = row["module"] + (f" ({row['modules']})" if row["modules"] > 1 else "")
            sizes = units.size(row["bytes"]), units.percent(row["share"])
            kinds = Text(places_in_words(row["kinds"][:_KINDS]))
            table.add_row(*sizes, Text(one_line(name)), kinds)
        yield table
