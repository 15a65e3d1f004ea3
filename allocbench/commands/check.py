# SPDX-License-Identifier: Apache-2.0
"""allocbench check: does it fit, what helps if not, and who holds the memory?"""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from allocbench.base import units
from allocbench.base.error_text import ErrorText
from allocbench.base.text import one_line
from allocbench.commands import options
from allocbench.inputs import DEVICE, Unchosen
from allocbench.output.files import STDOUT, check_outputs, open_output, written
from allocbench.output.terminal import console, plain_table, progress_bar
from allocbench.reports.advice.check import RECORDED, WORDS, Answer, Remedy, exit_code
from allocbench.workloads.vocabulary import TraceError

EXAMPLES = (
    "allocbench check --device l4 -- python train.py",
    "allocbench check snapshot.pickle",
    "allocbench check error.txt",
    "allocbench check gpt2-train llm-decode --device l4,rtx-4090,h100",
)
_WHAT = {
    "setting": "with a setting",
    "batch": "a smaller batch",
    "card": "a larger card",
    "allocator": "another allocator",
}
_TRIED = {"replay": "replayed", "run": "run"}


def run(
    workloads: options.Workloads,
    device: options.Devices = None,
    allocator: options.Allocator = "caching",
    model: options.Model = None,
    json: Annotated[str | None, options.json_option("the answers")] = None,
) -> None:
    """Does it fit? If not: what helps, who holds the memory, and what is not known.

    The first line is the verdict. Then come at most five changes with which it fits, the easiest
    first; each was tried by a replay of the trace or a run of the program. Without --device, the
    answer is for the card on which a recording failed, or else the smallest card that is enough.

    Several inputs or devices are a table. The exit code is 0 if everything fits as it is, 1 if
    something does not, and 2 if that cannot be told.
    """
    check_outputs(json, inputs=workloads)
    answers = list(_answers(workloads, device or [None], allocator, model))
    write = partial(_write, answers)
    with written({json: write} if json else {}, ".json", write):
        if json != STDOUT:
            if len(answers) == 1:
                _show(answers[0])
            else:
                _show_table(answers)
    raise typer.Exit(exit_code(answers))


def _answers(
    workloads: Sequence[str], devices: Sequence[str | None], allocator: str, model: str | None
) -> Iterator[Answer]:
    """The answers, by workload and then by device."""
    from allocbench.commands.error_answer import as_check
    from allocbench.inputs.devices import device_of, recorded_on
    from allocbench.inputs.question import read
    from allocbench.programs import program
    from allocbench.questions import check

    for workload in workloads:
        for given in devices:
            device = DEVICE if given is None else device_of(given)
            try:
                with program.asked_on(recorded_on(given), quiet=True):
                    question = read(
                        [workload],
                        [allocator],
                        device,
                        option="--allocator",
                        model=model,
                        without_events=True,
                    )
            except TraceError as error:
                content = getattr(error.__cause__, "content", None)
                if not isinstance(content, ErrorText):
                    raise
                yield as_check(workload, content, device)
                continue
            name, trace = question.only
            where = None if isinstance(question.device, Unchosen) else question.device
            recorded = given is None and where is not None
            with progress_bar(None) as begin:
                yield check.check(
                    trace,
                    where,
                    workload=name,
                    where=RECORDED if recorded else "",
                    allocator=allocator,
                    begin=begin,
                )


def _write(answers: Sequence[Answer], path: str) -> None:
    """Write the answers as a JSON list; - is standard output."""
    with open_output(path) as sink:
        sink.write(json_text.dumps([asdict(one) for one in answers], indent=1).encode() + b"\n")


def _show(answer: Answer) -> None:
    from allocbench.questions.holding import places_in_words

    out = console()
    out.print(Text(answer.sentence, "bold"))
    if answer.remedies:
        table = plain_table("", "", "", "")
        for remedy in answer.remedies:
            table.add_row(f"  {_WHAT[remedy.kind]}", Text(_change(remedy)), _outcome(remedy))
        out.print(table)
    if answer.holders:
        out.print(Text(f"In use {answer.when}:"))
        for holder in answer.holders:
            kind = one_line(holder.kind) or "of unknown kind"
            out.print(Text(f"{units.size(holder.bytes):>10}  {kind}"))
            if holder.places:
                places = Text(places_in_words(holder.places))
                out.print(Padding(places, (0, 0, 0, 14)))
    for line in answer.unknown:
        out.print(Text(line))


def _change(remedy: Remedy) -> str:
    if remedy.kind == "setting":
        return remedy.how.splitlines()[0]
    if remedy.kind == "card" and remedy.setting:
        return f"{remedy.change}, with {remedy.setting}"
    return remedy.change


def _outcome(remedy: Remedy) -> str:
    tried = _TRIED[remedy.tried]
    return tried if remedy.need is None else f"needs {units.size(remedy.need)} ({tried})"


def _show_table(answers: Sequence[Answer]) -> None:
    """Jobs by cards."""
    devices = list(dict.fromkeys(answer.device for answer in answers))
    table = plain_table("", "", *devices, "smallest card")
    for name in dict.fromkeys(answer.workload for answer in answers):
        of_job = {answer.device: answer for answer in answers if answer.workload == name}
        cells = [WORDS[of_job[d].verdict] if d in of_job else "" for d in devices]
        card = next((a.card for a in of_job.values() if a.card), None)
        table.add_row(Text(name), *cells, card or "none")
    console().print(table)
