# SPDX-License-Identifier: Apache-2.0
"""THE list of formats that are read. A format is known by a file's first bytes, not by its name.

Another format is one line here, and a module with its `sniff` and its `read`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from allocbench.workloads import lifetimes, parquet, plain_csv, serving
from allocbench.workloads.importers import kineto, minimalloc, pytorch_snapshot, rmm_log
from allocbench.workloads.serving import logs
from allocbench.workloads.trace import Trace

HEAD = 1 << 16
"""Bytes from the begin of a file by which its format is told."""


def _event(event: int) -> str:
    return f"event {event}"


@dataclass(frozen=True)
class Format:
    """A format of files.

    name, summary: what users call it, and what it holds. sniff: whether a file with these first
    HEAD bytes (or all of them, when it has fewer) has this format. read: `read(file, path,
    **options)` makes a trace of an open binary file, named by its path, or raises TraceError.
    options: what a user may choose, as `workloads.read(path, name=value)`, and what for. place:
    where a file holds an event (from 0).
    """

    name: str
    summary: str
    sniff: Callable[[bytes], bool]
    read: Callable[..., Trace]
    options: Mapping[str, str] = field(default_factory=dict)
    place: Callable[[int], str] = _event


FORMATS = (
    Format(
        "Parquet",
        "a trace with all it can hold, as allocbench writes it",
        parquet.is_parquet,
        parquet.read_parquet,
    ),
    Format(
        "CSV op,id,size",
        "a trace of allocs and frees",
        plain_csv.is_csv,
        plain_csv.read_csv,
        place=plain_csv.place,
    ),
    Format(
        "CSV id,lower,upper,size",
        "lifetimes, as google/minimalloc has them",
        lifetimes.is_lifetimes,
        minimalloc.read,
    ),
    Format(
        "PyTorch memory snapshot",
        "torch.cuda.memory._dump_snapshot, or a pickle of memory_snapshot",
        pytorch_snapshot.is_pickle,
        pytorch_snapshot.read,
        options={"device": "the number of a GPU, where several have events"},
    ),
    Format(
        "PyTorch profiler trace",
        "Chrome's JSON with [memory] events: torch.profiler, profile_memory=True",
        kineto.is_profile,
        kineto.read,
        options={"device": "the number of a GPU, or cpu, where several have events"},
    ),
    Format(
        "RMM log",
        f"CSV {rmm_log.HEADER} of RMM's logging adaptor",
        rmm_log.is_rmm_log,
        rmm_log.read,
    ),
    Format(
        "request log",
        "requests to a language model, served: Azure's and BurstGPT's CSV, Mooncake's JSON lines",
        logs.is_log,
        serving.read_log,
        options={option.name: option.help for option in serving.LOG_OPTIONS},
    ),
)


def format_of(head: bytes) -> Format | None:
    """The format of a file that begins so, or None when it has none of them."""
    return next((one for one in FORMATS if one.sniff(head)), None)
