# SPDX-License-Identifier: Apache-2.0
"""THE list of formats that are read. A format is known by a file's first bytes, not by its name.

Another format is one line here, and a module with its `sniff` and its `read`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, BinaryIO

from allocbench.workloads.serving import LOG_OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from allocbench.workloads.recordings import Recording
    from allocbench.workloads.trace import Trace

HEAD = 1 << 16
"""Bytes from the begin of a file by which its format is told."""


@dataclass(frozen=True)
class Format:
    """A format of files.

    name, summary: what users call it, and what it holds. sniffer, reader: `module:function` in this
    package, imported when a file is read. options: what a user may choose, as
    `workloads.read(path, name=value)`, and what for. recorder: what reads the same with what the
    recorded allocator did, where the format tells that.
    """

    name: str
    summary: str
    sniffer: str
    reader: str
    options: Mapping[str, str] = field(default_factory=dict)
    recorder: str | None = None

    def sniff(self, head: bytes) -> bool:
        """Whether a file with these first HEAD bytes, or all of fewer, has this format."""
        return bool(_function(self.sniffer)(head))

    def read(self, file: BinaryIO, path: Path, **options: str | int) -> Trace:
        """Make a trace of an open file, named by its path; raises TraceError when it has none."""
        trace: Trace = _function(self.reader)(file, path, **options)
        return trace

    def record(self, file: BinaryIO, path: Path, **options: str | int) -> Recording:
        """Make a recording of an open file; raises TraceError when the format tells too little."""
        if self.recorder is None:
            from allocbench.workloads.vocabulary import TraceError

            able = " and ".join(one.name for one in FORMATS if one.recorder)
            raise TraceError(
                f"is {self.name}, which does not tell what an allocator did; {able} do"
            )
        recording: Recording = _function(self.recorder)(file, path, **options)
        return recording


def _function(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = resolve_name(f"{__package__}.{name}")
    return found


FORMATS = (
    Format(
        "Parquet",
        "the native format, which stores everything that a trace can hold",
        "parquet:is_parquet",
        "parquet:read_parquet",
    ),
    Format(
        "CSV op,id,size",
        "a trace of allocs and frees",
        "plain_csv:is_csv",
        "plain_csv:read_csv",
    ),
    Format(
        "CSV id,lower,upper,size",
        "lifetimes of blocks, the format of google/minimalloc",
        "block_lifetimes:is_lifetimes",
        "importers.minimalloc:read",
    ),
    Format(
        "PyTorch memory snapshot",
        "written by torch.cuda.memory._dump_snapshot, or a pickle of memory_snapshot()",
        "importers.pytorch_snapshot:is_pickle",
        "importers.pytorch_snapshot:read",
        options={"device": "the number of a GPU, where several have events"},
        recorder="importers.pytorch_snapshot:read_recording",
    ),
    Format(
        "PyTorch profiler trace",
        "Chrome JSON with [memory] events, of torch.profiler with profile_memory=True",
        "importers.kineto:is_profile",
        "importers.kineto:read",
        options={"device": "the number of a GPU, or cpu, where several have events"},
        recorder="importers.kineto:read_recording",
    ),
    Format(
        "RMM log",
        "CSV Thread,Time,Action,Pointer,Size,Stream of RMM's logging adaptor",
        "importers.rmm_log:is_rmm_log",
        "importers.rmm_log:read",
    ),
    Format(
        "request log",
        "requests to an LLM server, which is simulated: CSV of Azure, BurstGPT; JSON of Mooncake",
        "serving.logs:is_log",
        "serving:read_log",
        options={option.name: option.help for option in LOG_OPTIONS},
    ),
)


REFUSED = (
    Format(
        "memory timeline",
        "what the PyTorch profiler's export_memory_timeline writes, which is no trace",
        "importers.kineto:is_timeline",
        "importers.kineto:refuse_timeline",
    ),
)
"""What a user may take for a trace. Reading it raises TraceError with the reason and the remedy."""


def format_of(head: bytes) -> Format | None:
    """The format of a file that begins so, or None when it has none of them."""
    return next((one for one in (*FORMATS, *REFUSED) if one.sniff(head)), None)
