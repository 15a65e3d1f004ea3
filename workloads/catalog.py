# SPDX-License-Identifier: Apache-2.0
"""The bundled workloads: name -> trace, and how each was made.

`python -m workloads.catalog` makes all of them again, byte for byte (needs the extra `torch`).
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
from workloads.trace import Trace, TraceError

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Workload:
    """A bundled workload: the module it is captured from, and the day that it was."""

    name: str
    summary: str
    module: str
    date: str

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


def names() -> list[str]:
    """Names of the bundled workloads, sorted."""
    return sorted(_WORKLOADS)


def info(name: str) -> Workload:
    """What is bundled under a name; TraceError, listing the names, when nothing is."""
    if name not in _WORKLOADS:
        raise TraceError(f"unknown workload '{name}'; bundled are {', '.join(names())}")
    return _WORKLOADS[name]


def load(name: str) -> Trace:
    """The bundled trace of a name; TraceError, listing the names, when there is none."""
    return read(info(name).path)


def capture(name: str) -> Trace:
    """Capture a bundled workload anew; raises as `info` and `workloads.capture.capture` do."""
    workload = info(name)
    return capture_module(workload.module, workload.name, workload.date)


def recreate(names: Iterable[str], folder: Path = DATA) -> None:
    """Capture workloads anew, some at a time, and write them as `folder`/NAME.parquet."""

    def one(name: str) -> None:
        write(capture(name), folder / info(name).path.name)

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(one, names))


def markdown() -> str:
    """The bundled traces as a Markdown table, measured on the files."""
    lines = [
        "| workload | events | steps | max load (bytes) | file (bytes) |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in names():
        trace, size = load(name), info(name).path.stat().st_size
        cells = (name, f"{len(trace):,}", trace.steps, f"{trace.max_load:,}", f"{size:,}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> int:
    """Recreate every bundled trace and print what they hold; returns the exit code."""
    try:
        recreate(names())
    except (CaptureError, TraceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
