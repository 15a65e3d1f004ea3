# SPDX-License-Identifier: Apache-2.0
"""Edits of a recorded program, beside recordings of the edited program."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from allocbench.commands import whatif as command
from allocbench.errors import UsageError
from allocbench.questions.edited_curves import COLUMNS, combined, curve
from allocbench.questions.edits import edits
from allocbench.questions.training_blocks import TrainingBlocks
from allocbench.questions.whatif import whatif
from allocbench.workloads import ALLOC, FREE, MARK, TRIM, Trace, write
from allocbench.workloads.block_origins import STATE
from allocbench.workloads.block_table import BlockTable
from allocbench.workloads.edits_hook import EIGHT_BIT_BLOCK
from allocbench.workloads.module_hook import PARAMETER_SHAPES
from tests.commands import folder, run
from tests.traces import make

__all__ = ["folder"]  # the fixture, by its import
MIB = 1 << 20
LAYERS = 4
WEIGHT, INPUT, SAVED, OUTPUT, LOGITS = 64 * MIB, 24 * MIB, 40 * MIB, 24 * MIB, 120 * MIB
STATISTIC = 64 << 10
STATES = 2  # of Adam, each of the size of a weight


class _Program:
    """A program of LAYERS layers and a loss, trained with AdamW, as its recording would be."""

    def __init__(self) -> None:
        self.rows = list[tuple[int, int, int]]()
        self.about = list[tuple[str, str]]()
        self.live = dict[str, int]()
        self.labels = ["", "step", "Optimizer.step#AdamW.step"]

    def alloc(self, name: str, size: int, module: str, label: str = "train.py:1:f") -> None:
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

    def trace(self) -> Trace:
        names = [*dict.fromkeys([*self.labels, *(name for pair in self.about for name in pair)])]
        columns = np.array([[names.index(name) for name in pair] for pair in self.about], np.uint32)
        return make(self.rows, labels=names, label=columns[:, 0], module=columns[:, 1])


def training(
    checkpointed: Collection[int] = (),
    parts: int = 1,
    state: int | None = None,
    temporary: bool = True,
    keeps_gradients: bool = False,
    updates_in_backward: bool = False,
    chunks: int = 1,
    steps: int = 3,
    weight: int = WEIGHT,
    statistic: bool = False,
) -> Trace:
    """The recording of a training run.

    checkpointed: numbers of layers. parts: of each batch. state: bytes of each state of a weight,
    by default those of the weight. temporary: whether the update has a temporary for each weight.
    chunks: of logits and loss. statistic: whether each layer ends with a small block that it saves.
    """
    program = _Program()
    alloc, free = program.alloc, program.free

    def forward(layer: int) -> None:
        alloc(f"saved {layer}", SAVED // parts, f"layers.{layer}.mlp")

    def update(layer: int, step: int) -> None:
        if not step:
            for number in range(STATES):
                alloc(f"state {layer} {number}", state or weight, f"layers.{layer}.mlp")
        if temporary:
            alloc(f"temporary {layer}", weight, f"layers.{layer}.mlp")

    for layer in range(LAYERS):
        alloc(f"weight {layer}", weight, f"layers.{layer}.mlp")
    for step in range(steps):
        for _ in range(parts):
            alloc("input", INPUT // parts, "Model")
            for layer in range(LAYERS):
                forward(layer)
                alloc(f"output {layer}", OUTPUT // parts, f"layers.{layer}")
                if statistic:
                    alloc(f"statistic {layer}", STATISTIC, f"layers.{layer}")
                if layer in checkpointed:
                    free(f"saved {layer}", f"statistic {layer}")
            alloc("logits", LOGITS // parts // chunks, "head")
            alloc("upstream of logits", LOGITS // parts // chunks, "", "")
            free("logits")
            for layer in reversed(range(LAYERS)):
                if layer in checkpointed:
                    forward(layer)
                    if statistic:
                        alloc(f"recomputed {layer}", OUTPUT // parts, f"layers.{layer}")
                        alloc(f"statistic {layer}", STATISTIC, f"layers.{layer}")
                        free(f"recomputed {layer}")
                alloc(f"upstream {layer}", OUTPUT // parts, "", "")
                free("upstream of logits", f"upstream {layer + 1}")
                name = f"gradient {layer}"
                if name in program.live:
                    name = "another gradient"
                alloc(name, weight, f"layers.{layer}.mlp", "")
                if updates_in_backward:
                    alloc("temporary", weight, f"layers.{layer}.mlp", "")
                    free("temporary", name)
                free(f"saved {layer}", f"statistic {layer}", f"output {layer}", "another gradient")
            free("upstream 0", "input")
        program.mark("Optimizer.step#AdamW.step")
        for layer in range(LAYERS):
            update(layer, step)
        free(*(f"temporary {layer}" for layer in range(LAYERS)))
        program.mark("step")
        if not keeps_gradients:
            free(*(f"gradient {layer}" for layer in range(LAYERS)))
    return program.trace()


def edited(name: str, trace: Trace) -> Trace:
    blocks = TrainingBlocks(trace)
    (edit,) = (edit for edit in edits(blocks, ranks=8) if edit.name.startswith(name))
    return edit.apply(blocks.table).to_trace()


def test_a_table_without_changes_is_the_trace() -> None:
    trace = training()
    again = BlockTable.of(trace).to_trace()
    for name, column in trace.columns().items():
        assert np.array_equal(column, again.columns()[name]), name


def test_copies_lie_between_events() -> None:
    trace = make([(ALLOC, 0, 5), (ALLOC, 1, 7), (FREE, 0, 0)])
    first = np.array([0])
    table = BlockTable.of(trace).with_copies(first, np.array([0.5]), np.array([1.5]))
    assert table.to_trace().load.tolist() == [5, 10, 17, 12, 7]
    assert table.only(table.origin != 0).to_trace().load.tolist() == [7]


HEAVY = 8 * WEIGHT
"""A weight with which the update has the peak of the load."""
EIGHT_BIT = HEAVY // 4 + 4 * (HEAVY // 4 // EIGHT_BIT_BLOCK)


@pytest.mark.parametrize(
    ("name", "program", "edited_program"),
    [
        ("checkpoint each", training(), training(checkpointed=range(LAYERS))),
        ("checkpoint every second", training(), training(checkpointed=(0, 2))),
        ("batch in 2 parts", training(), training(parts=2)),
        ("batch in 4 parts", training(), training(parts=4)),
        ("fused optimizer", training(weight=HEAVY), training(weight=HEAVY, temporary=False)),
        (
            "8-bit optimizer state",
            training(weight=HEAVY),
            training(weight=HEAVY, state=EIGHT_BIT, temporary=False),
        ),
        (
            "update in the backward pass",
            training(weight=HEAVY),
            training(weight=HEAVY, temporary=False, updates_in_backward=True),
        ),
        ("chunked loss", training(), training(chunks=8)),
    ],
)
def test_an_edit_has_the_peak_of_the_edited_program(
    name: str, program: Trace, edited_program: Trace
) -> None:
    assert edited(name, program).max_load == edited_program.max_load
    assert edited_program.max_load < program.max_load


def test_gradients_that_are_kept_can_be_freed() -> None:
    kept = training(keeps_gradients=True, temporary=False)
    freed = training(temporary=False)
    assert kept.max_load > freed.max_load
    assert edited("no gradients between", kept).max_load == freed.max_load
    names = {edit.name for edit in edits(TrainingBlocks(training()), ranks=8)}
    assert "no gradients between the steps" not in names


def with_shapes(trace: Trace) -> Trace:
    """A recording that also says that each weight is a square matrix of float32."""
    side = int((WEIGHT // 4) ** 0.5)
    shapes = {f"layers.{layer}.mlp": [["float32", [side, side]]] for layer in range(LAYERS)}
    return replace(trace, provenance=replace(trace.provenance, extra={PARAMETER_SHAPES: shapes}))


def test_float32_becomes_half() -> None:
    trace = training()
    assert edited("bfloat16", with_shapes(trace)).max_load == trace.max_load // 2
    assert not any(one.name.startswith("bfloat16") for one in edits(TrainingBlocks(trace), ranks=8))


def test_factored_states_are_rows_and_columns() -> None:
    blocks = TrainingBlocks(with_shapes(training()))
    (edit,) = (one for one in edits(blocks, ranks=8) if one.name.startswith("factored"))
    table = edit.apply(blocks.table)
    kept = blocks.of_kind(table, STATE)
    side = int((WEIGHT // 4) ** 0.5)
    small = table.size[kept & (table.size < WEIGHT)]
    assert small.tolist() == [4 * side] * (STATES * LAYERS)


def test_without_foreach_two_temporaries_exist_at_a_time() -> None:
    weights = LAYERS * (2 + STATES) + 2  # weights, gradients and states, then temporaries
    assert edited("optimizer without", training(weight=HEAVY)).max_load == weights * HEAVY


def test_places_give_the_cache_back() -> None:
    trace = training()
    changed = edited("empty_cache before each update", trace)
    assert (changed.op == TRIM).sum() == 3
    assert changed.max_load == trace.max_load
    settings = {one.name for one in whatif(trace, "naive", "sim:8GiB").single if ":" in one.name}
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


def test_sharding_splits_state_and_gradients() -> None:
    trace = training(steps=1)
    blocks = TrainingBlocks(trace)
    first = int(np.flatnonzero(trace.op == MARK)[-1])
    state, gradient = STATES * LAYERS * WEIGHT, LAYERS * WEIGHT
    lasting = {"ZeRO-1 on 8 GPUs": state, "ZeRO-2 on 8 GPUs": state + gradient}
    for edit in edits(blocks, ranks=8):
        if edit.name in lasting:
            table = edit.apply(blocks.table)
            alive = (table.born < first) & (table.freed > first)
            before = (blocks.table.born < first) & (blocks.table.freed > first)
            saved = int(blocks.table.size[before].sum() - table.size[alive].sum())
            assert saved == lasting[edit.name] * 7 // 8


def test_edits_combine() -> None:
    blocks = TrainingBlocks(training())
    chosen = {edit.name: edit for edit in edits(blocks, ranks=8)}
    both = chosen["batch in 2 parts"].apply(
        chosen["checkpoint each of layers.*"].apply(blocks.table)
    )
    assert both.to_trace().max_load == training(checkpointed=range(LAYERS), parts=2).max_load


def test_the_cheapest_edits_that_fit() -> None:
    trace = training()
    alone = {found.name: found for found in whatif(trace, "naive", "sim:8GiB").single}
    assert all(found.fits is None for found in alone.values())
    best = min(found.high for found in alone.values())
    fitting = whatif(trace, "naive", "sim:8GiB", capacity=best)
    assert fitting.enough is not None
    assert fitting.enough.fits
    assert fitting.enough.high <= best
    assert whatif(trace, "naive", "sim:8GiB", capacity=trace.max_load * 2).enough is None
    assert whatif(trace, "naive", "sim:8GiB", capacity=MIB).enough is None
    several = whatif(trace, "naive", "sim:8GiB", capacity=best - MIB).enough
    assert several is not None
    assert len(several.edits) > 1
    assert len({edit.family for edit in several.edits}) == len(several.edits)


@pytest.mark.parametrize(
    ("mib", "chosen"),
    [
        (1288, None),  # it fits as it is
        (952, "8-bit optimizer state"),  # at most 951.3 MiB
        (930, "8-bit optimizer state + chunked loss"),
        (815, "optimizer state in host memory"),  # one harder edit, before more of the easy ones
        (700, "ZeRO-3 on 8 GPUs"),
        (
            400,
            "batch in 2 parts + freeze layers.0 to layers.1 and what comes before"
            " + ZeRO-3 on 8 GPUs",
        ),
        (250, None),
    ],
)
def test_the_edits_that_ask_least_are_chosen(mib: int, chosen: str | None) -> None:
    enough = whatif(training(), "naive", "sim:8GiB", capacity=mib * MIB).enough
    assert (enough and enough.name) == chosen


def test_edits_are_ordered_by_what_they_ask() -> None:
    """An argument, then some lines, then another way to train, then more GPUs."""
    efforts = {edit.name: edit.effort for edit in edits(TrainingBlocks(training()), ranks=8)}
    ordered = (
        "fused optimizer",
        "chunked loss",
        "update in the backward pass",
        "ZeRO-1 on 8 GPUs",
    )
    asked = [efforts[name] for name in ordered]
    assert asked == sorted(set(asked))
    assert efforts["optimizer state in host memory"] == efforts["update in the backward pass"]
    assert max(efforts, key=lambda name: efforts[name]).startswith("freeze")
    assert efforts["batch in 2 parts"] == efforts["checkpoint each of layers.*"] == asked[1]


def test_a_run_takes_the_place_of_an_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    answer = whatif(training(), "naive", "sim:8GiB")
    first, second, *_ = answer.single
    ran = replace(first, run=answer.need - 3 * MIB)
    command._print(replace(answer, single=[ran, second]), "the device")
    rows = [line for line in capsys.readouterr().out.splitlines() if "MiB" in line]
    assert "3.00 MiB" in next(row for row in rows if row.startswith(first.name))
    assert "512 MiB" in next(row for row in rows if row.startswith(second.name))  # 1288 - 776


def test_a_trace_without_steps_is_refused() -> None:
    with pytest.raises(UsageError, match="no steps"):
        whatif(make([(ALLOC, 0, 5)]), "naive", "sim:8GiB")


def test_the_command(folder: Path) -> None:
    write(training(), "train.parquet")
    (proposal, *_others) = json.loads(run("whatif train.parquet --allocator naive --json -").stdout)
    assert proposal["low"] <= proposal["need"] <= proposal["high"]
    assert proposal["saves"] > 0
    assert "as it is" in run("whatif train.parquet --device sim:8GiB").stdout
    assert run("whatif good.csv").exit_code == 2


def test_a_curve_has_the_peak_of_its_edits() -> None:
    trace = training()
    blocks = TrainingBlocks(trace)
    answer = whatif(trace, "naive", "sim:8GiB")
    together = combined(answer, blocks, "naive", "sim:8GiB")
    assert {len(proposal.edits) for proposal in together} == {2, 3}
    for chosen, peak in [
        ((), trace.max_load),
        *((proposal.edits, proposal.load) for proposal in (*answer.single, *together)),
    ]:
        drawn = np.array([*curve(blocks, chosen).values()])
        assert drawn.shape[1] == COLUMNS
        assert drawn.sum(axis=0).max() == peak


def test_a_statistic_behind_its_output_is_not_the_output() -> None:
    table = TrainingBlocks(training(statistic=True))
    assert {int(table.table.size[call.output]) for call in table.calls} == {OUTPUT}
    program = training(checkpointed=range(LAYERS), statistic=True)
    assert edited("checkpoint each", training(statistic=True)).max_load == program.max_load
