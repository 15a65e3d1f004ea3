# SPDX-License-Identifier: Apache-2.0
"""THE list of input formats. A format is recognized by the first bytes of a file, not its name.

Another format is one line here, and a module with its `sniff` and its `read`. OTHERS are the files
that are recognized, and not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, BinaryIO

from allocbench.workloads.serving import LOG_OPTIONS
from allocbench.workloads.vocabulary import TraceError

if TYPE_CHECKING:
    from pathlib import Path

    from allocbench.base.error_text import MemoryDump
    from allocbench.workloads.coverage import Coverage
    from allocbench.workloads.recordings import Recording
    from allocbench.workloads.streaming import Source
    from allocbench.workloads.trace import Trace

OUTPUTS = ("parquet", "csv", "lifetimes")
"""Names of the output formats. Only Parquet stores everything."""
HEAD = 1 << 16
"""Number of bytes at the beginning of a file from which its format is recognized."""


def _snapshot_by(module: str) -> str:
    return (
        f"record a memory snapshot: {module}.memory._record_memory_history() before the program, "
        f"{module}.memory._dump_snapshot('snapshot.pickle') after it"
    )


SNAPSHOT_INSTEAD = _snapshot_by("torch.cuda")
_RMM = (
    "record the requests: rmm.mr.set_current_device_resource(rmm.mr.LoggingResourceAdaptor("
    "rmm.mr.get_current_device_resource(), log_file_name='rmm.csv'))"
)


@dataclass(frozen=True)
class RecordingHints:
    """How to record what a recording lacks of its program, as commands to the user.

    begin: the requests before its first event. end: those after its last one. failure: those after
    the request that failed last. gaps: events that are missing in between. The default is for any
    tool.
    """

    begin: str = "record from the first request of the program on"
    end: str = "record until the program ends"
    failure: str = "record the program on a larger device, where it does not fail"
    gaps: str = "record every alloc and free, in the order in which the program makes them"

    def of(self, coverage: Coverage) -> str:
        """What to do about a coverage, in one sentence without a full stop; "" for nothing."""
        later = coverage.begins == "later" or not coverage.events
        lacks = {
            self.begin: later,
            self.gaps: bool(coverage.allocs_missing or coverage.contradiction),
            self.failure: coverage.ends == "failure",
            self.end: coverage.ends == "open" and not later,
        }
        return "; ".join(how for how, lacking in lacks.items() if lacking)


_WITHOUT_GPU = (
    "`allocbench check --device CARD -- python train.py` runs the program without a GPU, past this"
    " request"
)
_WITH_ALLOCBENCH = RecordingHints(
    "record without --last, which drops the oldest events", failure=_WITHOUT_GPU
)
_STOPPED = "a larger --steps or --timeout lets the program go on"


@dataclass(frozen=True)
class Format:
    """A file format.

    name, summary: for users. sniffer, reader: `module:function` in this package, imported when a
    file is read. options: names and meanings of what a user can choose in
    `workloads.read(path, name=value)`. recorder: reads a trace together with what the recorded
    allocator did, if the format contains it. streamer: says how to read a large file part by part.
    hints: how to record what such a file can lack of its program.
    """

    name: str
    summary: str
    sniffer: str
    reader: str
    options: Mapping[str, str] = field(default_factory=dict)
    recorder: str | None = None
    streamer: str | None = None
    hints: RecordingHints = RecordingHints()

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
            able = " and ".join(other.name for other in FORMATS if other.recorder)
            raise TraceError(
                f"it is {self.name}, which does not contain what an allocator did; {able} do"
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
        "block_lifetimes:read",
    ),
    Format(
        "PyTorch memory snapshot",
        "written by torch.cuda.memory._dump_snapshot, or a pickle of memory_snapshot(); the same as"
        " JSON, or in a page of memory_viz",
        "importers.pickles:is_snapshot",
        "importers.pytorch_snapshot:read",
        options={
            "device": "the number of a GPU, if several have events",
            "conf": "the PYTORCH_CUDA_ALLOC_CONF of the program, if the snapshot lacks it (to 2.3)",
        },
        recorder="importers.pytorch_snapshot:read_recording",
        hints=RecordingHints(
            f"{SNAPSHOT_INSTEAD}, without max_entries, which drops the oldest events",
            "write the snapshot when the program ends",
            _WITHOUT_GPU,
            "record all actions, without skip_actions",
        ),
    ),
    Format(
        "PyTorch profiler trace",
        "Chrome JSON with [memory] events, of torch.profiler with profile_memory=True",
        "importers.kineto:is_profile",
        "importers.kineto:read",
        options={"device": "the number of a GPU, or cpu, if several have events"},
        recorder="importers.kineto:read_recording",
        hints=RecordingHints(
            "enter the profiler before the program uses the GPU, without a schedule",
            "leave the profiler when the program ends",
            gaps=SNAPSHOT_INSTEAD,
        ),
    ),
    Format(
        "RMM log",
        "CSV Thread,Time,Action,Pointer,Size,Stream of RMM's logging adaptor",
        "importers.rmm_log:is_rmm_log",
        "importers.rmm_log:read",
        hints=RecordingHints(
            f"{_RMM}, before the program's first request",
            "log until the program ends",
            "log the program on managed memory, which may exceed the GPU: rmm.mr."
            "LoggingResourceAdaptor(rmm.mr.ManagedMemoryResource(), log_file_name='rmm.csv')",
            "log a run in which one thread makes all requests",
        ),
    ),
    Format(
        "Ascend operator memory",
        "operator_memory.csv of the Ascend PyTorch profiler: lifetimes of blocks",
        "importers.ascend:is_operator_memory",
        "importers.ascend:read",
        options={"device": "the name of an NPU, if several have blocks"},
        hints=RecordingHints(
            "start the profiler before the program uses the NPU",
            "stop the profiler when the program ends",
        ),
    ),
    Format(
        "request log",
        "requests to an LLM server, which is simulated: CSV or JSON with prompt and answer tokens,"
        " and maybe times; logs of Mooncake, Qwen-Bailian, vLLM's benchmark, ShareGPT",
        "serving.logs:is_log",
        "serving:read_log",
        options={option.name: option.help for option in LOG_OPTIONS},
    ),
)


@dataclass(frozen=True)
class Other:
    """A kind of file that is not read as a trace.

    name: "is NAME" says what it is. begins: a pattern of its first bytes; b"" for texts, which are
    recognized by `error_texts`. answers: what it can answer. instead: what to do, or to record.
    reader: `module:function` that reads what `explain` shows of it; "" if it shows nothing.
    """

    name: str
    begins: bytes
    answers: str
    instead: str
    reader: str = ""

    def __str__(self) -> str:
        told = "; ".join(filter(None, (self.answers, self.instead)))
        return f"is {self.name}{': ' if self.answers else '; '}{told}"

    def read(self, file: BinaryIO, path: Path) -> MemoryDump | None:
        """What `explain` shows of an open file; raises TraceError."""
        if not self.reader:
            return None
        content: MemoryDump = _function(self.reader)(file, path)
        return content


_EXPAND = "expand it first, or compress it with gzip"
_SERVING = "`allocbench serving` shows what fills the card"
_FREE_BEFORE = "log what was free before: nvidia-smi"
_FREE_OF_HOST = "measure the memory of the host: /usr/bin/time -v"
_EXPLAIN = "`allocbench explain` says what its numbers prove"
_TEXTS = {
    "PyTorch": SNAPSHOT_INSTEAD,
    "PyTorch on XPU": _snapshot_by("torch.xpu"),
    "PyTorch on NPU": _snapshot_by("torch_npu.npu"),
    "PyTorch on MPS": "print torch.mps.current_allocated_memory() and"
    " torch.mps.driver_allocated_memory() before the line that failed; their difference is reserved"
    " but not allocated",
    "XLA": "with TF_CPP_MIN_LOG_LEVEL=0 the log lists every chunk of memory",
    "BFC": "give the whole log, with the dump of all chunks",
    "ONNX Runtime": "log the arena: log_severity_level=0",
    "CuPy": "let RMM serve the requests, cupy.cuda.set_allocator(rmm.allocators.cupy."
    f"rmm_cupy_allocator), and {_RMM}",
    "RMM": _RMM,
    **dict.fromkeys(("Faiss", "Numba", "TensorRT", "XGBoost"), _FREE_BEFORE),
    "Paddle": _FREE_BEFORE,
    "another program": _FREE_BEFORE,
    "MLX": "compute it in parts: no setting makes a buffer larger",
    "the host": _FREE_OF_HOST,
    "Python": _FREE_OF_HOST,
    "a launcher": _FREE_OF_HOST,
    "a DataLoader": "give the container more of it: docker run --shm-size",
    "Triton": "give the kernel smaller blocks or fewer stages",
    "vLLM": _SERVING,
    "SGLang": _SERVING,
    "llama.cpp": "log the start of the server, too",
    "a convolution": SNAPSHOT_INSTEAD,
    "the driver": SNAPSHOT_INSTEAD,
}
"""What to do, or to record, about the text of a program, or of one of its backends."""

OTHERS = (
    Other(
        "the configuration of a model",
        rb"(?s)\s*\{.{0,20000}?\"architectures\"\s*:\s*\[",
        "it says what a server loads",
        "`allocbench serving` shows what fills a card when the model is served",
    ),
    Other(
        "a memory timeline of the PyTorch profiler",
        rb"\s*\[\s*\[\s*-?\d",
        "it has sizes over time, but no addresses, so frees cannot be matched with allocs",
        SNAPSHOT_INSTEAD,
    ),
    Other(
        "a file of torch.save, such as a checkpoint",
        rb"(?s)PK\x03\x04.{26}[^/\0]{1,255}/(?:data\.pkl|byteorder|version|\.(?:format|storage))"
        rb"|\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19\.",
        "it holds tensors, and no history of the allocator",
        SNAPSHOT_INSTEAD,
    ),
    Other(
        "a file of safetensors",
        rb"(?s).{8}\{\s*\"[^\"]{1,255}\"\s*:\s*\{\s*\"(?:format|dtype|shape|data_offsets)\"",
        "it holds the weights of a model",
        "`allocbench serving` takes the config.json of the same folder",
    ),
    Other(
        "a memory profile of JAX (pprof)",
        rb"(?s)(?:\x0a[\x02\x04]\x08.(?:\x10.)?){1,4}\x12",
        "it shows what was live at one moment, and no requests",
        "`allocbench explain` lists the lines that hold memory; for an error, it takes the log",
        "pprof:read",
    ),
    Other(
        "a buffer assignment of XLA",
        rb"\s*BufferAssignment:",
        "it has the buffers of one program",
        "`allocbench explain` lists them, and `allocbench plan` compares XLA's offsets with others",
        "xla_buffers:read_held",
    ),
    Other(
        "RMM's debug log",
        rb"\[ *\d+\]\[[\d:]+\]\[\w+ *\]",
        "it has the events of a pool, and not the frees of blocks",
        _RMM,
    ),
    Other(
        "a log of nvidia-smi",
        rb"[^\n]*memory\.used|(?s:.{0,400}\| NVIDIA-SMI )",
        "it shows the use of a card over time, and no requests",
        SNAPSHOT_INSTEAD,
    ),
    Other(
        "memory_record.csv of the Ascend profiler",
        rb"\W*Component,Timestamp\(us\),Total Allocated",
        "it has sums over time, and no blocks",
        "give operator_memory.csv from the same folder",
    ),
    Other(
        "a database of SQLite, as Nsight Systems writes",
        rb"SQLite format 3\0",
        "it has calls of the driver, and not the requests behind them",
        SNAPSHOT_INSTEAD,
    ),
    Other(
        "a model of llama.cpp (GGUF)",
        rb"GGUF",
        "it holds the weights of a model",
        "`allocbench explain` takes the log of the server",
    ),
    Other("compressed with zstd", rb"\x28\xb5\x2f\xfd", "", _EXPAND),
    Other(
        "an archive",
        rb"(?s)PK\x03\x04|.{257}ustar",
        "it has several files",
        "unpack it, and give one of them",
    ),
    Other("text in UTF-16", rb"\xff\xfe|\xfe\xff", "", "save it as UTF-8"),
    *(Other(f"a text of {program}", b"", _EXPLAIN, instead) for program, instead in _TEXTS.items()),
)
"""Files that users mistake for traces: what they are, what they answer, and what to do instead."""


def format_of(head: bytes) -> Format | None:
    """The format of a file with this beginning, or None."""
    return next((known for known in FORMATS if known.sniff(head)), None)


def other_of(head: bytes) -> Other | None:
    """The kind of a file with this beginning that is not a trace, or None."""
    return next((one for one in OTHERS if one.begins and re.match(one.begins, head)), None)


def text_of(program: str, backend: str = "") -> Other:
    """The texts of a program, by its name in `error_texts`; or those of a backend."""
    of_backend = f"{program} on {backend}"
    name = f"a text of {of_backend if of_backend in _TEXTS else program}"
    return next(one for one in OTHERS if one.name == name)


def how_to_record(trace: Trace) -> str:
    """How to record what a trace lacks of its program, in one sentence; "" for nothing.

    It suits the program that recorded it.
    """
    coverage, provenance = trace.coverage, trace.provenance
    if coverage.ends == "stopped":
        return _STOPPED
    if provenance.kind == "recorded":
        return _WITH_ALLOCBENCH.of(coverage)
    name = provenance.extra.get("format")
    return next((one.hints for one in FORMATS if one.name == name), RecordingHints()).of(coverage)
