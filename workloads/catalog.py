# SPDX-License-Identifier: Apache-2.0
"""The workloads by name: bundled traces captured from programs, and generators.

`python -m workloads.catalog` makes the bundled traces again, byte for byte (needs the extra
`torch`). A generator takes options: `random:allocs=1000,seed=7`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from workloads.capture import capture as capture_module
from workloads.fake_cuda import CaptureError
from workloads.files import read, write
from workloads.generator import Generator, Value, parse
from workloads.serving import GENERATORS as SERVING
from workloads.synthetic import GENERATORS as SYNTHETIC
from workloads.trace import Trace, TraceError

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Workload:
    """A bundled workload: the module it is captured from, and the day that it was."""

    name: str
    summary: str
    module: str
    date: str
    kind: str = "captured"

    @property
    def path(self) -> Path:
        """The bundled file."""
        return DATA / f"{self.name}.parquet"


_WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            name="gpt2-train",
            summary="GPT-2 124M trained with AdamW, 12 steps of varying sequence length",
            module="workloads.models.gpt2",
            date="2026-11-21",
        ),
        Workload(
            name="llama3-8b-lora",
            summary="Llama-3-8B fine-tuned with LoRA and activation checkpointing, 3 steps",
            module="workloads.models.llama_lora",
            date="2026-11-21",
        ),
        Workload(
            name="llm-decode",
            summary="Llama-3-8B answering 10 requests that come and go, KV caches growing",
            module="workloads.models.llm_decode",
            date="2026-11-21",
        ),
    )
}


_GENERATORS = {generator.name: generator for generator in (*SERVING, *SYNTHETIC)}


def names() -> list[str]:
    """Names of all workloads: the captured ones, sorted, then the generators."""
    return [*captured(), *_GENERATORS]


def captured() -> list[str]:
    """Names of the bundled workloads, sorted."""
    return sorted(_WORKLOADS)


def generators() -> list[Generator]:
    """The workloads that are made on demand."""
    return list(_GENERATORS.values())


def knows(spec: str) -> bool:
    """Whether a spec, `name` or `name:option=value,...`, has the name of a workload."""
    return spec.partition(":")[0] in names()


def info(name: str) -> Workload | Generator:
    """What there is under a name; TraceError, listing the names, when nothing is."""
    if name in _GENERATORS:
        return _GENERATORS[name]
    if name not in _WORKLOADS:
        raise TraceError(f"unknown workload '{name}'; workloads: {', '.join(names())}")
    return _WORKLOADS[name]


def load(spec: str, **options: Value) -> Trace:
    """The trace of a workload, `name` or, of a generator, `name:option=value,option=value`.

    options: more of them; what the spec says goes before.

    Raises TraceError for an unknown name or option, or a value that an option cannot have.
    """
    name, written = parse(spec)
    workload = info(name)
    if isinstance(workload, Generator):
        try:
            return workload.trace(options | written)
        except TraceError as error:
            raise TraceError(f"{name}: {error}") from error
    if options or written:
        raise TraceError(f"{spec}: {name} is a bundled trace and has no options")
    return read(workload.path)


def capture(name: str) -> Trace:
    """Capture a bundled workload anew.

    Raises TraceError when none has that name, and as `workloads.capture.capture` does.
    """
    workload = bundled(name)
    return capture_module(workload.module, workload.name, workload.date)


def bundled(name: str) -> Workload:
    """What is bundled under a name; TraceError, listing the names, when nothing is."""
    if name not in _WORKLOADS:
        raise TraceError(f"unknown workload '{name}'; bundled are {', '.join(captured())}")
    return _WORKLOADS[name]


def recreate(names: Iterable[str], folder: Path = DATA) -> None:
    """Capture workloads anew, some at a time, and write them as `folder`/NAME.parquet."""

    def one(name: str) -> None:
        write(capture(name), folder / bundled(name).path.name)

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(one, names))


def markdown() -> str:
    """The bundled traces as a Markdown table, measured on the files."""
    lines = [
        "| workload | events | steps | max load (bytes) | file (bytes) |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in captured():
        trace, size = load(name), bundled(name).path.stat().st_size
        cells = (name, f"{len(trace):,}", trace.steps, f"{trace.max_load:,}", f"{size:,}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> int:
    """Recreate every bundled trace and print what they hold; returns the exit code."""
    try:
        recreate(captured())
    except (CaptureError, TraceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
