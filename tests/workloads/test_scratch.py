# SPDX-License-Identifier: Apache-2.0
"""The modelled scratch memory of kernels: what is added, where, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given

from allocbench.commands.options import Gpu
from allocbench.programs.capturing import FAKE, Where
from allocbench.workloads import ALLOC, FREE, Provenance, Trace, catalog, read, write
from allocbench.workloads.scratch import FLASH, GPUS, Model, with_scratch
from tests.commands import error, folder, output
from tests.traces import Event, assert_same, make, message_of, valid_traces

__all__ = ["folder"]  # a fixture, used by importing it

CUBLAS = 2 * 4096 * 1024 + 8 * 16 * 1024
HEADS, QUERIES, WIDTH = 8, 256, 64
RESULT = 2 * HEADS * QUERIES * WIDTH
ROWS = 4 * HEADS * QUERIES


def labeled(events: list[tuple[int, int, int, str]]) -> Trace:
    labels = tuple(dict.fromkeys(("", *(label for *_, label in events))))
    plain: list[Event] = [(op, block, size) for op, block, size, _ in events]
    label = np.array([labels.index(label) for *_, label in events], np.uint32)
    return make(plain, labels=labels, label=label, provenance=Provenance(name="mine"))


def added(trace: Trace, model: Model = GPUS["sm80"]) -> list[tuple[int, int, int, str]]:
    """For each new event: op, the event of the given trace that it follows, size and label."""
    modelled = with_scratch(trace, model)
    modelled.validate()
    assert modelled.label is not None
    rows, event = [], -1
    for op, block, size, label in zip(
        modelled.op.tolist(),
        modelled.block.tolist(),
        modelled.size.tolist(),
        modelled.label.tolist(),
        strict=True,
    ):
        if block >= trace.allocs and op <= FREE:
            rows.append((op, event, size, modelled.labels[label]))
        else:
            event += 1
    assert event == len(trace) - 1
    return rows


def attention(key: int = RESULT, result: int = RESULT, rows: int = ROWS) -> Trace:
    forward = [(ALLOC, n, size, FLASH) for n, size in enumerate((result, rows, 16, 8))]
    backward = [
        (ALLOC, 4 + n, size, f"{FLASH}_backward") for n, size in enumerate((result, key, key))
    ]
    frees = [(FREE, block, 0, "") for block in range(7)]
    return labeled([*forward, *backward, *frees])


def test_cublas_allocates_its_workspace_once_and_keeps_it() -> None:
    trace = labeled(
        [
            (ALLOC, 0, 100, "aten::empty"),
            (ALLOC, 1, 100, "aten::addmm"),
            (ALLOC, 2, 100, "aten::mm"),
            (FREE, 0, 0, ""),
        ]
    )
    assert added(trace) == [(ALLOC, 1, CUBLAS, "scratch::cublas")]
    assert added(trace, GPUS["sm90"]) == [(ALLOC, 1, 32 << 20, "scratch::cublas")]
    streams = np.array([0, 0, 1, 0], np.uint16)
    two = with_scratch(replace(trace, stream=streams), GPUS["sm80"])
    assert two.stream.tolist() == [0, 0, 0, 1, 1, 0]


def test_flash_attention_allocates_row_sums_and_an_accumulator() -> None:
    label = "scratch::flash_attention_backward"
    sizes = [ROWS, 4 * HEADS * QUERIES * WIDTH]
    allocs = [(ALLOC, 6, size, label) for size in sizes]
    assert added(attention()) == [*allocs, (FREE, 6, 0, ""), (FREE, 6, 0, "")]


def test_fewer_key_heads_need_gradients_for_every_query_head() -> None:
    sizes = [size for op, _, size, _ in added(attention(key=RESULT // 4)) if op == ALLOC]
    assert sizes == [ROWS, 2 * RESULT, RESULT, RESULT]


def test_cross_attention_has_equally_many_heads() -> None:
    for key in (RESULT * 77 // 256, RESULT * 3):
        sizes = [size for op, _, size, _ in added(attention(key=key)) if op == ALLOC]
        assert sizes == [ROWS, 2 * RESULT]


def test_convolutions_allocate_the_given_bytes() -> None:
    trace = labeled([(ALLOC, 0, 100, "aten::convolution"), (FREE, 0, 0, "")])
    assert added(trace) == []
    model = Model(cublas=1, convolution=7 << 20)
    label = "scratch::convolution"
    assert added(trace, model) == [(ALLOC, 0, 7 << 20, label), (FREE, 0, 0, "")]


def test_every_backward_pass_of_attention_needs_scratch() -> None:
    trace, _ = Where(FAKE).capture("tests.workloads.small_program", "gpt2-train")
    before = replace(trace)
    modelled = with_scratch(trace, GPUS["sm90"])
    modelled.validate()
    assert_same(trace, before)
    assert trace.label is not None
    passes = (trace.label == trace.labels.index(f"{FLASH}_backward")).sum() // 3
    sums = [size for op, _, size, label in added(trace, GPUS["sm90"]) if "flash" in label]
    assert len(sums) >= 2 * passes > 0
    assert trace.max_load + (32 << 20) <= modelled.max_load
    assert modelled.max_load <= catalog.load("gpt2-train").max_load
    assert modelled.provenance.name == "gpt2-train+scratch"
    assert modelled.provenance.extra["scratch (modelled)"] == {"cublas": 32 << 20, "convolution": 0}


@given(valid_traces())
def test_any_trace_with_labels_stays_valid(trace: Trace) -> None:
    if trace.label is None:
        expected = "kernel scratch needs operator names, and this trace has none"
        assert message_of(lambda: with_scratch(trace, GPUS["sm80"])) == expected
    else:
        assert_same(with_scratch(trace, GPUS["sm80"]), trace)


def test_the_command_line_knows_every_gpu() -> None:
    assert [gpu.value for gpu in Gpu] == list(GPUS)


def test_convert_adds_it_on_demand() -> None:
    convolution = (ALLOC, 0, 100, "aten::convolution")
    write(labeled([convolution, (ALLOC, 1, 100, "aten::mm"), (FREE, 0, 0, "")]), "raw.parquet")
    output("convert raw.parquet -o full.parquet --scratch sm90 --convolution-scratch 1048576")
    full = read("full.parquet")
    assert full.labels[-2:] == ("scratch::convolution", "scratch::cublas")
    assert full.allocs == 4
    refused = error("convert resnet50-train -o new.parquet --scratch sm90")
    assert "a trace of null:h100-sxm-80gb,convolution_workspace=0" in refused
    assert "already has the scratch of its kernels" in refused
    assert "no model" not in output("inspect full.parquet")
    assert error("convert good.csv -o new.csv --scratch sm80").startswith(
        "error: kernel scratch needs"
    )
    assert "requires --scratch" in error("convert good.csv -o new.csv --convolution-scratch 5")
