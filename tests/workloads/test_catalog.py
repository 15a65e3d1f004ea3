# SPDX-License-Identifier: Apache-2.0
"""The bundled traces are complete, have their provenance, and match the size of their models."""

import subprocess
import sys

import numpy as np
import pytest

from allocbench.workloads import ALLOC, FREE, MARK, Trace, catalog
from benchmarks.workshop import bundled_traces

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


def allocated(trace: Trace, operator: str) -> list[int]:
    """Sizes allocated by an operator, in order."""
    assert trace.label is not None
    chosen = (trace.op == ALLOC) & (trace.label == trace.labels.index(operator))
    sizes: list[int] = trace.size[chosen].tolist()
    return sizes


def before_first_step(trace: Trace) -> Trace:
    end = int(np.argmax((trace.op == MARK) & (trace.block == trace.step_label)))
    return Trace(trace.op[:end], trace.block[:end], trace.size[:end], trace.stream[:end])


def test_the_listed_sizes_match_the_traces() -> None:
    sizes = catalog.sizes()
    assert list(sizes) == catalog.names()
    for name, size in sizes.items():
        trace = catalog.load(name)
        assert size == catalog.Size(len(trace), trace.max_load), f"{name}: run `make traces`"


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
