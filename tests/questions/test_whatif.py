# SPDX-License-Identifier: Apache-2.0
"""Edits of a recorded program, beside recordings of the edited program."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocbench.commands import whatif as command
from allocbench.errors import UsageError
from allocbench.questions import whatif as question
from allocbench.questions.edits import edits, go_together
from allocbench.questions.training_blocks import TrainingBlocks
from allocbench.questions.whatif import INTERVALS, combined, curve, whatif
from allocbench.replays.runner import Runner
from allocbench.workloads import ALLOC, FREE, MARK, TRIM, Provenance, Trace, write
from allocbench.workloads.block_origins import PARAMETERS
from allocbench.workloads.block_table import BlockTable
from allocbench.workloads.coverage import Coverage
from allocbench.workloads.module_hook import OUTPUT_SHAPES, PARAMETER_SHAPES
from tests.commands import folder, run
from tests.traces import make

__all__ = ["folder"]  # the fixture, by its import
MIB = 1 << 20
LAYERS = 4
WEIGHT, INPUT, SAVED, OUTPUT, LOGITS = 64 * MIB, 24 * MIB, 40 * MIB, 24 * MIB, 120 * MIB
HEAVY = 8 * WEIGHT
"""A weight with which the update has the peak of the load."""
COLUMNS = 4096
"""Of a weight of float32; a weight of WEIGHT bytes has as many rows."""
BATCH, TOKENS, WIDTH = 2, 1024, 512
ATTENTION = [4 * MIB] * 3 + [64 * MIB] * 2 + [16 * MIB]
"""What attention with 8 heads saves: queries, keys and values, two matrices of scores in float32,
and a mask of one byte per score."""
HISTORY, TABLE = 100 * MIB, 128 * MIB
STATISTIC = 64 << 10
STATES = 2  # of Adam, each of the size of a weight


class _Program:
    """A program of LAYERS layers and a loss, trained with AdamW, as its recording would be."""

    def __init__(self) -> None:
        self.rows = list[tuple[int, int, int]]()
        self.about = list[tuple[str, str]]()
        self.live = dict[str, int]()
        self.labels = ["", "step", "Optimizer.step#AdamW.step"]

    def alloc(self, name: str, size: int, module: str, label: str = "train.py:1 f") -> None:
        self.live[name] = sum(op == ALLOC for op, *_ in self.rows)
        self.rows.append((ALLOC, self.live[name], size))
        self.about.append((label, module))

    def free(self, *names: str) -> None:
        for name in names:
            if name in self.live:
                self.rows.append((FREE, self.live.pop(name), 0))
                self.about.append(("", ""))

    def mark(self, name: str) -> None:
        self.rows.append((MARK, self.labels.index(name), 0))
        self.about.append(("", ""))

    def trace(self, rows: int) -> Trace:
        """rows: of each weight."""
        names = [*dict.fromkeys([*self.labels, *(name for pair in self.about for name in pair)])]
        columns = np.array([[names.index(name) for name in pair] for pair in self.about], np.uint32)
        layers = [f"layers.{layer}" for layer in range(LAYERS)]
        extra = {
            PARAMETER_SHAPES: {f"{one}.mlp": [["float32", [rows, COLUMNS]]] for one in layers}
            | {"tokens": [["float32", [TABLE // 4 // COLUMNS, COLUMNS]]]},
            OUTPUT_SHAPES: {f"{one}.mlp": f"[{BATCH}, {TOKENS}, {rows}] float32" for one in layers}
            | {f"{one}.attention": f"[{BATCH}, {TOKENS}, {WIDTH}] float32" for one in layers},
        }
        columns_of = {"labels": names, "label": columns[:, 0], "module": columns[:, 1]}
        return make(self.rows, **columns_of, provenance=Provenance(extra=extra))


def training(
    weight: int = WEIGHT,
    temporary: bool = False,
    keeps_gradients: bool = False,
    buckets: bool = False,
    scores: bool = False,
    history: bool = False,
    statistic: bool = False,
    lookup: bool = False,
    evaluated: int = 0,
    steps: int = 3,
    state: int | None = None,
    update: int = 0,
) -> Trace:
    """The recording of a training run.

    weight: bytes of the weight of each layer, and of each state unless `state` says otherwise.
    temporary: whether the update has a temporary for each weight; update: of other bytes. buckets:
    whether the first backward pass leaves two blocks for all gradients.
    scores: whether each layer also saves the blocks of ATTENTION. history: whether the program
    keeps a value of each step until the next one has its own. statistic: whether each layer ends
    with a small block that it saves. lookup: whether there is a table without a gradient.
    evaluated: bytes of a temporary of the head after each step, in an evaluation.
    """
    program = _Program()
    alloc, free = program.alloc, program.free
    layers = range(LAYERS)
    if lookup:
        alloc("table", TABLE, "tokens")
    for layer in layers:
        alloc(f"weight {layer}", weight, f"layers.{layer}.mlp")
    for step in range(steps):
        alloc("input", INPUT, "Model")
        for layer in layers:
            if scores:
                for number, size in enumerate(ATTENTION):
                    alloc(f"scores {layer} {number}", size, f"layers.{layer}.attention")
            alloc(f"saved {layer}", SAVED, f"layers.{layer}.mlp")
            alloc(f"output {layer}", OUTPUT, f"layers.{layer}")
            if statistic:
                alloc(f"statistic {layer}", STATISTIC, f"layers.{layer}")
        alloc("logits", LOGITS, "head")
        alloc("upstream of logits", LOGITS, "", "")
        free("logits")
        for layer in reversed(layers):
            alloc(f"upstream {layer}", OUTPUT, "", "")
            free("upstream of logits", f"upstream {layer + 1}")
            again = f"gradient {layer}" in program.live
            alloc("another" if again else f"gradient {layer}", weight, f"layers.{layer}.mlp", "")
            free(f"saved {layer}", f"statistic {layer}", f"output {layer}", "another")
            free(*(f"scores {layer} {number}" for number in range(len(ATTENTION))))
        free("upstream 0", "input")
        if history:
            alloc("new history", HISTORY, "", "train.py:9 main")
            free("history")
            program.live["history"] = program.live.pop("new history")
        if buckets and not step:
            for number in range(2):
                alloc(f"bucket {number}", 2 * weight, "", "")
        program.mark("Optimizer.step#AdamW.step")
        for layer in layers:
            if not step:
                for number in range(STATES if state != 0 else 0):
                    alloc(f"state {layer} {number}", state or weight, f"layers.{layer}.mlp")
            if temporary or update:
                alloc(f"temporary {layer}", update or weight, f"layers.{layer}.mlp")
        free(*(f"temporary {layer}" for layer in layers))
        program.mark("step")
        if not keeps_gradients:
            free(*(f"gradient {layer}" for layer in layers))
        if evaluated:
            alloc("evaluated", evaluated, "head")
            free("evaluated")
    return program.trace(weight // 4 // COLUMNS)


PLAIN = replace(training(temporary=True), provenance=Provenance())
"""Without shapes."""


def edited(name: str, trace: Trace) -> Trace:
    blocks = TrainingBlocks(trace)
    (edit,) = (edit for edit in edits(blocks, ranks=8) if edit.name.startswith(name))
    return edit.apply(blocks.table).to_trace()


def test_a_table_without_changes_is_the_trace() -> None:
    trace = training()
    again = BlockTable.of(trace).to_trace()
    for name, column in trace.columns().items():
        assert np.array_equal(column, again.columns()[name]), name


def test_blocks_of_unknown_kind_do_not_change_with_the_type_of_parameters() -> None:
    program = _Program()
    program.labels.append(PARAMETERS)
    for layer in range(LAYERS):
        program.alloc(f"weight {layer}", WEIGHT, f"layers.{layer}.mlp")
    program.alloc("answer", OUTPUT, "head")
    trace = program.trace(WEIGHT // 4 // COLUMNS)
    kind = np.where(trace.size == WEIGHT, trace.labels.index(PARAMETERS), 0).astype(np.uint32)
    smaller = edited("bfloat16", replace(trace, kind=kind))
    assert smaller.max_load == LAYERS * WEIGHT // 2 + OUTPUT


def test_copies_lie_between_events() -> None:
    trace = make([(ALLOC, 0, 5), (ALLOC, 1, 7), (FREE, 0, 0)])
    first = np.array([0])
    table = BlockTable.of(trace).with_copies(first, np.array([0.5]), np.array([1.5]))
    assert table.to_trace().load.tolist() == [5, 10, 17, 12, 7]
    assert table.only(table.origin != 0).to_trace().load.tolist() == [7]


HEAVY_UPDATE = training(weight=HEAVY, temporary=True)
"""Its peak is that of the update: 4 weights, 8 states, 4 gradients and 4 temporaries of 512 MiB."""


@pytest.mark.parametrize(
    ("name", "program", "peak", "edited_peak"),
    [
        # The peak of `training()`: 4 weights and 8 states of 64 MiB, the input, what 4 layers save,
        # their outputs, the logits and their gradient, 12 * 64 + 24 + 4 * (40 + 24) + 2 * 120 MiB.
        # With checkpoints it is at the last gradient: 16 * 64 + 24 + 40 + 24 + 24.
        ("checkpoint each", training(), 1288, 1136),
        ("checkpoint every second", training(), 1288, 1288 - 2 * 40),
        ("checkpoint each", training(statistic=True), 1288.25, 1136.0625),
        ("chunked loss", training(), 1288, 1136),
        # Gradients of the other parts: 16 * 64 + (24 + 256 + 240) / 2; in the backward pass, a new
        # gradient, 17 * 64 + (24 + 256 + 24) / 4.
        ("batch in 2 parts", training(), 1288, 1284),
        ("batch in 4 parts", training(), 1288, 1164),
        # Weights and states, 12 * 64, and the evaluation, which is not in parts or is.
        ("batch in 4 parts", training(evaluated=1200 * MIB), 1968, 1968),
        ("evaluation in 2 parts", training(evaluated=1200 * MIB), 1968, 768 + 600),
        ("evaluation in 4 parts", training(evaluated=1200 * MIB), 1968, 1288),
        ("bfloat16", training(lookup=True), 1288 + 128, 644 + 64),
        ("optimizer state in host memory", training(), 1288, 1288 - 8 * 64),
        # At the last gradient, what a layer saves, the gradient of its output, and a copy of its
        # weight: 16 * 64 + 40 + 24 + 64.
        ("activations in host memory", training(), 1288, 1152),
        # No gradients and states of two layers; of what these save, only the last output.
        ("freeze layers.0 to layers.1", training(), 1288, 8 * 64 + 24 + 2 * 64 + 240),
        # Two small matrices, of 16 columns and 16 rows, have 1/128 of a weight, and so have their
        # states: 4 * 64 + 12 * 0.5 + 24 + 256 + 240.
        ("LoRA", training(), 1288, 782),
        (
            "memory-efficient attention",
            training(scores=True),
            1288 + 4 * (12 + 2 * 64 + 16),
            1288 + 4 * 12,
        ),
        ("free what train.py:9 main keeps", training(history=True), 1388, 1288),
        ("no gradients between", training(keeps_gradients=True), 1288 + 256, 1288),
        # Without gradients beside the buckets, the peak is at the logits.
        (
            "gradients in DDP's buckets",
            training(weight=HEAVY, buckets=True),
            20 * 512 + 24 + 64 + 24,
            16 * 512 + 24 + 256 + 240,
        ),
        # The last gradient is the peak without temporaries of the update.
        ("fused optimizer", HEAVY_UPDATE, 20 * 512, 16 * 512 + 24 + 64 + 24),
        ("optimizer without foreach", HEAVY_UPDATE, 20 * 512, 18 * 512),
        # A state of 128 Mi elements has 128 MiB and 2 MiB of scales.
        ("8-bit optimizer state", HEAVY_UPDATE, 20 * 512, 8 * 512 + 8 * 130 + 24 + 64 + 24),
        # Rows and columns have 128 KiB and 16 KiB; the update has one temporary.
        ("factored optimizer state", HEAVY_UPDATE, 20 * 512, 9 * 512 + 4 * (128 + 16) / 1024),
        # The first gradient and one temporary.
        ("update in the backward pass", HEAVY_UPDATE, 20 * 512, 14 * 512 + 24 + 256 + 24),
        ("ZeRO-1 on 8 GPUs", HEAVY_UPDATE, 20 * 512, 8 * 512 + (8 + 4) * 64),
        # The last gradient is whole beside the parts of all.
        ("ZeRO-2 on 8 GPUs", HEAVY_UPDATE, 20 * 512, 5 * 512 + (8 + 4) * 64 + 24 + 64 + 24),
        # Also the weight of its layer.
        ("ZeRO-3 on 8 GPUs", HEAVY_UPDATE, 20 * 512, 2 * 512 + (4 + 8 + 4) * 64 + 24 + 64 + 24),
    ],
)
def test_an_edit_has_the_peak_of_the_edited_program(
    name: str, program: Trace, peak: float, edited_peak: float
) -> None:
    """Peaks of the load in MiB, computed by hand."""
    assert program.max_load == peak * MIB
    assert edited(name, program).max_load == edited_peak * MIB


SMALL = 8 << 10
"""Bytes of a state that an 8-bit optimizer keeps as it is."""


@pytest.mark.parametrize(
    ("name", "program", "edited_program"),
    [
        ("fused optimizer", HEAVY_UPDATE, training(weight=HEAVY)),
        ("8-bit optimizer state", HEAVY_UPDATE, training(weight=HEAVY, state=130 * MIB)),
        ("8-bit optimizer state", training(state=SMALL, update=64), training(state=SMALL)),
        ("ZeRO-1", HEAVY_UPDATE, training(weight=HEAVY, state=HEAVY // 8, update=HEAVY // 8)),
        ("optimizer state in host", training(), training(state=0)),
    ],
)
def test_an_edit_is_the_recording_of_the_edited_program(
    name: str, program: Trace, edited_program: Trace
) -> None:
    """Also below the peak: the load of each event."""
    found, wanted = (
        [load for load, op in zip(one.load.tolist(), one.op.tolist(), strict=True) if op != MARK]
        for one in (edited(name, program), edited_program)
    )
    assert found == wanted


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("no gradients between", training()),  # none outlives its step
        ("memory-efficient attention", training()),  # no matrix of scores
        ("free what", training()),  # nothing is kept
        ("evaluation in", training()),
        ("gradients in DDP's buckets", training()),
        ("chunked loss", HEAVY_UPDATE),  # the logits are a small part
    ],
)
def test_an_edit_is_offered_only_if_the_trace_shows_what_it_needs(
    name: str, program: Trace
) -> None:
    assert not any(edit.name.startswith(name) for edit in edits(TrainingBlocks(program), 8))


def test_an_edit_of_modules_needs_modules() -> None:
    names = [
        {edit.name for edit in edits(TrainingBlocks(replace(HEAVY_UPDATE, module=module)), 8)}
        for module in (None, HEAVY_UPDATE.module)
    ]
    assert names[0] < names[1]
    gone = {name.split()[0] for name in names[1] - names[0]}
    assert {"ZeRO-3", "checkpoint", "freeze", "LoRA", "activations"} <= gone
    assert not {"ZeRO-1", "ZeRO-2", "fused", "8-bit", "batch"} & gone


@pytest.mark.parametrize("name", ["bfloat16", "factored", "LoRA", "memory-efficient attention"])
def test_an_edit_that_needs_shapes_is_refused_without(name: str) -> None:
    trace = replace(training(scores=True), provenance=Provenance())
    assert not any(edit.name.startswith(name) for edit in edits(TrainingBlocks(trace), 8))


def test_places_give_the_cache_back() -> None:
    trace = training()
    for place in ("call of the model", "update of the optimizer"):
        changed = edited(f"empty_cache before each {place}", trace)
        assert (changed.op == TRIM).sum() == 3
        assert changed.max_load == trace.max_load
    settings = {
        one.name for one in whatif(Runner(trace, "sim:8GiB"), "naive").single if ":" in one.name
    }
    assert not settings  # naive has no settings


@pytest.mark.parametrize(
    ("version", "variables"),
    [
        ("2.13.0+cu130", ["PYTORCH_ALLOC_CONF"]),
        ("2.5.1", ["PYTORCH_CUDA_ALLOC_CONF"]),
        ("", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]),
    ],
)
def test_a_setting_is_in_the_variable_that_the_version_reads(
    version: str, variables: list[str]
) -> None:
    trace = training()
    trace = replace(trace, provenance=replace(trace.provenance, torch=version))
    (one,) = (e for e in edits(TrainingBlocks(trace), 8) if e.name == "expandable_segments:True")
    assert one.how.split("\n") == [f"export {v}=expandable_segments:True" for v in variables]


@pytest.mark.parametrize(
    ("names", "peak"),
    [
        (
            ("checkpoint each of layers.*", "batch in 2 parts"),
            16 * 64 + (24 + 4 * 24 + 2 * 120) / 2,
        ),
        # 4 weights, 4 gradients and 8 states in eight parts; of one layer the weight, a gradient
        # and its part; a quarter of the input, what layers save and the gradient of an output.
        (
            ("8-bit optimizer state", "batch in 4 parts", "ZeRO-3 on 8 GPUs"),
            (8 * 64 + 8 * 16.25) / 8 + 64 + 64 + 8 + (24 + 256 + 24) / 4,
        ),
    ],
)
def test_edits_combine(names: Sequence[str], peak: float) -> None:
    """Peaks of the load in MiB, computed by hand."""
    blocks = TrainingBlocks(training())
    known = {edit.name: edit for edit in edits(blocks, ranks=8)}
    table = blocks.table
    for name in names:
        table = known[name].apply(table)
    assert table.to_trace().max_load == peak * MIB


def test_edits_that_exclude_each_other_are_not_combined() -> None:
    """Two of one family, and an update in the backward pass with gradients of several passes."""
    known = edits(TrainingBlocks(training()), ranks=8)
    by = {
        start: e
        for e in known
        for start in ("batch in", "update", "ZeRO")
        if e.name.startswith(start)
    }
    assert go_together([by["update"], by["ZeRO"]])
    assert not go_together([by["update"], by["ZeRO"], by["batch in"]])
    assert not go_together([edit for edit in known if edit.family == "batch"])


@pytest.mark.parametrize(
    ("mib", "chosen"),
    [
        (1288, None),  # it fits as it is
        (952, "8-bit optimizer state"),  # at most 951.3 MiB
        (930, "8-bit optimizer state + chunked loss"),
        (815, "optimizer state in host memory"),  # one harder edit, before more of the easy ones
        (700, "ZeRO-3 on 8 GPUs"),
        (400, "8-bit optimizer state + batch in 4 parts + ZeRO-3 on 8 GPUs"),
        (250, None),
        (1, None),
    ],
)
def test_the_edits_that_ask_least_are_chosen(mib: int, chosen: str | None) -> None:
    answer = whatif(Runner(PLAIN, "sim:8GiB"), "naive", capacity=mib * MIB)
    assert (answer.enough and answer.enough.name) == chosen
    assert all(found.fits and found.high <= mib * MIB for found in answer.fitting)


def test_edits_are_ordered_by_what_they_ask() -> None:
    """An argument, then some lines, then another way to train, then more GPUs."""
    efforts = {edit.name: edit.effort for edit in edits(TrainingBlocks(PLAIN), ranks=8)}
    ordered = ("fused optimizer", "chunked loss", "update in the backward pass", "ZeRO-1 on 8 GPUs")
    asked = [efforts[name] for name in ordered]
    assert asked == sorted(set(asked))
    assert efforts["optimizer state in host memory"] == efforts["update in the backward pass"]
    assert max(efforts, key=lambda name: efforts[name]).startswith("freeze")
    assert efforts["batch in 2 parts"] == efforts["checkpoint each of layers.*"] == asked[1]


def test_a_run_takes_the_place_of_an_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    answer = whatif(Runner(PLAIN, "sim:8GiB"), "naive")
    first, second, *_ = answer.single
    ran = replace(first, run=answer.need - 3 * MIB)
    command._print(replace(answer, single=[ran, second]), "the device")
    rows = [line for line in capsys.readouterr().out.splitlines() if "MiB" in line]
    assert "3.00 MiB" in next(row for row in rows if row.startswith(first.name))
    assert "512 MiB" in next(row for row in rows if row.startswith(second.name))  # 1288 - 776


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False), (None, None)])
def test_a_run_fits_up_to_the_capacity(
    spare: int | None, fits: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = whatif(Runner(PLAIN, "sim:8GiB"), "naive")
    monkeypatch.setattr(question, "load", lambda _: PLAIN)
    monkeypatch.setattr(question, "changed", lambda *_: None)
    capacity = None if spare is None else answer.need + spare
    settings: Any = None
    found = question.measured(settings, answer.single[0], "naive", "sim:8GiB", capacity)
    assert (found.run, found.run_load, found.fits) == (answer.need, PLAIN.max_load, fits)


def test_a_trace_without_steps_is_refused() -> None:
    with pytest.raises(UsageError, match="no steps"):
        whatif(Runner(make([(ALLOC, 0, 5)]), "sim:8GiB"), "naive")


def test_what_was_held_before_the_recording_bounds_every_estimate() -> None:
    def held(mib: int) -> Trace:
        return replace(PLAIN, coverage=Coverage("later", "open", held=mib * MIB))

    with pytest.raises(UsageError, match=r"1\.50 GiB were reserved .* hides what changes save"):
        whatif(Runner(held(1536), "sim:8GiB"), "naive")
    found = whatif(Runner(held(1000), "sim:8GiB"), "naive")  # of the 1288 MiB that it needs
    assert min(one.low for one in found.single) == 1000 * MIB


def test_the_need_of_a_setting_is_that_of_a_replay() -> None:
    trace = training(temporary=True)
    found = {one.name: one for one in whatif(Runner(trace, "sim:8GiB"), "caching").single}
    one = found["max_split_size_mb:128"]
    need = Runner(trace, "sim:8GiB").min_capacity("caching:max_split_size_mb=128")
    assert one.low == one.need == one.high == need


def test_the_command(folder: Path) -> None:
    write(PLAIN, "train.parquet")
    (proposal, *_others) = json.loads(run("whatif train.parquet --allocator naive --json -").stdout)
    assert proposal["low"] <= proposal["need"] <= proposal["high"]
    assert proposal["saves"] > 0
    shown = " ".join(run("whatif train.parquet --device sim:8GiB").stdout.split())
    assert "as it is" in shown
    outside = {"outside": {"libother.so": (8 * 1024 - 900) * MIB}}
    extra = dict(PLAIN.provenance.extra) | outside
    held = replace(PLAIN, provenance=replace(PLAIN.provenance, extra=extra))
    write(held, "held.parquet")
    assert "has 900 MiB" in " ".join(run("whatif held.parquet --device sim:8GiB").stdout.split())
    rows = json.loads(run("whatif train.parquet --device sim:8GiB --json -").stdout)
    nothing = [name for row in rows for name in row["edits"] if row["saves"] <= 0]
    assert nothing
    assert shown.endswith(f" These save nothing: {', '.join(nothing)}.")
    assert run("whatif good.csv").exit_code == 2


def test_a_curve_has_the_peak_of_its_edits() -> None:
    trace = PLAIN
    blocks = TrainingBlocks(trace)
    answer = whatif(Runner(trace, "sim:8GiB"), "naive")
    together = combined(answer, blocks, "naive", "sim:8GiB")
    assert {len(proposal.edits) for proposal in together} == {2, 3}
    for chosen, peak in [
        ((), trace.max_load),
        *((proposal.edits, proposal.load) for proposal in (*answer.single, *together)),
    ]:
        drawn = np.array([*curve(blocks, chosen).values()])
        assert drawn.shape[1] == INTERVALS
        assert drawn.sum(axis=0).max() == peak


def test_a_curve_is_the_highest_load_of_each_interval_and_what_it_consists_of() -> None:
    """Of a short trace, most intervals have no event: the load stays, at first at 0."""
    began = training()
    columns: dict[str, Any] = {
        name: np.append(np.zeros(3, column.dtype), column)
        for name, column in began.columns().items()
    }
    columns["op"][:3] = MARK
    trace = replace(began, **columns)
    blocks = TrainingBlocks(trace)
    drawn = curve(blocks, [])
    before = np.append(0, trace.load)
    edges = np.linspace(0, len(trace), INTERVALS + 1)
    spans = BlockTable.of(trace)
    for n, (low, high) in enumerate(pairwise(edges.tolist())):
        instants = [int(np.ceil(low)) - 1, *range(int(np.ceil(low)), int(np.ceil(high)))]
        instants = [at for at in instants if at < len(trace)]
        highest = max(instants, key=lambda at: before[at + 1])
        assert sum(column[n] for column in drawn.values()) == before[highest + 1]
        alive = (spans.born <= highest) & (spans.freed > highest)
        for kind, column in drawn.items():
            assert column[n] == spans.size[alive & (blocks.kind == kind)].sum()
