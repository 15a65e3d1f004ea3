# SPDX-License-Identifier: Apache-2.0
"""The dicts and lists of a memory snapshot: devices, segments, blocks and annotations, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from allocbench.workloads.importers.addresses import Blocks
from allocbench.workloads.importers.gaps import Range
from allocbench.workloads.importers.pool_ids import DEFAULT_POOL, PoolId, pool_id
from allocbench.workloads.importers.snapshot_segments import Segment
from allocbench.workloads.trace import MAX_SIZE, TraceError
from allocbench.workloads.vocabulary import SeveralDevicesError

_LIVE = ("active_allocated", "active_pending_free", "active_awaiting_free")


class Parts(NamedTuple):
    """The segments, the events of each device, and the annotations of a snapshot."""

    segments: list[dict[str, Any]]
    events: list[list[Any]]
    annotations: list[Any]


def parts_of(data: Any) -> Parts:
    """What a pickle holds; raises TraceError if it is not a memory snapshot."""
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
    return Parts(segments, traces, annotations if isinstance(annotations, list) else [])


def _all(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


def _whole(values: dict[str, Any], key: str, default: int) -> int:
    """A whole number of a dict, from 0 to 2**63 - 1."""
    value = values.get(key, default)
    if type(value) is not int or not 0 <= value <= MAX_SIZE:
        raise TraceError(f"a segment or block has {key} {str(value)[:40]!r}")
    return value


def device_of(parts: Parts, device: str | int | None, count: Callable[[list[Any]], int]) -> int:
    """The number of the selected device, or of the only one with events or else with live blocks.

    count: the number of events in a list. Raises TraceError if there is no such device, and
    SeveralDevicesError if there are several.
    """
    lengths = {id(events): count(events) for events in _distinct(parts.events)}
    counts = {n: lengths[id(events)] for n, events in enumerate(parts.events)}
    for segment in parts.segments:
        counts.setdefault(_device(segment), 0)
    live = {_device(segment) for segment in parts.segments if _live(segment)}
    return _choose(device, counts, live)


def segments_on(parts: Parts, device: int) -> list[dict[str, Any]]:
    """The segments of a device."""
    return [segment for segment in parts.segments if _device(segment) == device]


def _distinct(lists: list[list[Any]]) -> list[list[Any]]:
    """The lists that differ: several devices can have the same one."""
    return [*{id(one): one for one in lists}.values()]


def _device(segment: dict[str, Any]) -> int:
    return _whole(segment, "device", 0)


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
                f"holds the events of several devices: {listed}; choose one: FILE:device=N",
                sorted(busy),
            )
    raise TraceError("holds no events and no live blocks")


def final_segments(segments: Sequence[dict[str, Any]]) -> list[Segment]:
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


def live_blocks(segments: Sequence[dict[str, Any]], label_number: Callable[[Any], int]) -> Blocks:
    """The live blocks of segments; older snapshots have sizes and frames in a history.

    label_number: of the label of some frames.
    """
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
            label = label_number(block.get("frames", newest.get("frames")))
            rows.append((address, size, stream, label, granted))
    table = np.array(rows, np.int64).reshape(-1, 5)
    return Blocks(
        address=table[:, 0].astype(np.uint64),
        size=table[:, 1].astype(np.uint64),
        stream=table[:, 2],
        label=table[:, 3].astype(np.uint32),
        granted=table[:, 4].astype(np.uint64),
    )


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


def known_ranges(segments: Sequence[dict[str, Any]]) -> list[Range]:
    """The ranges whose final state is known: segments with a list of blocks."""
    begun = [
        (_whole(s, "address", 0), _whole(s, "total_size", 0)) for s in segments if s.get("blocks")
    ]
    return [(address, address + size) for address, size in begun]


def begun_ranges(annotations: Sequence[Any], device: int) -> Iterator[tuple[int, str]]:
    """The time in ns at which each annotated range of a device begins, and its name."""
    for annotation in annotations:
        if not isinstance(annotation, dict) or annotation.get("stage") != "START":
            continue
        when, name = annotation.get("time_us"), annotation.get("name")
        if not isinstance(when, int) or not isinstance(name, str) or abs(when) > MAX_SIZE // 1000:
            continue
        if annotation.get("device", device) == device:
            yield when * 1000, name
