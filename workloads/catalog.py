# SPDX-License-Identifier: Apache-2.0
"""The workloads by name: bundled traces of PyTorch programs, and generators.

`make traces` makes the bundled traces again, byte for byte, on a null GPU. A generator takes
options: `random:allocs=1000,seed=7`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from allocbench.base.spec import SpecSyntaxError, name_of, parse
from allocbench.workloads.generator import Generator, Value
from allocbench.workloads.serving import GENERATORS as SERVING
from allocbench.workloads.synthetic import GENERATORS as SYNTHETIC
from allocbench.workloads.vocabulary import TraceError

if TYPE_CHECKING:
    from allocbench.workloads.trace import Trace

DATA = Path(__file__).parent / "data"
SIZES = DATA / "sizes.json"
"""The sizes of all workloads, written by `make traces`."""


_DATE = "2026-11-22"
"""When the bundled traces were made."""
_PROGRAMS = "benchmarks.workshop.models"
"""The package of their programs, which the repository has, and the wheel has not."""


@dataclass(frozen=True)
class Workload:
    """A bundled workload: the module of its program, and the date of its trace.

    purpose: "training" or "inference".
    """

    name: str
    purpose: str
    module: str
    summary: str
    date: str = _DATE
    kind: str = "captured"

    @property
    def source(self) -> str:
        """Where the trace comes from."""
        return self.module

    @property
    def path(self) -> Path:
        """The bundled file."""
        return DATA / f"{self.name}.parquet"


_TRAINING = {
    "diffusion-train": (
        "diffusion_train",
        "Stable Diffusion 1.5's U-Net trained on 4 batches of mixed aspect ratios",
    ),
    "dlrm-train": (
        "dlrm",
        "DLRM with Criteo's 26 embedding tables trained on bags of random lengths",
    ),
    "gpt2-train": ("gpt2", "GPT-2 124M trained with AdamW, 12 steps of varying sequence length"),
    "llama3-8b-lora": (
        "llama_lora",
        "Llama-3-8B fine-tuned with LoRA and activation checkpointing, 3 steps",
    ),
    "moe-train": (
        "moe",
        "Mixture of 8 unevenly used experts, 2.7 billion parameters, trained 4 steps",
    ),
    "resnet50-train": (
        "resnet",
        "ResNet-50 trained with SGD for 2 epochs, each with a short last batch",
    ),
}
_INFERENCE = {
    "bert-serve": (
        "bert",
        "BERT-large embedding texts padded to six lengths, with equal tokens per batch",
    ),
    "diffusion-sample": (
        "diffusion_sample",
        "Stable Diffusion 1.5 answering 3 requests with guidance, U-Net and decoder",
    ),
    "llm-continuous": (
        "llm_continuous",
        "Llama-3-8B, continuous batching of 12 requests: chunked prompts, pooled pages",
    ),
    "llm-decode": (
        "llm_decode",
        "Llama-3-8B answering 10 requests that come and go, KV caches growing",
    ),
    "llm-paged": (
        "llm_paged",
        "Llama-3.2-1B answering 12 requests, KV caches in pages allocated one by one",
    ),
    "vit-serve": ("vit", "ViT-L/16 classifying 24 batches of 1 to 64 images"),
    "whisper-beam": (
        "whisper",
        "Whisper large-v3-turbo transcribing 4 batches of speech by beam search",
    ),
}
"""The module of the program of each workload, and a summary."""
_WORKLOADS = {
    name: Workload(name, purpose, f"{_PROGRAMS}.{module}", summary)
    for purpose, workloads in (("training", _TRAINING), ("inference", _INFERENCE))
    for name, (module, summary) in workloads.items()
}


_GENERATORS = {generator.name: generator for generator in (*SERVING, *SYNTHETIC)}


def names() -> list[str]:
    """Names of all workloads: the captured ones sorted, then the generators."""
    return [*captured(), *_GENERATORS]


def captured() -> list[str]:
    """Names of the bundled workloads, sorted."""
    return sorted(_WORKLOADS)


def generators() -> list[Generator]:
    """The workloads that are generated on demand."""
    return list(_GENERATORS.values())


def knows(spec: str) -> bool:
    """Whether a spec, `name` or `name:option=value,...`, names a workload."""
    return name_of(spec) in names()


def info(name: str) -> Workload | Generator:
    """The workload with a name; raises TraceError, with the valid names, if there is none."""
    if name in _GENERATORS:
        return _GENERATORS[name]
    if name not in _WORKLOADS:
        raise TraceError(f"unknown workload '{name}'; workloads: {', '.join(names())}")
    return _WORKLOADS[name]


def load(spec: str, **options: Value) -> Trace:
    """The trace of a workload: `name`, or `name:option=value,option=value` for a generator.

    options: further options; those in the spec take precedence.

    Raises TraceError for an unknown name or option, and for an invalid value of an option.
    """
    try:
        parsed = parse(spec)
    except SpecSyntaxError as error:
        raise TraceError(str(error)) from error
    name, written = parsed.name, parsed.options
    workload = info(name)
    if parsed.inner:
        raise TraceError(f"{spec}: a workload cannot wrap anything; of= is an option of allocators")
    if isinstance(workload, Generator):
        try:
            return workload.trace(options | written)
        except TraceError as error:
            raise TraceError(f"{name}: {error}") from error
    if options or written:
        raise TraceError(f"{spec}: {name} is a bundled trace and has no options")
    from allocbench.workloads.files import read

    return read(workload.path)


@dataclass(frozen=True)
class Size:
    """How long a trace is, and its max load in bytes."""

    events: int
    max_load: int


def sizes() -> dict[str, Size]:
    """The size of every workload in its default options, for which no trace is read."""
    return {name: Size(**size) for name, size in json.loads(SIZES.read_text("utf-8")).items()}


def bundled(name: str) -> Workload:
    """The bundled workload with a name; raises TraceError with the valid names."""
    if name not in _WORKLOADS:
        raise TraceError(f"unknown workload '{name}'; bundled workloads: {', '.join(captured())}")
    return _WORKLOADS[name]
