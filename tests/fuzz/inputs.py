# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed with bytes: readers of files and of texts, each a function of the bytes.

A target returns, or raises an error for users; anything else that it raises is a defect. What is
read must also be usable: a trace is written, read again and replayed, with one of all strategies
and wrappers that depends on its content.
"""

import gzip
import io
import json
import os
import pickle
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from allocbench import allocators
from allocbench.allocators import spec
from allocbench.base.spec import SpecSyntaxError, name_of, parse
from allocbench.questions import model_plan
from allocbench.questions.error_text import by_operator, on_card, verdict
from allocbench.reports.advice.error_text import sentences
from allocbench.reports.rows import ResultError, bundle, results
from allocbench.workloads import (
    OperatorGraph,
    StreamedTrace,
    Trace,
    TraceError,
    catalog,
    error_texts,
    features,
    files,
    lifetimes,
    pprof,
    write_parquet,
    xla_buffers,
)
from allocbench.workloads.formats import HEAD, format_of
from allocbench.workloads.generator import Generator, settle
from allocbench.workloads.recordings import Recording
from allocbench.workloads.serving import model_configs
from allocbench.workloads.serving.architectures import Architecture
from allocbench.workloads.trace import COLUMNS, OPTIONAL_COLUMNS
from tests.conftest import CASES
from tests.fuzz import damage
from tests.fuzz.seeds import seeds

MOST_REPLAYED = 20_000  # events
_DECODE_TOKENS = 256
"""Tokens that a server generates per step; with few, simulating it takes nearly all of the time."""
_NAMES = allocators.names()
_MOST_DAMAGES = 12  # of a file
_WELL_FORMED = damage.well_formed(seeds())
_KINDS = [*_WELL_FORMED]
_FILE = open(os.memfd_create("input"), "wb", buffering=0)  # noqa: SIM115  each input replaces it
_PATH = Path(f"/proc/self/fd/{_FILE.fileno()}")


def _read(data: bytes, *readers: Callable[[Path], object]) -> list[object]:
    """What each reader makes of a file with this content: None if it refuses the file."""
    _FILE.seek(0)
    _FILE.truncate()
    _FILE.write(data)
    read: list[object] = []
    for reader in readers:
        try:
            read.append(reader(_PATH))
        except TraceError as error:
            _check_message(error)
            read.append(None)
    return read


def _check_message(error: Exception) -> None:
    assert "\n" not in str(error), "an error for users has one line"


def _use(trace: Trace) -> None:
    """Write the trace, read it again, find its lifetimes and replay it."""
    content = io.BytesIO()
    write_parquet(trace, content)
    (again,) = _read(content.getvalue(), files.read)
    assert isinstance(again, Trace), "a trace that was written can be read"
    assert again.columns().keys() == trace.columns().keys()
    assert all(np.array_equal(again.columns()[n], c) for n, c in trace.columns().items())
    assert again.labels == trace.labels
    if len(trace) > MOST_REPLAYED:
        return
    if trace.allocs:
        lifetimes(trace)
    drawn = zlib.crc32(content.getvalue())
    case, name = CASES[drawn % len(CASES)], _NAMES[drawn % len(_NAMES)]
    for text in ("check:of=caching", "bump", case.spec, f"per_stream:of={name}"):
        for capacity in ("1TiB", "64MiB"):  # the second one refuses
            allocator = allocators.make(text, allocators.SimulatedDevice(capacity))
            allocators.replay(trace, allocator)
            allocator.check()


def trace_file(data: bytes) -> None:
    """Any file that a command takes as a workload, if possible as a whole and part by part."""
    _trace_file(data, data)


def _trace_file(data: bytes, content: bytes, read: Callable[[Path], Trace] = files.read) -> None:
    """`content` is what `data` is when it is expanded."""
    known = format_of(content[:HEAD])
    if known is None or known.streamer is None:
        (trace,) = _read(data, read)
    else:
        by_parts = partial(files.read_large, most_in_memory=0)
        trace, streamed = _read(data, read, by_parts)
        assert (streamed is None) == (trace is None), "both ways of reading find the same errors"
        if isinstance(trace, Trace) and isinstance(streamed, StreamedTrace):
            blocks = np.concatenate([part.id for part in streamed.parts()])
            assert np.array_equal(blocks, trace.block), "both ways of reading find the same blocks"
            assert streamed.features == features(trace)
    if isinstance(trace, Trace):
        _use(trace)


def request_log(data: bytes) -> None:
    """A log of requests."""
    _trace_file(data, data, partial(files.read, decode_tokens=_DECODE_TOKENS))


def plannable_file(data: bytes) -> None:
    """Any file that `plan` takes: also graphs of operators and TensorFlow Lite models."""
    (content,) = _read(data, files.read_plannable)
    if isinstance(content, OperatorGraph):
        model_plan.plan_model(content, "greedy_by_size")


def recording_file(data: bytes) -> None:
    """Any file that `verify` takes."""
    (recording,) = _read(data, files.read_recording)
    if isinstance(recording, Recording):
        _use(recording.trace)


def model_config(data: bytes) -> None:
    """The config.json of a model that is served."""
    (architecture,) = _read(data, model_configs.read)
    if isinstance(architecture, Architecture):
        assert sum(size for _, size in architecture.weights) > 0


def error_text(data: bytes) -> None:
    """The text of an error, with what its numbers prove."""
    error = None
    with suppress(TraceError):
        error = error_texts.parse(data.decode(errors="replace"))
    if error is not None:
        found = verdict(on_card(error, 1 << 34))
        assert all("\n" not in line for line in sentences(error, found, ""))
        trace = error_texts.state(error)
        if trace is not None and error.allowed is not None and error.allowed.low:
            bfc = allocators.make("bfc", allocators.make_device(f"sim:{error.allowed.low}"))
            result = allocators.replay(trace, bfc, keep=True)
            bfc.check()
            assert result.stats.allocations + result.stats.failures == len(trace)
        assert all(row.size.low >= 0 for row in by_operator(error))
        assert found.missing is None or found.missing.high >= 0


def memory_profile(data: bytes) -> None:
    """A memory profile of JAX."""
    with suppress(TraceError):
        dump = pprof.read(io.BytesIO(data), _PATH)
        assert sum(row.size.low for row in dump.buffers) == dump.total


def buffer_assignment(data: bytes) -> None:
    """A buffer assignment of XLA, with its live ranges."""
    with suppress(TraceError):
        assert xla_buffers.read_held(io.BytesIO(data), _PATH).total >= 0
        assignment = xla_buffers.parse_assignment(io.BytesIO(data), _PATH)
        blocks, offsets, height = xla_buffers.temporary_blocks(assignment)
        ends = [at + size for at, size in zip(offsets, blocks.size.tolist(), strict=True)]
        assert max(ends) <= height
        alignment = xla_buffers.alignment_of(offsets, 256)
        allocators.plan(
            blocks.size, blocks.first, blocks.last, planner="greedy_by_size", alignment=alignment
        )


def gzip_file(data: bytes) -> None:
    """A compressed file; the fuzzer changes its content, not only what wraps it."""
    _trace_file(gzip.compress(data, 1), data)


def parquet_columns(data: bytes) -> None:
    """A well-formed Parquet file with any columns and any metadata.

    The first bytes choose the number of rows and the columns, the next are their values, and the
    rest, after a zero byte, is the metadata.
    """
    choice, rows, values, metadata = data[:2], data[2:3], *_halves(data[3:])
    count = rows[0] if rows else 0
    chosen = int.from_bytes(choice, "little")
    arrays = {}
    for position, (name, kind) in enumerate((COLUMNS | OPTIONAL_COLUMNS).items()):
        if not chosen >> position & 1:
            part = np.frombuffer(values[position:] + bytes(8), np.uint8)
            arrays[name] = np.resize(part, count * np.dtype(kind).itemsize).view(kind)
    table = pa.table(arrays).replace_schema_metadata({b"allocbench.trace": metadata})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="none", use_dictionary=False, write_statistics=False)
    trace_file(sink.getvalue().to_pybytes())


def snapshot_values(data: bytes) -> None:
    """A well-formed pickle of any values, which the fuzzer writes as JSON."""
    with suppress(json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        recording_file(pickle.dumps(json.loads(data), protocol=4))


def contradictions(data: bytes) -> None:
    """A well-formed file whose values contradict each other: see `tests.fuzz.damage`."""
    kind, which, *_ = data[:2] + bytes(2)
    name = _KINDS[kind % len(_KINDS)]
    content, write = _WELL_FORMED[name][which % len(_WELL_FORMED[name])]
    TARGETS[name](write(damage.damaged(content, data[2 : 2 + 4 * _MOST_DAMAGES])))


def _halves(data: bytes) -> tuple[bytes, bytes]:
    values, _, metadata = data.partition(b"\0\0{")
    return values, b"{" + metadata


def result_files(data: bytes) -> None:
    """The files that `report` takes: JSON of `compare`, JSON lines of `sweep`."""
    with suppress(ResultError):
        results.from_json(data, "file")
    with suppress(ResultError):
        bundle.parse(data, "file")


def allocator_spec(data: bytes) -> None:
    """An allocator as text; one that can be made also serves requests."""
    text = data.decode("utf-8", "replace")
    try:
        parsed = spec.parse(text)
        allocator = allocators.make(str(parsed), allocators.SimulatedDevice("64MiB"))
    except allocators.SpecError as error:
        if "\n" not in text:
            _check_message(error)
        return
    assert spec.parse(str(parsed)) == parsed
    for size in (1, 3000, 1 << 20, 3 << 20):
        with suppress(allocators.OutOfMemory):
            allocator.deallocate(allocator.allocate(size))
    allocator.check()


def device_spec(data: bytes) -> None:
    """A device as text."""
    with suppress(allocators.SpecError):
        allocators.make_device(_without_gpu(data))


def _without_gpu(data: bytes) -> str:
    """The text, unless it names a real GPU."""
    text = data.decode("utf-8", "replace")
    return text if text.strip().startswith("sim") else f"sim:{text}"


def workload_spec(data: bytes) -> None:
    """A workload as text. It is not generated, since it may be asked to have any size."""
    text = data.decode("utf-8", "replace")
    with suppress(TraceError, SpecSyntaxError):
        workload = catalog.info(name_of(text))
        if isinstance(workload, Generator):
            settle(workload.options, parse(text).options)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "parquet": trace_file,
    "parquet_columns": parquet_columns,
    "csv": trace_file,
    "lifetimes": plannable_file,
    "graph": plannable_file,
    "tflite": plannable_file,
    "snapshot": recording_file,
    "snapshot_values": snapshot_values,
    "contradictions": contradictions,
    "profile": recording_file,
    "rmm_log": trace_file,
    "request_log": request_log,
    "model_config": model_config,
    "error_text": error_text,
    "memory_profile": memory_profile,
    "buffer_assignment": buffer_assignment,
    "gzip": gzip_file,
    "results": result_files,
    "allocator": allocator_spec,
    "device": device_spec,
    "workload": workload_spec,
}
"""Every target by the name of its format."""
