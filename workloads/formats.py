# SPDX-License-Identifier: Apache-2.0
"""THE list of input formats. A format is recognized by the first bytes of a file, not its name.

Another format is one line here, and a module with its `sniff` and its `read`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, BinaryIO

from allocbench.workloads.serving import LOG_OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from allocbench.workloads.recordings import Recording
    from allocbench.workloads.streaming import Source
    from allocbench.workloads.trace import Trace

OUTPUTS = ("parquet", "csv", "lifetimes")
"""Names of the output formats. Only Parquet stores everything."""
HEAD = 1 << 16
"""Number of bytes at the beginning of a file from which its format is recognized."""


@dataclass(frozen=True)
class Format:
    """A file format.

    name, summary: for users. sniffer, reader: `module:function` in this package, imported when a
    file is read. options: names and meanings of what a user can choose in
    `workloads.read(path, name=value)`. recorder: reads a trace together with what the recorded
    allocator did, if the format contains it. streamer: says how to read a large file part by part.
    """

    name: str
    summary: str
    sniffer: str
    reader: str
    options: Mapping[str, str] = field(default_factory=dict)
    recorder: str | None = None
    streamer: str | None = None

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins with these bytes, at most HEAD, has this format."""
        return bool(_function(self.sniffer)(head))

    def read(self, file: BinaryIO, path: Path, **options: str | int) -> Trace:
        """Read the trace of an open file, named by its path; raises TraceError if it has none."""
        trace: Trace = _function(self.reader)(file, path, **options)
        return trace

    def stream(self, file: BinaryIO, path: Path, more_than: int) -> Source | None:
        """How to read a file with more than some events part by part; None if it is not read so.

        Raises TraceError like `read`.
        """
        if self.streamer is None:
            return None
        source: Source | None = _function(self.streamer)(file, path, more_than)
        return source

    def record(self, file: BinaryIO, path: Path, **options: str | int) -> Recording:
        """Read the recording of an open file; raises TraceError if the format has none."""
        if self.recorder is None:
            from allocbench.workloads.vocabulary import TraceError

            able = " and ".join(other.name for other in FORMATS if other.recorder)
            raise TraceError(
                f"is {self.name}, which does not contain what an allocator did; {able} do"
            )
        recording: Recording = _function(self.recorder)(file, path, **options)
        return recording


@cache
def _function(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = resolve_name(f"{__package__}.{name}")
    return function


FORMATS = (
    Format(
        "Parquet",
        "the native format, which stores everything that a trace can hold",
        "parquet:is_parquet",
        "parquet:read_parquet",
        streamer="parquet:stream_parquet",
    ),
    Format(
        "CSV op,id,size",
        "a trace of allocs and frees",
        "plain_csv:is_csv",
        "plain_csv:read_csv",
        streamer="plain_csv:stream_csv",
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
        "importers.pickles:is_pickle",
        "importers.pytorch_snapshot:read",
        options={
            "device": "the number of a GPU, if several have events",
            "conf": "the PYTORCH_CUDA_ALLOC_CONF of the program, if the snapshot lacks it (to 2.3)",
        },
        recorder="importers.pytorch_snapshot:read_recording",
    ),
    Format(
        "PyTorch profiler trace",
        "Chrome JSON with [memory] events, of torch.profiler with profile_memory=True",
        "importers.kineto:is_profile",
        "importers.kineto:read",
        options={"device": "the number of a GPU, or cpu, if several have events"},
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
        "requests to an LLM server, which is simulated: CSV of Azure, BurstGPT; JSON of Mooncake,"
        " Qwen-Bailian",
        "serving.logs:is_log",
        "serving:read_log",
        options={option.name: option.help for option in LOG_OPTIONS},
    ),
)


REFUSED = (
    Format(
        "memory timeline",
        "the output of the PyTorch profiler's export_memory_timeline, which is not a trace",
        "importers.kineto:is_timeline",
        "importers.kineto:refuse_timeline",
    ),
)
"""Files that users mistake for traces. Reading one raises TraceError with a remedy."""


def format_of(head: bytes) -> Format | None:
    """The format of a file with this beginning, or None."""
    return next((known for known in (*FORMATS, *REFUSED) if known.sniff(head)), None)
