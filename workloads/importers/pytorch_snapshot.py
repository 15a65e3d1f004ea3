# SPDX-License-Identifier: Apache-2.0
"""A PyTorch memory snapshot (`torch.cuda.memory._dump_snapshot`) as a trace.

Sizes are requested bytes, before PyTorch's rounding. A block counts as freed when its free is
completed; until then, another stream may use it, so it cannot be reused. Blocks that were allocated
before the recording began, or before the oldest event that its ring buffer still held, are
reconstructed from later frees and from the final segments. Events of segments, failed requests and
other annotations are not requests; the provenance counts them. Annotated ranges (`record_function`,
the profiler's steps) become marks, "ProfilerStep#3" a "step".

A snapshot has the events of each device. If several devices have events, the option `device`
chooses one. Snapshots of PyTorch up to 2.3 do not contain the allocator settings, on which the
sizes of the first blocks depend; the option `conf` sets them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.addresses import (
    AddressedEvents,
    Blocks,
    Start,
    marks_before,
    traced,
)
from allocbench.workloads.importers.gaps import Range, gaps_of
from allocbench.workloads.importers.labels import marks_of
from allocbench.workloads.importers.module_names import TENSORS, with_modules
from allocbench.workloads.importers.pickles import DataPickle
from allocbench.workloads.importers.pool_ids import DEFAULT_POOL, PoolId, pool_id
from allocbench.workloads.importers.snapshot_columns import Columns
from allocbench.workloads.importers.snapshot_layout import layout_of
from allocbench.workloads.importers.snapshot_pool_events import apart, pool_uses
from allocbench.workloads.importers.snapshot_pools import Pools
from allocbench.workloads.importers.snapshot_segments import (
    ACTIONS,
    Segment,
    SegmentCall,
    UnknownLayoutError,
    at_start,
    with_kinds,
)
from allocbench.workloads.importers.snapshot_settings import BEFORE_POOLS, read_settings
from allocbench.workloads.importers.snapshot_trims import trims_of
from allocbench.workloads.importers.snapshot_workspaces import labels_with, workspaces_of
from allocbench.workloads.recordings import Calls, Recording, Refused
from allocbench.workloads.trace import ALLOC, FREE, MAX_SIZE, Provenance, Trace, TraceError
from allocbench.workloads.vocabulary import SeveralDevicesError

_ACTIONS = ("alloc", "free_completed", "free")  # these count; the others are counted
_LIVE = ("active_allocated", "active_pending_free", "active_awaiting_free")
_BEGINS = re.compile(
    rb"\x80[\x02-\x05]|[(}\]](?:[dl]p|q|r|\()|c[\w.]+\n[\w.]+\n(?:p\d+\n|q|r|\()", re.DOTALL
)


def is_pickle(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a pickle."""
    return _BEGINS.match(head) is not None


def read(
    file: BinaryIO, path: Path, *, device: str | int | None = None, conf: str | int = ""
) -> Trace:
    """Read the events of one device of an open snapshot.

    If the program ended with a request that failed, the trace has it as its last alloc, so that a
    replay shows why it fails and what it needs.

    device: its number; needed only if several devices have events (or blocks, if the history is
    disabled). conf: the allocator settings of the program, as in PYTORCH_CUDA_ALLOC_CONF, for a
    snapshot without settings (PyTorch up to 2.3). Raises TraceError for a pickle that is not a
    snapshot or contains more than data, for a device that is missing or ambiguous, and for settings
    that cannot be read.
    """
    recording = read_recording(file, path, device=device, conf=conf)
    return _with_refused(recording.trace, recording.refused)


def read_recording(
    file: BinaryIO, path: Path, *, device: str | int | None = None, conf: str | int = ""
) -> Recording:
    """Read the trace and what the recorded allocator did; raises as `read` does."""
    columns = Columns()
    data = DataPickle(file, columns.packer_for).load()
    segments, traces, annotations = _parts(data)
    by_list = {id(events): events for events in traces}  # several devices can have the same one
    lengths = {number: columns.count(events) for number, events in by_list.items()}
    counts = {n: lengths[id(events)] for n, events in enumerate(traces)}
    for segment in segments:
        counts.setdefault(_whole(segment, "device", 0), 0)
    chosen = _choose(device, counts, {_whole(s, "device", 0) for s in segments if _live(s)})

    here = [s for s in segments if _whole(s, "device", 0) == chosen]
    settings = read_settings(data, str(conf))
    rows = columns.rows(traces[chosen] if chosen < len(traces) else [])
    action = np.asarray(columns.action)[rows]
    code = [columns.codes.get(name, -1) for name in _ACTIONS]
    is_kept = np.isin(action, code)
    kept = rows[is_kept]
    size = np.asarray(columns.size)[kept]
    if len(size) and size.min() < 0:
        raise TraceError(f"event {int(size.argmin())}: size {size.min()} is below 0")
    time = np.asarray(columns.time)[kept]
    final = _segments(here)
    calls = _calls(columns, rows, is_kept)
    pools = Pools(final, calls)
    live = pools.blocks(_blocks(here, columns))
    names = list(columns.codes)
    others = np.bincount(action[~is_kept], minlength=len(names)).tolist()
    ignored = {name: count for name, count in zip(names, others, strict=True) if count}
    extra: dict[str, Any] = {"format": "PyTorch memory snapshot", "sizes": "requested"}
    if settings.conf:
        extra["conf"] = settings.conf
    if options := settings.options():
        extra["settings"] = options
    tells_pools = len(columns.pool) > 0 and bool(np.asarray(columns.pool).min() >= 0)
    if len(columns.pool) and not tells_pools:
        extra["rules"] = BEFORE_POOLS
    if ignored:
        extra["other_events"] = dict(sorted(ignored.items()))
    named, pool_annotations = apart(_annotations(annotations, chosen))
    marks = marks_of(named)
    failed = np.flatnonzero(action == columns.codes.get("oom", -1))
    refused = None
    if len(failed):
        last = int(failed[-1])
        when = int(np.asarray(columns.time)[rows[last]]) * 1000
        extra["after_oom"] = {
            "allocs": int(np.count_nonzero(action[last:] == code[0])),
            "steps": sum(name == "step" and time_ns > when for time_ns, name in marks),
        }
        if not extra["after_oom"]["allocs"]:
            request = int(np.asarray(columns.size)[rows[last]])
            refused = Refused(max(0, request), int(np.count_nonzero(is_kept[last:])))
    address = np.asarray(columns.address)[kept].astype(np.uint64)
    events = AddressedEvents(
        is_alloc=np.asarray(columns.action)[kept] == code[0],
        address=address,
        size=size.astype(np.uint64),
        stream=pools.numbers(
            np.asarray(columns.stream)[kept], address, np.asarray(columns.pool)[kept], columns.pools
        ),
        label=np.asarray(columns.label)[kept],
        time_ns=time * 1000 if time.any() else None,
        labels=tuple(columns.labels),
        marks=marks_before(time * 1000, marks),
        pools=pools.private,
    )
    label, labels = labels_with(events, workspaces_of(data, chosen))
    events = replace(events, label=label, labels=labels)
    uses, traits = pool_uses(pool_annotations, time * 1000, pools.of)
    provenance = Provenance(
        name=path.stem, kind="imported", source=path.name, device=f"cuda:{chosen}", extra=extra
    )
    unknown = ""

    def laid_out(events: AddressedEvents, initial: Blocks) -> Start:
        nonlocal unknown
        try:
            if len(here) == 0 and len(calls) == 0:
                raise UnknownLayoutError("it holds no segments and no events of segments")
            before = at_start(final, calls)
            before = with_kinds(before, calls, events.address, events.size, settings.large_segment)
            layout = layout_of(before, calls, settings, events, initial, pools.number)
        except UnknownLayoutError as error:
            unknown = str(error)
            extra_found = {"layout": f"unknown: {error}"} if len(here) or len(calls) else {}
            return Start(told=extra_found, uses=uses, traits=traits)
        trims = trims_of(calls, events, layout, settings, pools.number)
        return Start(layout if len(before) else None, trims.at, trims.told(), uses, traits)

    found = traced(events, provenance, live, laid_out)
    begun = None if events.time_ns is None else int(events.time_ns.min(initial=MAX_SIZE))
    tensors = data.get(TENSORS) if isinstance(data, dict) else None
    return Recording(
        trace=with_modules(found.trace, found.address, begun, tensors),
        address=found.address,
        calls=Calls.of(calls, found.allocs_before),
        options=settings.options(),
        tells_pools=tells_pools,
        tells_settings=isinstance(data, dict) and "allocator_settings" in data,
        unknown=unknown,
        gaps=gaps_of(events, found.allocs_before, live, _known(here)),
        refused=refused,
    )


def _with_refused(trace: Trace, refused: Refused | None) -> Trace:
    """The trace with an alloc where a request failed, on the stream of the event before it."""
    if refused is None or not refused.size:
        return trace
    calls = np.flatnonzero(trace.op <= FREE)
    begin = int(calls[-refused.later]) if 0 < refused.later <= len(calls) else len(trace)

    def longer(values: Any, value: int | None = None) -> Any:
        if values is None:
            return None
        same = values[begin - 1] if begin else 0
        return np.insert(values, begin, same if value is None else value)

    extra = {**trace.provenance.extra, "failed_request": refused.size}
    return replace(
        trace,
        op=longer(trace.op, ALLOC),
        block=longer(trace.block, trace.blocks),
        size=longer(trace.size, refused.size),
        stream=longer(trace.stream),
        time_ns=longer(trace.time_ns),
        label=longer(trace.label, 0),
        module=longer(trace.module, 0),
        kind=longer(trace.kind, 0),
        pool=longer(trace.pool, 0),
        provenance=replace(trace.provenance, extra=extra),
    )


def _parts(data: Any) -> tuple[list[dict[str, Any]], list[list[Any]], list[Any]]:
    """The segments, the events of each device, and the annotations of a snapshot."""
    if isinstance(data, list):  # what torch.cuda.memory_snapshot() returns
        data = {"segments": data}
    if not isinstance(data, dict) or not {"segments", "device_traces"} & data.keys():
        raise TraceError("is a pickle, but not a memory snapshot: it has no 'segments'")
    segments, traces = data.get("segments", []), data.get("device_traces", [])
    if not _all(segments, dict):
        raise TraceError("its 'segments' is not a list of dicts")
    if not _all(traces, list):
        raise TraceError("its 'device_traces' is not a list of lists")
    blocks = [id(segment["blocks"]) for segment in segments if segment.get("blocks")]
    if len(set(blocks)) < len(blocks):  # a small file could name a long list many times
        raise TraceError("two of its segments have the same list of blocks")
    annotations = data.get("external_annotations", [])
    return segments, traces, annotations if isinstance(annotations, list) else []


def _all(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


def _whole(values: dict[str, Any], key: str, default: int) -> int:
    """A whole number of a dict, from 0 to 2**63 - 1."""
    value = values.get(key, default)
    if type(value) is not int or not 0 <= value <= MAX_SIZE:
        raise TraceError(f"a segment or block has {key} {str(value)[:40]!r}")
    return value


def _known(segments: Sequence[dict[str, Any]]) -> list[Range]:
    """The ranges whose final state is known: segments with a list of blocks."""
    begun = [
        (_whole(s, "address", 0), _whole(s, "total_size", 0)) for s in segments if s.get("blocks")
    ]
    return [(address, address + size) for address, size in begun]


def _live(segment: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The live blocks of a segment, and their addresses."""
    blocks = segment.get("blocks", [])
    if not _all(blocks, dict):
        raise TraceError("the 'blocks' of a segment is not a list of dicts")
    rows, address = [], _whole(segment, "address", 0)
    for block in blocks:
        if block.get("state") in _LIVE:
            rows.append((_whole(block, "address", address), block))
        address += _whole(block, "size", 0)
    return rows


def _blocks(segments: Sequence[dict[str, Any]], columns: Columns) -> Blocks:
    """The live blocks of segments; older snapshots have sizes and frames in a history."""
    rows = []
    for segment in segments:
        stream = segment.get("stream", 0)
        stream = stream if type(stream) is int and abs(stream) <= MAX_SIZE else 0
        for address, block in _live(segment):
            history = block.get("history")
            newest = history[0] if isinstance(history, list) and history else {}
            newest = newest if isinstance(newest, dict) else {}
            granted = _whole(block, "size", 0)
            size = _whole(block, "requested_size", _whole(newest, "real_size", granted))
            label = columns.label_number(block.get("frames", newest.get("frames")))
            rows.append((address, size, stream, label, granted))
    table = np.array(rows, np.int64).reshape(-1, 5)
    return Blocks(
        address=table[:, 0].astype(np.uint64),
        size=table[:, 1].astype(np.uint64),
        stream=table[:, 2],
        label=table[:, 3].astype(np.uint32),
        granted=table[:, 4].astype(np.uint64),
    )


def _choose(device: str | int | None, events: dict[int, int], live: set[int]) -> int:
    """The number of the selected device."""
    listed = ", ".join(f"{n} ({count:,} events)" for n, count in sorted(events.items()))
    if device is not None:
        chosen = next((n for n in events if str(n) == str(device)), None)
        if chosen is None:
            raise TraceError(f"has no device '{device}'; its devices are {listed or 'none'}")
        return chosen
    for busy in ({n for n, count in events.items() if count}, live):
        if len(busy) == 1:
            return busy.pop()
        if busy:
            raise SeveralDevicesError(
                f"holds the events of several devices: {listed}; choose one: device=N", sorted(busy)
            )
    raise TraceError("holds no events and no live blocks")


def _annotations(annotations: Sequence[Any], device: int) -> Iterator[tuple[int, str]]:
    """The time in ns at which each annotated range begins, and its name."""
    for annotation in annotations:
        if not isinstance(annotation, dict) or annotation.get("stage") != "START":
            continue
        when, name = annotation.get("time_us"), annotation.get("name")
        if not isinstance(when, int) or not isinstance(name, str) or abs(when) > MAX_SIZE // 1000:
            continue
        if annotation.get("device", device) == device:
            yield when * 1000, name


def _segments(segments: Sequence[dict[str, Any]]) -> list[Segment]:
    """The segments held at the end; those of older snapshots may lack a pool and a kind."""
    parsed = []
    for segment in segments:
        stream, pool = segment.get("stream", 0), segment.get("segment_pool_id")
        kind = segment.get("segment_type")
        parsed.append(
            Segment(
                _whole(segment, "address", 0),
                _whole(segment, "total_size", 0),
                stream if type(stream) is int and abs(stream) <= MAX_SIZE else 0,
                _pool_of(pool),
                kind == "small" if kind in ("small", "large") else None,
                segment.get("is_expandable") is True,
            )
        )
    return parsed


def _pool_of(numbers: Any) -> PoolId:
    """The pool of a segment: the default one if it names none."""
    try:
        return pool_id(numbers) if isinstance(numbers, tuple | list) else DEFAULT_POOL
    except TypeError as error:
        raise TraceError(
            f"the pool of a segment, {str(numbers)[:40]}, is not two numbers"
        ) from error


def _calls(
    columns: Columns, rows: NDArray[np.int64], is_kept: NDArray[np.bool_]
) -> list[SegmentCall]:
    """The calls to the device among some events, in order."""
    code = {columns.codes[name]: name for name in ACTIONS if name in columns.codes}
    pools = {number: pool for pool, number in columns.pools.items()}
    position = np.cumsum(is_kept)
    action = np.asarray(columns.action)[rows]
    calls = []
    for n in np.flatnonzero(np.isin(action, list(code))).tolist():
        row = int(rows[n])
        if columns.address[row] < 0 or columns.size[row] < 0:
            raise TraceError(
                f"event {n}: {code[columns.action[row]]} of {columns.size[row]} bytes at"
                f" {columns.address[row]}: neither can be below 0"
            )
        calls.append(
            SegmentCall(
                code[columns.action[row]],
                columns.address[row],
                columns.size[row],
                columns.stream[row],
                pools.get(columns.pool[row]),
                int(position[n]),
            )
        )
    return calls
