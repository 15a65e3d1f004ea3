# SPDX-License-Identifier: Apache-2.0
"""allocbench whatif: which change of a training program saves how much memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from allocbench.base import units
from allocbench.base.cards import label
from allocbench.base.files import write_text
from allocbench.commands import options
from allocbench.errors import UsageError, errors_naming
from allocbench.inputs import DEVICE
from allocbench.inputs.devices import device_of
from allocbench.output.files import STDOUT, write_records, written
from allocbench.output.stdout import tell_notes
from allocbench.output.terminal import console, plain_table, progress_bar, say
from allocbench.reports.advice.coverage import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allocbench.output.files import Write
    from allocbench.questions.training_blocks import TrainingBlocks
    from allocbench.questions.whatif import Proposal, Proposals

EXAMPLES = (
    "allocbench whatif -- python train.py",
    "allocbench whatif --device card:l4 -- python train.py --batch 16",
    "allocbench whatif gpt2-train --ranks 4 --json -",
)


def run(
    workload: options.Workload,
    allocator: options.Allocator = "caching",
    device: options.Device = DEVICE,
    until: Annotated[str | None, typer.Option(metavar="CARD")] = None,
    ranks: Annotated[int, typer.Option(metavar="N", min=2)] = 8,
    run_edited: Annotated[bool, typer.Option("--run")] = False,
    json: options.Json = None,
    html: options.Html = None,
) -> None:
    """Show which change of a training program would save how much memory.

    Each edit, such as checkpoints, a smaller batch with accumulation or another optimizer, is
    applied to the recorded blocks; the result is replayed through the allocator with its settings.
    With a device, or with --until, the command finds the edits that make the program fit and ask
    least of the user: at most three together.

    With --run, a program also runs with those changes that can be made from outside, such as
    checkpoints, other optimizers and LoRA. What such a run needs is exact.

    The recording needs optimizer steps and the modules of the model: a program to run, or a
    recording made with `allocbench record --labels lines`. All other results are
    estimates, as ranges.

    The page of --html draws memory over time with each edit, and with up to three together of those
    that save most.

    Options:
        until: Find the edits that make the program fit this card, such as l4, and ask least;
            default: the device, if one is named.
        ranks: GPUs that share what ZeRO and FSDP split.
        run_edited: Also run the program with the changes that can be made in it.
    """
    from allocbench.inputs import Unchosen
    from allocbench.inputs.question import read  # imported late: --help stays fast
    from allocbench.questions.check import shown
    from allocbench.questions.training_blocks import TrainingBlocks
    from allocbench.questions.whatif import combined, frame, whatif
    from allocbench.replays.runner import Runner, beside

    write_page = options.html_module().of_edits if html else None
    question = read([workload], [allocator], device, option="--allocator", outputs=[json, html])
    tell_notes(question.notes)
    name, trace = question.only
    card = None if isinstance(question.device, Unchosen) else question.device
    with errors_naming("--until"):
        card = device_of(until) if until else card
        capacity = None if card is None else Runner(trace, beside(card, trace)).capacity
    with progress_bar(None) as begin:
        run = Runner(trace, question.device)
        answer = whatif(run, allocator, ranks=ranks, capacity=capacity, begin=begin)
    if run_edited:
        answer = _run(answer, workload, allocator, question.device)
    name_of_card, bound = label(card or question.device), trace.coverage.bound
    part = not shown(trace, capacity or 0)
    table = frame(answer, name, trace.coverage.sentence)
    write = partial(write_records, table)
    outputs: dict[str | None, Write] = {json: write}
    if write_page:
        blocks = TrainingBlocks(trace)
        with progress_bar(None) as begin:
            together = combined(answer, blocks, allocator, question.device, begin)
        headline = _headline(answer, name_of_card, bound, part)
        made = _page(write_page, blocks, answer, together, (headline, name_of_card), part)
        outputs[html] = partial(write_text, made)
    with written(outputs, ".json", write):
        if STDOUT not in outputs:
            _print(answer, name_of_card, bound, part)


def _run(answer: Proposals, workload: str, spec: str, device: str) -> Proposals:
    from allocbench.programs import is_program
    from allocbench.programs.program import of_text
    from allocbench.questions import whatif

    if not is_program(workload):
        raise UsageError("--run is for a program, such as -- python train.py")

    def ran(proposal: Proposal) -> Proposal:
        if not proposal.made:
            return proposal
        return whatif.measured(of_text(workload), proposal, spec, device, answer.capacity)

    single = [ran(proposal) for proposal in answer.single]
    known = {proposal.edits: proposal for proposal in single}
    fitting = [known.get(proposal.edits) or ran(proposal) for proposal in answer.fitting]
    return replace(answer, single=single, fitting=[one for one in fitting if one.fits])


def _page(
    write: Callable[..., str],
    blocks: TrainingBlocks,
    answer: Proposals,
    together: Sequence[Proposal],
    said: tuple[str, str],
    part: bool,
) -> str:
    """The HTML page. said: the headline, and the name of the card."""
    from allocbench.questions.whatif import curve

    as_it_is = (
        f"As it is: needs {units.size(answer.need)}, {units.size(answer.load)} in use at its peak."
    )
    choices = [{"edits": [], "words": as_it_is, "curve": curve(blocks, ())}] + [
        {
            "edits": [edit.name for edit in proposal.edits],
            "words": _sentence(proposal, answer, part),
            "curve": curve(blocks, proposal.edits),
        }
        for proposal in (*answer.single, *together)
    ]
    edits = [
        {
            "name": proposal.name,
            "how": proposal.edits[0].how,
            "cost": proposal.edits[0].cost,
            "need": _range(proposal),
            "saves": _saved(_saving(proposal, answer)),
            "load": units.size(proposal.run_load or proposal.load),
        }
        for proposal in answer.single
    ]
    more = answer.enough.edits if answer.enough else ()
    words = [said[0], *(f"{one.how}; costs: {one.cost}" for one in more)]
    return write(
        blocks.trace.name,
        words,
        edits,
        choices,
        events=len(blocks.trace),
        capacity=answer.capacity,
        card=said[1],
    )


def _sentence(proposal: Proposal, answer: Proposals, part: bool) -> str:
    what = "what was recorded" if part else "it"
    fits = {True: f", and {what} fits", False: f", and {what} is not sure to fit", None: ""}
    load = units.size(proposal.run_load or proposal.load)
    return (
        f"With {proposal.name}: needs {_range(proposal)}{fits[proposal.fits]}; saves"
        f" {_saved(_saving(proposal, answer))}; {load} in use at its peak."
    )


def _saving(proposal: Proposal, answer: Proposals) -> int:
    return answer.need - (proposal.run or proposal.need)


def _print(answer: Proposals, device: str, bound: bool = False, part: bool = False) -> None:
    """bound, part: whether the program may need more, and so much that its edits may not fit."""
    out = console()
    enough = answer.enough.edits if answer.enough else ()
    say([_headline(answer, device, bound, part)])
    say(f"  {edit.how}; costs: {edit.cost}" for edit in enough)
    say(f"or with {proposal.name}: {_about(proposal)}" for proposal in answer.fitting[1:])
    out.print()
    numbers = ("need", "saves")
    table = plain_table("each change alone, estimated", "change", *numbers, "cost", right=numbers)
    nothing = []
    for proposal in answer.single:
        (edit,), saved = proposal.edits, _saving(proposal, answer)
        if saved > 0:
            table.add_row(Text(edit.name), _range(proposal), _saved(saved), Text(edit.cost))
        else:
            nothing.append(edit.name)
    out.print(table)
    if nothing:
        say([f"These save nothing: {', '.join(nothing)}."])


def _headline(answer: Proposals, device: str, bound: bool, part: bool) -> str:
    from allocbench.questions.whatif import MOST_EDITS

    needed = f"The program {needs(answer.need, bound)}"
    it = "what was recorded" if part else "it"
    if answer.capacity is None:
        return f"{needed}."
    if answer.need <= answer.capacity:
        return f"{needed}, and {it} fits {device} as it is."
    needed += f"; {device} has {units.size(answer.capacity)}. "
    if answer.enough is None:
        return f"{needed}No {MOST_EDITS} of these changes together are sure to be enough."
    return f"{needed}{it.capitalize()} fits with {answer.enough.name}: {_about(answer.enough)}."


def _range(proposal: Proposal) -> str:
    if proposal.run is not None:
        return f"{units.size(proposal.run)} (run)"
    low, high = units.size(proposal.low), units.size(proposal.high)
    return low if low == high else f"{low} to {high}"


def _about(proposal: Proposal) -> str:
    return "about " * (proposal.low < proposal.high) + _range(proposal)


def _saved(saved: int) -> str:
    return units.size(saved) if saved > 0 else "nothing"
