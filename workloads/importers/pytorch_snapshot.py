# SPDX-License-Identifier: Apache-2.0
"""A PyTorch memory snapshot (`torch.cuda.memory._dump_snapshot`) as a trace.

Sizes are the bytes requested, as PyTorch records them, before its own rounding. A block is freed
when its free is completed: until then, another stream may use it, and nobody else can have it.
Blocks that lived before the recording began, or before the oldest event that its ring buffer
still held, are found from later frees and from the final segments. Events of segments, requests
that failed and annotations of other kinds are no requests: they are counted in the provenance.
Annotations (`record_function`, the profiler's steps) become marks, "ProfilerStep#3" a "step".

A snapshot has the events of each device. Where several devices have some, the option `device`
says which one is meant.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.addresses import Blocks, Events, marks_before, trace_of
from allocbench.workloads.importers.labels import label_of, mark_of
from allocbench.workloads.importers.pickles import DataPickle
from allocbench.workloads.importers.repeated import Packer, References
from allocbench.workloads.trace import MAX_SIZE, Provenance, Trace, TraceError

_ACTIONS = ("alloc", "free_completed", "free")  # these count; the others are counted
_LIVE = ("active_allocated", "active_pending_free", "active_awaiting_free")
_BEGINS = re.compile(
    rb"\x80[\x02-\x05]|[(}\]](?:[dl]p|q|r|\()|c[\w.]+\n[\w.]+\n(?:p\d+\n|q|r|\()", re.DOTALL
)


def is_pickle(head: bytes) -> bool:
    """Whether a file that begins so is a pickle."""
    return _BEGINS.match(head) is not None


def read(file: BinaryIO, path: Path, *, device: str | int | None = None) -> Trace:
    """Read the events of one device of an open snapshot.

    device: its number; may be left out when one device alone has events (or, with history
    disabled, blocks). Raises TraceError for a pickle that is no snapshot or more than data, and
    for a device that is not there or not clear.
    """
    columns = _Columns()
    data = DataPickle(file, columns.packer_for).load()
    segments, traces, annotations = _parts(data)
    counts = {n: len(events) for n, events in enumerate(traces)}
    for segment in segments:
        counts.setdefault(_whole(segment, "device", 0), 0)
    chosen = _choose(device, counts, {_whole(s, "device", 0) for s in segments if _live(s)})

    rows = columns.rows(traces[chosen] if chosen < len(traces) else [])
    action = np.asarray(columns.action)[rows]
    code = [columns.codes.get(name, -1) for name in _ACTIONS]
    kept = rows[np.isin(action, code)]
    size = np.asarray(columns.size)[kept]
    if len(size) and size.min() < 0:
        raise TraceError(f"event {int(size.argmin())}: size {size.min()} is below 0")
    time = np.asarray(columns.time)[kept]
    live = _blocks([s for s in segments if _whole(s, "device", 0) == chosen], columns)
    names = list(columns.codes)
    ignored = Counter(names[number] for number in action[~np.isin(action, code)].tolist())
    extra: dict[str, Any] = {"format": "PyTorch memory snapshot", "sizes": "requested"}
    if conf := _conf(data):
        extra["conf"] = conf
    if ignored:
        extra["other_events"] = dict(sorted(ignored.items()))
    events = Events(
        is_alloc=np.asarray(columns.action)[kept] == code[0],
        address=np.asarray(columns.address)[kept].astype(np.uint64),
        size=size.astype(np.uint64),
        stream=np.asarray(columns.stream)[kept],
        label=np.asarray(columns.label)[kept],
        time_ns=time * 1000 if time.any() else None,
        labels=tuple(columns.labels),
        marks=marks_before(time * 1000, _annotations(annotations, chosen)),
    )
    provenance = Provenance(
        name=path.stem, kind="imported", source=path.name, device=f"cuda:{chosen}", extra=extra
    )
    return trace_of(events, provenance, live)


class _Event(int):
    """The number of an event in the columns."""

    __slots__ = ()


class _Columns:
    """Events in a few bytes each instead of a dict."""

    def __init__(self) -> None:
        self.action, self.label = array("B"), array("I")
        self.address, self.size, self.stream, self.time = (array("q") for _ in range(4))
        self.codes: dict[str, int] = {}
        self.labels = {"": 0}
        self._known: dict[int, int] = {}  # by id of frames: label

    def packer_for(self, keys: tuple[Any, ...]) -> Packer | None:
        """A packer for dicts that are events, else None."""
        if "action" not in keys or "size" not in keys:
            return None
        places = {key: place for place, key in enumerate(keys)}
        wanted = ("action", "addr", "size", "stream", "time_us", "frames")
        found = [places.get(key, -1) for key in wanted]
        return self._packer(found), found

    def rows(self, events: Sequence[Any]) -> NDArray[np.int64]:
        """The numbers of a list of events, some of which may be dicts still."""
        found = np.empty(len(events), np.int64)
        for n, event in enumerate(events):
            if type(event) is dict and (packer := self.packer_for(tuple(event))):
                event = packer[0](list(event.values()))
            if type(event) is not _Event:
                raise TraceError(f"event {n} is none: it has no action and no size")
            found[n] = event
        return found

    def label_number(self, frames: Any) -> int:
        """The label of a list of frames."""
        if type(frames) is not References:  # its id may be that of another one later
            return self._number(frames)
        if id(frames) not in self._known:
            self._known[id(frames)] = self._number(frames)
        return self._known[id(frames)]

    def _number(self, frames: Any) -> int:
        text = label_of(frames) if isinstance(frames, list | References) else ""
        return self.labels.setdefault(text, len(self.labels))

    def _packer(self, places: Sequence[int]) -> Callable[[Sequence[Any]], _Event]:
        action, address, size, stream, time, frames = places

        def pack(values: Sequence[Any]) -> _Event:
            number = len(self.action)
            name = values[action]
            try:
                if name not in self.codes and type(name) is not str:
                    raise TypeError
                self.action.append(self.codes.setdefault(name, len(self.codes)))
                self.size.append(values[size])
                self.address.append(values[address] if address >= 0 else 0)
                self.stream.append(values[stream] if stream >= 0 else 0)
                self.time.append(values[time] if time >= 0 else 0)
                named = name == "alloc" and frames >= 0
                self.label.append(self.label_number(values[frames]) if named else 0)
            except (TypeError, OverflowError) as error:
                raise TraceError(f"event {number} in the file is none: {_shown(values)}") from error
            return _Event(number)

        return pack


def _shown(values: Sequence[Any]) -> str:
    text = ", ".join(repr(value) for value in values if isinstance(value, int | float | str))
    return text if len(text) <= 80 else text[:77] + "..."


def _parts(data: Any) -> tuple[list[dict[str, Any]], list[list[Any]], list[Any]]:
    """The segments, the events of each device, and the annotations of a snapshot."""
    if isinstance(data, list):  # what torch.cuda.memory_snapshot() returns
        data = {"segments": data}
    if not isinstance(data, dict) or not {"segments", "device_traces"} & data.keys():
        raise TraceError("is a pickle, but no memory snapshot: it has no 'segments'")
    segments, traces = data.get("segments", []), data.get("device_traces", [])
    if not _all(segments, dict):
        raise TraceError("its 'segments' are no list of dicts")
    if not _all(traces, list):
        raise TraceError("its 'device_traces' are no list of lists")
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


def _live(segment: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The blocks that live in a segment, and their addresses."""
    blocks = segment.get("blocks", [])
    if not _all(blocks, dict):
        raise TraceError("the 'blocks' of a segment are no list of dicts")
    found, address = [], _whole(segment, "address", 0)
    for block in blocks:
        if block.get("state") in _LIVE:
            found.append((_whole(block, "address", address), block))
        address += _whole(block, "size", 0)
    return found


def _blocks(segments: Sequence[dict[str, Any]], columns: _Columns) -> Blocks:
    """The blocks that live in segments; older snapshots have sizes and frames in a history."""
    rows = []
    for segment in segments:
        stream = segment.get("stream", 0)
        stream = stream if type(stream) is int and abs(stream) <= MAX_SIZE else 0
        for address, block in _live(segment):
            history = block.get("history")
            newest = history[0] if _all(history, dict) and history else {}
            size = _whole(newest, "real_size", _whole(block, "size", 0))
            size = _whole(block, "requested_size", size)
            label = columns.label_number(block.get("frames", newest.get("frames")))
            rows.append((address, size, stream, label))
    found = np.array(rows, np.int64).reshape(-1, 4)
    return Blocks(
        address=found[:, 0].astype(np.uint64),
        size=found[:, 1].astype(np.uint64),
        stream=found[:, 2],
        label=found[:, 3].astype(np.uint32),
    )


def _choose(device: str | int | None, events: dict[int, int], live: set[int]) -> int:
    """The device that is meant."""
    told = ", ".join(f"{n} ({count:,} events)" for n, count in sorted(events.items()))
    if device is not None:
        chosen = next((n for n in events if str(n) == str(device)), None)
        if chosen is None:
            raise TraceError(f"has no device '{device}'; its devices are {told or 'none'}")
        return chosen
    for busy in ({n for n, count in events.items() if count}, live):
        if len(busy) == 1:
            return busy.pop()
        if busy:
            raise TraceError(f"holds the events of several devices: {told}; choose one: device=N")
    raise TraceError("holds no events and no live blocks")


def _annotations(annotations: Sequence[Any], device: int) -> Iterator[tuple[int, str]]:
    """When annotated ranges begin, in ns, and the labels of their marks."""
    for one in annotations:
        if not isinstance(one, dict) or one.get("stage") != "START":
            continue
        when, name = one.get("time_us"), one.get("name")
        if not isinstance(when, int) or not isinstance(name, str) or abs(when) > MAX_SIZE // 1000:
            continue
        if one.get("device", device) == device:
            yield when * 1000, mark_of(name)


def _conf(data: Any) -> str:
    """The setting of PYTORCH_CUDA_ALLOC_CONF (or PYTORCH_ALLOC_CONF) that was in force."""
    settings = data.get("allocator_settings") if isinstance(data, dict) else None
    if not isinstance(settings, dict):
        return ""
    found = (settings.get(name) for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    return next((conf for conf in found if type(conf) is str and conf), "")
