# SPDX-License-Identifier: Apache-2.0
"""allocbench check: does it fit, what helps if not, and who holds the memory?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from allocbench.base import units
from allocbench.base.cards import find
from allocbench.base.text import one_line
from allocbench.commands import options
from allocbench.errors import UsageError
from allocbench.inputs import DEVICE, Unchosen
from allocbench.output.files import STDOUT, check_outputs, write_json, written
from allocbench.output.terminal import console, plain_table, progress_bar, say
from allocbench.reports.advice import check as advice
from allocbench.reports.advice.check import Answer, RemedyKind, Rest, TriedChange

if TYPE_CHECKING:
    from allocbench.inputs.question import Question
    from allocbench.output.files import Write
    from allocbench.reports.rows.bundle import Bundle
    from allocbench.workloads import Trace

EXAMPLES = (
    "allocbench check --device l4 -- python train.py",
    "allocbench check snapshot.pickle",
    "allocbench check error.txt",
    "allocbench check gpt2-train llm-decode --device l4,rtx-4090,h100",
    "allocbench check snapshot.pickle --html report.html",
    "allocbench check snapshot.pickle --all",
)
_TRIED: dict[RemedyKind, str] = {
    "setting": "settings of PyTorch's allocator",
    "edit": "edits of the program, estimated",
    "allocator": "other allocators",
}
_TELL_MORE = {
    "explain": "the blocks that are in the way of the first request that fails, and the segments",
    "fit --cards": "what fills a card, and the best plan with all lifetimes known",
    "recommend": "how sure the best setting and the best allocator are, and how to switch",
    "tune": "the need of settings and the time that their device calls take",
    "whatif": "how to make each edit, and the range of what it needs",
    "inspect": "the sizes, lifetimes, steps and streams of the recording",
    "compare": "the memory and the time of all allocators",
}
"""What commands say beyond `check`."""


def run(
    context: typer.Context,
    workloads: options.Workloads,
    device: options.Devices = None,
    allocator: options.Allocator = "caching",
    model: options.Model = None,
    vary: Annotated[
        str | None, typer.Option(metavar="NAME[=A..B]", rich_help_panel=options.OF_PROGRAM)
    ] = None,
    everything: Annotated[bool, typer.Option("--all")] = False,
    json: Annotated[str | None, options.json_option("the answers")] = None,
    html: options.Html = None,
) -> None:
    """Say whether a program fits a card, what helps if not, and who holds the memory.

    The input is a program, a recording of one, or the text of an error. The first line is the
    verdict. Then come at most five changes with which it fits, the easiest first; each was tried by
    a replay of the trace or a run of the program. Without --device, the answer is for the card on
    which a recording failed, or else the smallest card that is enough.

    Several inputs or devices are a table. The exit code is 0 if everything fits as it is, 1 if
    something does not, and 2 if that cannot be told.

    Options:
        vary: Find the largest value of the program's option --NAME with which it fits, also
            together with a setting, among A..B; default: 1 to the value in the command.
        everything: Also show every change that was tried, everything that holds memory, what is
            assumed, and which commands tell more.
    """
    from allocbench.inputs.devices import recorded_on
    from allocbench.programs import program

    check_outputs(json, html, inputs=workloads)
    write_html = options.html_module().write if html else None
    asked: list[tuple[Answer, Question[Trace] | None]] = []
    devices: Sequence[str | None] = device or [None]
    for workload, given in product(workloads, devices):
        with program.asked_on(recorded_on(given), quiet=True):
            asked.append(_answer(workload, given, allocator, model, vary, everything))
    answers = [answer for answer, _ in asked]
    write = partial(write_json, [asdict(answer) for answer in answers])
    writers: dict[str | None, Write] = {json: write}
    if html and write_html:
        compared, by_run = _replayed(asked, allocator)
        writers[html] = partial(write_html, compared, command=context.obj, answers=by_run)
    with written(writers, ".json", write):
        if STDOUT not in writers:
            if len(answers) > 1:
                _show_table(answers)
            if len(answers) == 1 or everything:
                for answer, (workload, given) in zip(
                    answers, product(workloads, devices), strict=True
                ):
                    _show(answer, len(answers) > 1)
                    if everything:
                        _show_rest(answer, workload, given)
    raise typer.Exit(advice.exit_code(answers))


def _answer(
    workload: str,
    given: str | None,
    allocator: str,
    model: str | None,
    vary: str | None,
    everything: bool,
) -> tuple[Answer, Question[Trace] | None]:
    """The answer for one workload on one device, None for one that nobody chose.

    Also the question, or None for the text of an error.
    """
    from allocbench.commands.error_answer import as_check
    from allocbench.commands.vary import tell_fit
    from allocbench.inputs.devices import device_of
    from allocbench.inputs.question import Question, read_any
    from allocbench.programs import is_program, program
    from allocbench.questions import check
    from allocbench.questions.vary import below_own

    varied = None
    if vary is not None:
        if not is_program(workload) or given is None:
            raise UsageError("--vary is for a program on a card: --device l4 -- python train.py")
        with_hole, varied, own = below_own(program.of_text(workload), vary)
        workload = str(own)
    device = DEVICE if given is None else device_of(given)
    question = read_any(workload, allocator, device, model=model)
    if not isinstance(question, Question):
        return as_check(workload, question, device), None
    name, trace = question.only
    chosen = None if isinstance(question.device, Unchosen) else question.device
    where = advice.RECORDED if given is None and chosen is not None else ""
    with progress_bar(None) as begin:
        answer = check.check(
            trace,
            chosen,
            workload=name,
            where=where,
            allocator=allocator,
            everything=everything,
            begin=begin,
        )
    if varied and varied.values and answer.exit_code == 1 and answer.verdict != "grows":
        tell = partial(tell_fit, varied)
        answer = check.smaller(with_hole, varied, question.device, answer, tell)
    return answer, question


def _replayed(
    asked: Sequence[tuple[Answer, Question[Trace] | None]], allocator: str
) -> tuple[Bundle, dict[tuple[str, str], Answer]]:
    """What a report shows of the questions with events, and the answers by workload and device."""
    from allocbench.replays.experiment import Effort, run_matrix
    from allocbench.reports.rows.bundle import Bundle
    from allocbench.reports.rows.details import join
    from allocbench.reports.rows.results import frame

    rows, parts, answers = [], [], {}
    for answer, question in asked:
        if question is None or not question.only[1].coverage.events:
            continue
        (name, _), device = question.only, question.device
        if isinstance(device, Unchosen) and answer.card:
            device = find(answer.card)[0].device
        made, details = run_matrix(
            question.traces, [allocator], device, Effort(0, False), detailed=True
        )
        rows += made
        parts.append(details)
        answers[name, str(device)] = answer
    if not rows:
        raise UsageError("--html: there are no events to draw; give a program or a recording")
    return Bundle(frame(rows), join(parts)), answers


def _show(answer: Answer, named: bool) -> None:
    """named: whether to print the name of the workload."""
    from allocbench.questions.holding import places_in_words

    out = console()
    if named:
        out.print()
        out.print(Text(answer.workload, "bold"))
    out.print(Text(answer.sentence, "bold"))
    for remedy in answer.remedies:
        line, outcome = f"  {remedy.kind:<9}  {remedy.words:<40}  ", remedy.outcome
        below = remedy.how.splitlines() if remedy.kind == "edit" else []
        if below or len(line) + len(outcome) > out.width:
            below, outcome = [*below, outcome], ""
        out.print(Text((line + outcome).rstrip()), soft_wrap=True)
        for line in below:
            out.print(Text(f"{'':13}{line}"))
    if answer.holders:
        out.print(Text(f"In use {answer.when}:"))
        for holder in answer.holders:
            kind = one_line(holder.kind) or "of unknown kind"
            out.print(Text(f"{units.size(holder.bytes):>10}  {kind}"))
            if holder.places:
                out.print(Text(f"{'':12}{places_in_words(holder.places)}"))
    say(answer.unknown)


def _show_table(answers: Sequence[Answer]) -> None:
    devices = list(dict.fromkeys(answer.device for answer in answers))
    table = plain_table("", "", *devices, "smallest card")
    for name in dict.fromkeys(answer.workload for answer in answers):
        of_job = {answer.device: answer for answer in answers if answer.workload == name}
        cells = [advice.WORDS[of_job[d].verdict] if d in of_job else "" for d in devices]
        card = next((a.card for a in of_job.values() if a.card), None)
        table.add_row(Text(name), *cells, card or "none")
    console().print(table)


def _show_rest(answer: Answer, workload: str, given: str | None) -> None:
    out = console()
    if answer.rest is not None:
        _show_trials(answer.rest)
        out.print()
        say(answer.rest.assumed)
    out.print()
    out.print("commands that tell more:")
    device = f"--device {given} " if given else ""
    for command, what in _telling_more(answer).items():
        on = "" if command == "inspect" else device
        out.print(Text(f"  allocbench {command} {on}{workload}"), soft_wrap=True)
        out.print(Text(f"{'':13}{what}"))


def _show_trials(rest: Rest) -> None:
    out = console()
    for kind in advice.ORDER:
        trials = [trial for trial in rest.trials if trial.kind == kind]
        if kind == "card":
            _show_cards(trials)
        elif trials:
            fitting = sum(trial.fits for trial in trials)
            out.print()
            title = f"{_TRIED[kind]}: {fitting} of {len(trials)} are enough"
            table = plain_table(title, "needs", "fits", "change", "", right=("needs",))
            for trial in trials:
                need = units.NOT_AVAILABLE if trial.need is None else units.size(trial.need)
                fits = "yes" if trial.fits else "no"
                table.add_row(need, fits, Text(trial.words), Text(trial.note))
            out.print(table)


def _show_cards(trials: Sequence[TriedChange]) -> None:
    for fits, words in ((True, "enough without a change"), (False, "too small without a change")):
        names = [trial.change for trial in trials if trial.fits == fits]
        if names:
            console().print()
            say([f"cards that are {words}: {', '.join(names)}"])


def _telling_more(answer: Answer) -> dict[str, str]:
    if answer.rest is None:
        return {"explain": "every number of the input, and what follows from it"}
    told = dict(_TELL_MORE)
    if answer.exit_code != 1:
        del told["explain"]
    if all(trial.kind != "edit" for trial in answer.rest.trials):
        del told["whatif"]
    if answer.verdict == "too_big":  # no allocator completes
        del told["compare"]
    return told
