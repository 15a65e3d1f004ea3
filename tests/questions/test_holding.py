# SPDX-License-Identifier: Apache-2.0
"""What holds memory: kinds of blocks by their lives in a training run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocbench.questions.edits import edits
from allocbench.questions.holding import alike, by_kind, by_module, holders
from allocbench.questions.training_blocks import TrainingBlocks
from allocbench.workloads import ALLOC, FREE, MARK, Provenance, Trace, block_origins, write
from allocbench.workloads.coverage import Coverage
from tests.commands import folder, run
from tests.traces import make

__all__ = ["folder"]  # the fixture, by its import
LABELS = ("", "step", "Optimizer.step#SGD.step", "model.py:1 f", "train.py:2 f", "train.py:3 f")
BACKWARD, STEP, UPDATE, MODEL, INPUT, LOSS = range(6)


def training(steps: int = 3, keeps_gradients: bool = False, evaluates_first: bool = False) -> Trace:
    """A model of one weight: 1000 B parameter, 8 B buffer, activations, workspaces, SGD's state.

    evaluates_first: whether a forward pass without gradients comes before the first step.
    """
    rows: list[tuple[int, int, int, int]] = []
    live: dict[str, int] = {}

    def alloc(name: str, size: int, label: int) -> None:
        live[name] = sum(op == ALLOC for op, *_ in rows)
        rows.append((ALLOC, live[name], size, label))

    def free(name: str) -> None:
        rows.append((FREE, live.pop(name), 0, 0))

    alloc("parameter", 1000, MODEL)
    alloc("buffer", 8, MODEL)
    if evaluates_first:
        alloc("input", 300, INPUT)
        alloc("workspace", 64, LOSS)
        free("input")
    for step in range(steps):
        alloc("input", 300, INPUT)
        if not step and not evaluates_first:
            alloc("workspace", 64, LOSS)
        alloc("activation", 500, LOSS)
        alloc("scratch", 70, LOSS)
        free("scratch")
        alloc("loss", 4, LOSS)
        alloc("upstream", 500, BACKWARD)
        if not step:
            alloc("workspace of the thread", 64, BACKWARD)
        if not keeps_gradients or not step:
            alloc("gradient", 1000, BACKWARD)
        for name in ("upstream", "activation", "input", "loss"):
            free(name)
        rows.append((MARK, UPDATE, 0, 0))
        if not step:
            alloc("state", 1000, LOSS)
        alloc("temporary", 40, LOSS)
        free("temporary")
        rows.append((MARK, STEP, 0, 0))
        if not keeps_gradients:
            free("gradient")
    label = np.array([row[3] for row in rows], np.uint32)
    return make([row[:3] for row in rows], labels=LABELS, label=label)


def kinds(trace: Trace, event: int | None = None) -> dict[str, int]:
    return {row["kind"]: row["bytes"] for row in by_kind(holders(trace, event))}


def test_every_kind_of_block_is_recognized() -> None:
    for options in ({}, {"keeps_gradients": True}, {"evaluates_first": True}):
        trace = training(**options)
        assert kinds(trace) == {
            block_origins.PARAMETERS: 1000,
            block_origins.GRADIENTS: 1000,
            block_origins.STATE: 1000,
            block_origins.ACTIVATIONS: 804,
            block_origins.BACKWARD: 500,
            block_origins.WORKSPACES: 128,
            block_origins.LASTING: 8,
        }


def test_what_a_program_keeps_of_each_step_is_no_workspace() -> None:
    rows: list[tuple[int, int, int, int]] = [(ALLOC, 0, 1000, MODEL)]
    for step in range(4):
        first = 1 + 4 * step
        rows += [(ALLOC, first, 400, LOSS), (ALLOC, first + 1, 50, LOSS)]
        rows += [(ALLOC, first + 2, 1000, 0), (FREE, first, 0, 0)]
        rows += [(MARK, UPDATE, 0, 0), (MARK, STEP, 0, 0), (FREE, first + 2, 0, 0)]
    rows += [(ALLOC, 100 + n, 400, LOSS) for n in range(3)]  # by an evaluation
    label = np.array([row[3] for row in rows], np.uint32)
    trace = make([row[:3] for row in rows], labels=LABELS, label=label)
    assert kinds(trace, len(trace) - 1)[block_origins.KEPT] == 4 * 50 + 3 * 400
    assert block_origins.WORKSPACES not in kinds(trace, len(trace) - 1)


def test_the_bytes_are_those_alive() -> None:
    trace = training()
    for event in range(len(trace)):
        assert holders(trace, event)["bytes"].sum() == trace.load[event]


def with_modules(trace: Trace, **of_label: tuple[str, str]) -> Trace:
    """The trace with the module and the kind of the allocs of some labels."""
    labels = list(trace.labels)
    columns = {name: np.zeros(len(trace), np.uint32) for name in ("module", "kind")}
    assert trace.label is not None
    for label, names in of_label.items():
        for column, name in zip(columns.values(), names, strict=True):
            if name not in labels:
                labels.append(name)
            here = (trace.op == ALLOC) & (trace.label == int(label.removeprefix("label")))
            column[here] = labels.index(name)
    made = replace(trace, labels=tuple(labels), module=columns["module"], kind=columns["kind"])
    made.validate()
    return made


def test_modules_and_the_kinds_that_a_program_says() -> None:
    trace = with_modules(
        training(), label3=("h.0.up", "gradients"), label4=("h.1.up", ""), label5=("head", "")
    )
    held = holders(trace)
    assert held["bytes"].sum() == trace.max_load
    # The parameter and the buffer, because the trace says so.
    assert kinds(trace)[block_origins.GRADIENTS] == 1008 + 1000
    modules = {row["module"]: row for row in by_module(held)}
    assert set(modules) == {"h.*.up", "head"}
    assert modules["h.*.up"]["modules"] == 2
    assert modules["h.*.up"]["bytes"] == 1008 + 300
    # The input is not freed before the activation is.
    activations = {
        row["module"]: dict(row["kinds"])[block_origins.ACTIVATIONS] for row in by_module(held)
    }
    assert activations == {"head": 504, "h.*.up": 300}
    assert alike("transformer.h.11.mlp2") == "transformer.h.*.mlp2"


def test_a_kind_of_a_file_is_shown_as_text(folder: Path) -> None:
    """It is no markup, and sends nothing to the terminal."""
    labels = ("", "\x1b]0;title\x07[red]\r\n[/x]")
    trace = make([(ALLOC, 0, 4096), (ALLOC, 1, 1 << 20)], labels=labels)
    write(replace(trace, kind=np.ones(2, np.uint32)), "kinds.parquet")
    shown = run("explain kinds.parquet")
    assert shown.exit_code == 0
    assert "?]0;title?[red] [/x]" in shown.stdout
    assert not {"\x1b", "\x07", "\r"} & {*shown.stdout}


def test_labels_that_are_no_text_are_replaced() -> None:
    """JSON and pickles can have halves of characters, and file names bytes that are not UTF-8."""
    trace = make([(ALLOC, 0, 8)], labels=("", "\ud800caf\udce9.py"), label=np.ones(1, np.uint32))
    assert trace.labels == ("", "?caf?.py")
    assert holders(trace)["place"].tolist() == ["?caf?.py"]


def ring() -> Trace:
    """The end of a training run whose ring buffer was full, from the middle of a backward pass.

    Before it: a parameter of 1000 B, its optimizer's state, an input of 40 B, a workspace of 64 B
    of each thread, and, of unknown origin, an activation of 500 B and an old gradient of 1000 B.
    """
    labels = (*LABELS, "backward pass", "optimizer's step")
    backward, optimizer = 6, 7
    rows = [
        (ALLOC, 0, 1000, MODEL, 0),
        (ALLOC, 1, 1000, LOSS, optimizer),
        (ALLOC, 2, 40, INPUT, 0),
        (ALLOC, 3, 64, LOSS, 0),
        (ALLOC, 4, 64, 0, backward),
        (ALLOC, 5, 500, 0, 0),
        (ALLOC, 6, 1000, 0, 0),
        (MARK, UPDATE, 0, 0, 0),
        (MARK, STEP, 0, 0, 0),  # marks of a step without events
        (ALLOC, 7, 1000, 0, backward),
        (FREE, 5, 0, 0, 0),
        (MARK, UPDATE, 0, 0, 0),
        (ALLOC, 8, 30, LOSS, optimizer),
        (FREE, 8, 0, 0, 0),
        (MARK, STEP, 0, 0, 0),
        (FREE, 6, 0, 0, 0),
        (FREE, 7, 0, 0, 0),
    ]
    columns = dict(zip(("label", "kind"), np.array(rows, np.uint32).T[3:], strict=True))
    provenance = Provenance(live_at_start=7)
    return make([row[:3] for row in rows], labels=labels, provenance=provenance, **columns)


OWN = (*LABELS, "train.py:8 update", "train.py:9 update", "train.py:10 update")
FIRST, SECOND, THIRD = range(6, 9)


def own_loop(
    before: list[tuple[str, int]],
    update: list[tuple[str, int, str]],
    *,
    passes: int = 1,
    keeps: bool = False,
    cut: int = 0,
    frees: bool = True,
    ends: bool = False,
    keeps_inputs: bool = False,
) -> Trace:
    """Three steps of a program that updates its parameter "p" of 1000 B itself, without marks.

    before: blocks of 1000 B and their labels, made before the first step. update: blocks of 1000 B
    that it makes, with their labels, and the block that each replaces, "" for a temporary; "ONCE"
    is only made by the first update. passes: backward passes of each step. keeps: whether the
    gradient stays. cut: events that are missing at the beginning. frees: whether a backward pass
    frees what the forward pass saved. ends: whether the program frees everything at its end.
    keeps_inputs: whether each step keeps its input.
    """
    rows, live = list[tuple[int, int, int, int]](), dict[str, int]()

    def alloc(name: str, size: int, label: int) -> None:
        old = live.get(name)
        live[name] = len(rows)
        rows.append((ALLOC, live[name], size, label))
        if old is not None:
            rows.append((FREE, old, 0, 0))

    def free(name: str) -> None:
        rows.append((FREE, live.pop(name), 0, 0))

    for name, label in before:
        alloc(name, 1000, label)
    for step in range(3):
        for number in range(passes):
            alloc(f"input{step if keeps_inputs else ''}", 300, INPUT)
            alloc("activation", 500, LOSS)
            alloc("upstream", 500, BACKWARD)
            if "gradient" not in live:
                alloc("gradient", 1000, BACKWARD)
            elif keeps or number:
                alloc("added", 1000, BACKWARD)
                free("added")
            if frees:
                free("activation")
            free("upstream")
        for name, place, replaced in update:
            if replaced not in live or replaced != "ONCE":
                alloc(replaced or name, 1000, place)
            if not replaced:
                free(name)
        if not keeps:
            free("gradient")
    for name in [*live] if ends else []:
        free(name)
    ended = [block for op, block, *_ in rows[:cut] if op == FREE]
    held = [row for row in rows[:cut] if row[0] == ALLOC and row[1] not in ended]
    labels = np.array([row[3] for row in held + rows[cut:]], np.uint32)
    coverage = Coverage("later" if cut else "start", "exit")
    return make(
        [row[:3] for row in held + rows[cut:]],
        labels=OWN,
        label=labels,
        line=labels,
        coverage=coverage,
        provenance=Provenance(live_at_start=len(held)),
    )


PARAMETER = [("p", MODEL)]
ADAM = [("p", MODEL), ("m", MODEL), ("v", MODEL)]
IN_PLACE = [("change", FIRST, "")]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(
    ("before", "update", "options", "parameters", "state"),
    [
        (PARAMETER, IN_PLACE, {}, 1, 0),
        (PARAMETER, [], {}, 1, 0),
        (PARAMETER, [], {"keeps": True}, 1, 0),
        (PARAMETER, IN_PLACE, {"passes": 2}, 1, 0),
        (PARAMETER, [("", FIRST, "p")], {}, 1, 0),
        (ADAM, IN_PLACE, {}, 1, 2),
        ([*PARAMETER, ("m", MODEL)], [("", FIRST, "m"), ("change", SECOND, "")], {}, 1, 1),
        (PARAMETER, [("", FIRST, "ONCE"), ("change", SECOND, "")], {}, 1, 1),
        (ADAM, [("", at, name) for at, name in enumerate("mvp", FIRST)], {}, 1, 2),
        ([("old", MODEL)], [("", FIRST, "p")], {}, 2, 0),
        (PARAMETER, IN_PLACE, {"cut": 11}, 1, 0),
    ],
    ids=[
        "temporaries of the update",
        "update in place",
        "gradients that stay",
        "two passes a step",
        "new parameters",
        "states in place",
        "new states",
        "states made by the first update",
        "new parameters and states",
        "new parameters beside a model",
        "from the first update on",
    ],
)
def test_programs_that_update_their_parameters_themselves(
    before: list[tuple[str, int]],
    update: list[tuple[str, int, str]],
    options: dict[str, Any],
    parameters: int,
    state: int,
    ends: bool,
) -> None:
    """The kinds in the backward pass of the last step: the parameter has its gradient already."""
    trace = own_loop(before, update, ends=ends, **options)
    pass_of_last = np.flatnonzero((trace.size == 500) & (trace.label == BACKWARD))[-1]
    event = int(pass_of_last) + (not options.get("keeps") and options.get("passes", 1) == 1)
    right = {
        block_origins.PARAMETERS: 1000 * parameters,
        block_origins.GRADIENTS: 1000,
        block_origins.STATE: 1000 * state,
        block_origins.ACTIVATIONS: 800,
        block_origins.BACKWARD: 500,
    }
    assert kinds(trace, event) == {kind: size for kind, size in right.items() if size}
    if change := [row for row in np.flatnonzero(trace.label == FIRST) if update == IN_PLACE]:
        assert kinds(trace, int(change[-1]))[block_origins.UPDATE] == 1000
    assert block_origins.origins(trace).own_updates


def test_what_a_program_keeps_from_its_first_step_on_is_no_parameter() -> None:
    trace = own_loop(PARAMETER, IN_PLACE, keeps_inputs=True)
    found = kinds(trace, len(trace) - 1)
    assert found[block_origins.KEPT] == 3 * 300
    assert found[block_origins.PARAMETERS] == 1000
    assert block_origins.LASTING not in found


def test_what_is_an_argument_of_pytorchs_optimizers_is_not_proposed_without_one() -> None:
    names = {edit.name for edit in edits(TrainingBlocks(own_loop(ADAM, IN_PLACE)), 8)}
    assert "optimizer state in host memory" in names
    assert not names & {"fused optimizer", "optimizer without foreach", "8-bit optimizer state"}
