# SPDX-License-Identifier: Apache-2.0
"""The bundled traces are complete, have their provenance, and match the size of their models."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from allocbench.workloads import ALLOC, FREE, MARK, Trace, catalog
from benchmarks.workshop import bundled_traces
from tests.traces import message_of

TRAINING = {"init", "step", "forward", "backward", "optimizer", "teardown"}
PHASES = {
    "bert-serve": {"init", "step", "forward", "teardown"},
    "diffusion-sample": {"init", "step", "sample", "decode", "teardown"},
    "diffusion-train": TRAINING,
    "dlrm-train": TRAINING,
    "gpt2-train": TRAINING,
    "llama3-8b-lora": TRAINING,
    "llm-continuous": {"init", "step", "forward", "teardown"},
    "llm-decode": {"init", "step", "prefill", "decode", "teardown"},
    "llm-paged": {"init", "step", "prefill", "decode", "teardown"},
    "moe-train": TRAINING,
    "resnet50-train": TRAINING | {"validation"},
    "vit-serve": {"init", "step", "forward", "teardown"},
    "whisper-beam": {"init", "step", "encode", "decode", "teardown"},
}
NAMES = sorted(PHASES)


def config_of(trace: Trace) -> Any:
    return trace.provenance.extra["config"]


def allocated(trace: Trace, operator: str) -> list[int]:
    """Sizes allocated by an operator, in order."""
    assert trace.label is not None
    chosen = (trace.op == ALLOC) & (trace.label == trace.labels.index(operator))
    sizes: list[int] = trace.size[chosen].tolist()
    return sizes


def before_first_step(trace: Trace) -> Trace:
    end = int(np.argmax((trace.op == MARK) & (trace.block == trace.step_label)))
    return Trace(trace.op[:end], trace.block[:end], trace.size[:end], trace.stream[:end])


def test_names() -> None:
    assert catalog.captured() == NAMES
    created = [generator.name for generator in catalog.generators()]
    assert catalog.names() == [*NAMES, *created]
    assert [catalog.info(name).name for name in catalog.names()] == catalog.names()
    assert len(set(catalog.names())) == len(catalog.names())
    assert len(NAMES) >= 12


def test_the_listed_sizes_match_the_traces() -> None:
    sizes = catalog.sizes()
    assert list(sizes) == catalog.names()
    for name, size in sizes.items():
        trace = catalog.load(name)
        assert size == catalog.Size(len(trace), trace.max_load), f"{name}: run `make traces`"


@pytest.mark.parametrize("name", NAMES)
def test_training_workloads_run_backward(name: str) -> None:
    purpose = "training" if "backward" in PHASES[name] else "inference"
    assert catalog.bundled(name).purpose == purpose


def test_an_unknown_name_is_refused_with_the_valid_names() -> None:
    expected = f"unknown workload 'gpt5'; workloads: {', '.join(catalog.names())}"
    assert message_of(lambda: catalog.load("gpt5")) == expected
    expected = f"unknown workload '{{}}'; bundled workloads: {', '.join(NAMES)}"
    assert message_of(lambda: catalog.bundled("gpt5")) == expected.format("gpt5")
    assert message_of(lambda: catalog.bundled("random")) == expected.format("random")


@pytest.mark.parametrize("name", NAMES)
def test_provenance_is_complete(name: str) -> None:
    provenance, workload = catalog.load(name).provenance, catalog.bundled(name)
    assert (provenance.name, provenance.kind) == (name, "captured")
    assert (provenance.source, provenance.date) == (workload.module, workload.date)
    assert provenance.torch == "2.13.0"
    assert provenance.device == "null:h100-sxm-80gb,convolution_workspace=0,graph_workspace=0"
    assert provenance.live_at_start == 0
    assert provenance.seed is not None
    assert provenance.model
    assert provenance.extra["config"]
    assert provenance.extra["features"] == []  # no program uses what allocator settings can break


@pytest.mark.parametrize("name", NAMES)
def test_traces_are_complete(name: str) -> None:
    trace = catalog.load(name)
    trace.validate()
    assert 10_000 <= len(trace) <= 120_000
    assert trace.steps >= 3
    assert trace.allocs == trace.blocks
    never_freed = np.setdiff1d(trace.block[trace.op == ALLOC], trace.block[trace.op == FREE])
    workspaces = trace.size[trace.op == ALLOC][never_freed].tolist()
    assert workspaces in ([32 << 20], [32 << 20] * 2)  # cuBLAS: one for each thread that multiplies
    assert {trace.labels[mark] for mark in trace.block[trace.op == MARK]} == PHASES[name]
    assert trace.label is not None
    operators = {trace.labels[label] for label in set(trace.label[trace.op == ALLOC].tolist())}
    own = {"allocbench::paged_attention"}
    assert all(operator.startswith("aten::") for operator in operators - own)


def test_gpt2_has_its_published_shape() -> None:
    trace = catalog.load("gpt2-train")
    config = config_of(trace)
    width, layers, vocabulary = config["width"], config["layers"], config["vocabulary"]
    parameters = (
        (vocabulary + max(config["lengths"])) * width
        + layers * (12 * width**2 + 13 * width)
        + 2 * width
    )
    init = before_first_step(trace)
    made_and_dropped = (
        4 * vocabulary * width
    )  # the head's own weight, before it shares the embedding
    assert init.size.sum() == 4 * parameters + made_and_dropped
    assert len(set(config["lengths"])) == trace.steps == 12
    logits = [2 * config["batch"] * length * vocabulary for length in config["lengths"]]
    assert allocated(trace, "aten::_log_softmax") == logits
    assert trace.max_load > 4 * 4 * parameters  # weights, gradients and two moments in float32


def test_llama_lora_has_the_shape_of_llama() -> None:
    trace = catalog.load("llama3-8b-lora")
    config = config_of(trace)
    adapters = 32 * config["rank"] * ((4096 + 4096) + (4096 + 1024))
    assert before_first_step(trace).size.sum() == 2 * (8_030_261_248 + adapters)
    logits = [4 * config["batch"] * length * 128256 for length in config["lengths"]]
    assert allocated(trace, "aten::_log_softmax") == logits
    hidden = [2 * config["batch"] * length * 14336 for length in config["lengths"]]
    silu = [size for size in hidden for _ in range(2 * 32)]  # forward, and again in backward
    assert allocated(trace, "aten::silu") == silu


def test_decoding_grows_every_cache_by_a_token_a_step() -> None:
    trace = catalog.load("llm-decode")
    assert before_first_step(trace).size.sum() == 2 * 8_030_261_248
    grown = Counter(allocated(trace, "aten::cat"))
    token = 2 * 8 * 128  # bytes of one token's keys, or values, in one layer
    for request in config_of(trace)["requests"]:
        for created in range(1, request["answer"] + 1):
            assert grown[token * (request["prompt"] + created)] >= 2 * 32


# Parameters of each model as published, with the difference of ours.
PARAMETERS = {
    "bert-serve": 335_141_888 - 1024 * 1025 - 2 * 1024,  # no pooler, no segments
    "diffusion-sample": 859_520_964 + 49_490_179,  # U-Net and decoder
    "resnet50-train": 25_557_032,
    "vit-serve": 304_326_632,
    "whisper-beam": 808_878_080 + 40 * 1280,  # biases of the keys
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_models_have_their_published_sizes(name: str) -> None:
    trace = catalog.load(name)
    live = before_first_step(trace)
    freed = live.block[live.op == FREE]
    kept = (live.op == ALLOC) & ~np.isin(live.block, freed)
    width = 4 if catalog.bundled(name).purpose == "training" else 2
    extra = {
        "resnet50-train": 53 * 8 + 4 * 2 * 26_560,  # running statistics
        "diffusion-sample": 2 * 4 * 4 * 64 * 64 + 2 * 8 * 77 * 768,  # the first request
    }
    assert live.size[kept].sum() == width * PARAMETERS[name] + extra.get(name, 0)


def test_the_readme_table_matches_the_traces() -> None:
    assert bundled_traces.markdown() in (catalog.DATA / "README.md").read_text()


def test_the_data_is_small() -> None:
    assert sum(path.stat().st_size for path in catalog.DATA.iterdir()) <= 8 * 10**6
    assert sorted(path.stem for path in catalog.DATA.glob("*.parquet")) == NAMES


def test_the_catalog_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from allocbench.workloads import catalog as c; "
    )
    code += "print(sum(len(c.load(name)) for name in c.names()))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stdout) == sum(len(catalog.load(name)) for name in catalog.names())
