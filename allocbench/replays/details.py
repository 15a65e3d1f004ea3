# SPDX-License-Identifier: Apache-2.0
"""The data of a run for charts: the tables of `reports.rows.details`, reduced in size.

Address maps say where blocks were at chosen instants, and what blocked a failed request. They are
derived from what a replay keeps: the place of every block and every call to the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from allocbench.allocators import ReplayResult
from allocbench.allocators.replays import CALL_KINDS
from allocbench.base.trace import Layout
from allocbench.replays.trace_blocks import TraceBlocks
from allocbench.reports.rows.details import RUN, Details, table

Tables: TypeAlias = dict[str, Mapping[str, Any]]
"""The columns of tables, without their key."""
Ints: TypeAlias = NDArray[np.int64]
Columns: TypeAlias = Mapping[str, NDArray[Any]]
INTERVALS = 500
"""The minimum and maximum of each interval are kept; a chart has about as many pixels."""
_MALLOC, _MAP = CALL_KINDS.index("malloc"), CALL_KINDS.index("map")
_OPENING = [_MALLOC, _MAP]
_FEWEST_CALLS = 100  # for a 99th percentile
_QUANTILES = np.unique(
    np.concatenate([np.linspace(0, 1, 101), 1 - np.logspace(-2, -6, 41), np.logspace(-3, -2, 8)])
)


def of_replay(
    workload: TraceBlocks, result: ReplayResult, capacity: int, keeps_free: bool
) -> Tables:
    """The tables of a replay made with `detail`; its key is given by `with_key`.

    capacity: bytes of the device. keeps_free: whether external fragmentation applies.
    """
    assert result.detail is not None
    placements, calls = result.detail["placements"], result.detail["device_calls"]
    drawn = address_map(workload, placements, calls, capacity, workload.most_blocks)
    return {
        "capacity": {"bytes": [capacity]},
        **over_time(result, keeps_free),
        **_map_tables(workload, drawn),
    }


def over_time(result: ReplayResult, keeps_free: bool) -> Tables:
    """The tables of levels over the events; see `of_replay`."""
    assert result.detail is not None
    return {
        "memory": result.detail["envelope"],
        "moments": _moments(result, keeps_free),
        "free_blocks": result.detail["free_blocks"],
    }


def of_latency(
    workload: TraceBlocks, alloc: NDArray[np.float32], free: NDArray[np.float32]
) -> Tables:
    """The tables of the host seconds of single calls: of every call of one pass, in order."""
    calls = {"alloc": (alloc, workload.live), "free": (free, workload.live_at_free)}
    return {
        "latency": _both({call: _sketch(seconds) for call, (seconds, _) in calls.items()}),
        "scaling": _both({call: _scaling(*measured) for call, measured in calls.items()}),
    }


def _both(found: Mapping[str, Mapping[str, Sequence[Any]]]) -> dict[str, Any]:
    """The columns of both kinds of calls, one below the other."""
    allocs, frees = found.values()
    call = np.repeat(list(found), [len(next(iter(one.values()))) for one in found.values()])
    return {"call": call} | {name: np.concatenate([allocs[name], frees[name]]) for name in allocs}


def with_key(tables: Tables, row: Mapping[str, Any]) -> Details:
    """The tables of one run with the key of its row."""
    key = {name: row[name] for name in RUN}
    return {name: table(name, columns, **key) for name, columns in tables.items()}


def _moments(result: ReplayResult, keeps_free: bool) -> dict[str, Any]:
    """Fragmentation at the timeline's events, and the cost of device calls up to them."""
    assert result.detail is not None
    line = {name: column.astype(np.int64) for name, column in result.timeline.items()}
    calls = result.detail["device_calls"]
    calls_before = np.searchsorted(calls["event"], line["event"], side="right")
    seconds = np.append(0.0, np.cumsum(calls["seconds"]))
    thin = slice(None, None, max(1, len(calls_before) // INTERVALS))
    free = line["reserved"] - line["allocated"]
    nothing = np.full(len(calls_before), np.nan)
    external = _ratio(free - line["largest_free"], free)
    columns = {
        "event": line["event"],
        "internal_fragmentation": _ratio(line["allocated"] - line["requested"], line["allocated"]),
        "external_fragmentation": external if keeps_free else nothing,
        "device_calls": calls_before,
        "device_seconds": seconds[calls_before],
    }
    return {name: column[thin] for name, column in columns.items()}


def _ratio(part: Ints, whole: Ints) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _map_tables(workload: TraceBlocks, drawn: AddressMap) -> dict[str, Any]:
    chosen = drawn.blocks
    tables: dict[str, Any] = {
        "instants": {"event": drawn.instants},
        "ranges": drawn.ranges,
        "blocks": {
            "block": chosen,
            "address": drawn.address,
            "size": drawn.size,
            "requested": workload.size[chosen],
            "first": workload.first[chosen],
            "last": workload.last[chosen],
            "label": workload.label(chosen),
            "pins": np.isin(chosen, drawn.pins),
        },
    }
    if drawn.failure:
        tables["failures"] = {name: [value] for name, value in drawn.failure.items()}
    if drawn.omitted:
        tables["omitted"] = {"blocks": [drawn.omitted], "largest": [drawn.largest_omitted]}
    return tables


def _sketch(seconds: NDArray[np.float32]) -> dict[str, Any]:
    """Quantiles, as fine as the number of calls supports."""
    ends = np.minimum(_QUANTILES, 1 - _QUANTILES)
    kept = _QUANTILES[(ends == 0) | (ends * len(seconds) >= 1)] if len(seconds) else _QUANTILES[:0]
    return {"quantile": kept, "seconds": np.quantile(seconds, kept) if len(kept) else kept}


def _scaling(seconds: NDArray[np.float32], live: Ints) -> dict[str, Any]:
    """Calls grouped by the number of live blocks: two classes for each power of two."""
    edges = np.unique(np.round(np.sqrt(2) ** np.arange(0, 2 * 40)).astype(np.int64))
    edges = np.append(0, edges)
    classes = np.searchsorted(edges, live, side="right") - 1
    shown = [n for n in np.unique(classes) if np.sum(classes == n) >= _FEWEST_CALLS // 4]
    groups = [seconds[classes == n] for n in shown]
    several = [group if len(group) >= _FEWEST_CALLS else [np.nan] for group in groups]
    return {
        "live_from": edges[shown],
        "live_to": edges[np.array(shown, int) + 1],
        "median": [float(np.median(group)) for group in groups],
        "p99": [float(np.quantile(group, 0.99)) for group in several],
        "count": [len(group) for group in groups],
    }


@dataclass(frozen=True, eq=False)
class AddressMap:
    """The blocks and the memory alive at one or more of `instants`.

    blocks: the numbers of the blocks' allocs in the trace; address, size: bytes.
    ranges: columns address, size, first, last, mapped of the memory held from the device; pages
        that are mapped side by side are one piece of memory, segments are not.
    failure, pins: the first failed request, if any, and the blocks that pin its place.
    omitted: number of blocks left out as too small to be seen, and the bytes of the largest.
    """

    instants: Ints
    blocks: Ints
    address: Ints
    size: Ints
    ranges: dict[str, Ints]
    failure: dict[str, Any] | None
    pins: Ints
    omitted: int
    largest_omitted: int


def address_map(
    workload: TraceBlocks, placements: Columns, calls: Columns, capacity: int, most: int
) -> AddressMap:
    """The address map of a replay: at the workload's instants, at the peak, at the failure.

    placements, calls: columns of the replay. most: maximum number of blocks to draw.
    """
    size = placements["size"].astype(np.int64)
    address = placements["address"].astype(np.int64)
    placed = size > 0
    held = _ranges(_with_layout(calls, workload.trace.layout, address), len(workload.trace))
    extra = [_peak(held)]
    failed = np.flatnonzero(~placed)
    if len(failed):
        extra.append(int(workload.first[failed[0]]))
    instants = np.unique(np.append(workload.instants, extra))
    instants = instants[instants < len(workload.trace)]

    failure, pins = None, np.zeros(0, np.int64)
    if len(failed):
        failure, pins = _failure(workload, int(failed[0]), address, size, held, capacity)
    shown = np.flatnonzero(placed & _alive(instants, workload.first, workload.last))
    omitted = np.zeros(0, np.int64)
    if len(shown) > most:
        by_size = shown[np.argsort(size[shown], kind="stable")]
        omitted = np.setdiff1d(by_size[: len(shown) - most], pins)
        shown = np.setdiff1d(shown, omitted)
    kept = _alive(instants, held["first"], held["last"])
    return AddressMap(
        instants,
        shown,
        address[shown],
        size[shown],
        {name: column[kept] for name, column in held.items()},
        failure,
        pins,
        len(omitted),
        int(size[omitted].max(initial=0)),
    )


def _alive(instants: Ints, first: Ints, last: Ints) -> NDArray[np.bool_]:
    return np.searchsorted(instants, first) < np.searchsorted(instants, last)


def _with_layout(calls: Columns, layout: Layout | None, address: Ints) -> Columns:
    """The calls of a replay, and before them the segments that the allocator took over, if any."""
    if layout is None or not np.array_equal(
        address[: len(layout.block_size)], layout.block_address
    ):
        return calls
    kinds = np.where(layout.reservation == 0, _MALLOC, _MAP)
    begun = {"address": layout.address, "size": layout.size, "kind": kinds}
    nothing = np.zeros(len(layout.address))
    return {
        name: np.concatenate([begun.get(name, nothing).astype(column.dtype), column])
        for name, column in calls.items()
    }


def _ranges(calls: Columns, events: int) -> dict[str, Ints]:
    """Each malloc and map with the free or unmap that ends it, in order of address.

    Memory obtained and returned within one event is left out.
    """
    served = np.flatnonzero(calls["refused"] == 0)
    address = calls["address"][served].astype(np.int64)
    order = np.argsort(address, kind="stable")
    address = address[order]
    event = calls["event"][served].astype(np.int64)[order]
    size = calls["size"][served].astype(np.int64)[order]
    opens = np.isin(calls["kind"][served][order], _OPENING)
    following = np.append(address[1:] == address[:-1], False) & ~np.append(opens[1:], True)
    last = np.where(following, np.append(event[1:], events), events)
    kept = opens & (last > event)
    return {
        "address": address[kept],
        "size": size[kept],
        "first": event[kept],
        "last": last[kept],
        "mapped": (calls["kind"][served][order][kept] == _MAP).astype(np.int64),
    }


def _peak(held: dict[str, Ints]) -> int:
    """The event after which the most bytes are held."""
    events = np.concatenate([held["first"], held["last"]])
    change = np.concatenate([held["size"], -held["size"]])
    order = np.argsort(events, kind="stable")
    load = np.cumsum(change[order])
    if not len(load):
        return 0
    ends = np.append(events[order][1:] != events[order][:-1], True)
    return int(events[order][ends][np.argmax(load[ends])])


def _failure(
    workload: TraceBlocks,
    failed: int,
    address: Ints,
    size: Ints,
    held: dict[str, Ints],
    capacity: int,
) -> tuple[dict[str, Any], Ints]:
    """The state before a failed request, and the blocks in its way."""
    event, requested = int(workload.first[failed]), int(workload.size[failed])
    alive = np.flatnonzero((size > 0) & (workload.first < event) & (workload.last > event))
    alive = alive[np.argsort(address[alive], kind="stable")]
    now = (held["first"] <= event) & (held["last"] > event)
    areas = _areas({name: column[now] for name, column in held.items()})
    begins, ends = address[alive], address[alive] + size[alive]
    reserved, allocated = int(held["size"][now].sum()), int(size[alive].sum())
    pins, place = in_the_way(areas, begins, ends, requested, capacity - reserved)
    facts = {
        "event": event,
        "requested": requested,
        "capacity": capacity,
        "reserved": reserved,
        "allocated": allocated,
        "largest_gap": _largest_gap(areas, begins, ends),
        "pins": len(pins),
        "pinned_bytes": int(size[alive[pins]].sum()),
        "place": place,
    }
    return facts, alive[pins]


def _areas(held: dict[str, Ints]) -> list[tuple[int, int]]:
    """Begin and end of each segment and of each run of mapped pages, in order of address."""
    areas: list[tuple[int, int]] = []
    columns = (held[name].tolist() for name in ("address", "size", "mapped"))
    before = False
    for begin, length, mapped in sorted(zip(*columns, strict=True)):
        if before and mapped and areas[-1][1] == begin:
            areas[-1] = (areas[-1][0], begin + length)
        else:
            areas.append((begin, begin + length))
        before = bool(mapped)
    return areas


def _largest_gap(areas: Sequence[tuple[int, int]], begins: Ints, ends: Ints) -> int:
    longest = 0
    for begin, end in areas:
        inside = slice(np.searchsorted(begins, begin), np.searchsorted(begins, end))
        edges = np.concatenate([[begin], ends[inside]]), np.append(begins[inside], end)
        longest = max(longest, int((edges[1] - edges[0]).max()))
    return longest


def in_the_way(
    areas: Sequence[tuple[int, int]], begins: Ints, ends: Ints, requested: int, room: int
) -> tuple[Ints, str]:
    """The blocks with the fewest bytes whose removal lets the request fit, and where.

    areas: begin and end of each, in order of address, like the blocks. room: bytes that the device
    still has.

    Either the blocks in one stretch of an area that is long enough, or those of one area that would
    have to be returned to the device; if no single area is enough, those of the emptiest areas.
    """
    total = np.append(0, np.cumsum(ends - begins))
    best: tuple[int, int, int] | None = None
    for begin, end in areas:
        if end - begin < requested:
            continue
        low, high = np.searchsorted(begins, begin), np.searchsorted(begins, end)
        starts = np.append(begin, ends[low:high])
        starts = starts[starts + requested <= end]
        from_ = np.searchsorted(ends, starts, side="right")
        to = np.searchsorted(begins, starts + requested, side="left")
        cost = total[to] - total[from_]
        n = int(np.argmin(cost))
        if best is None or cost[n] < best[0]:
            best = int(cost[n]), int(from_[n]), int(to[n])
    spans = [(np.searchsorted(begins, begin), np.searchsorted(begins, end)) for begin, end in areas]
    load = [int(total[to] - total[from_]) for from_, to in spans]
    alone = [n for n, (begin, end) in enumerate(areas) if room + end - begin >= requested > room]
    if alone and (best is None or min(load[n] for n in alone) < best[0]):
        return np.arange(*spans[min(alone, key=load.__getitem__)]), "segments"
    if best is not None:
        return np.arange(best[1], best[2]), "stretch"
    pinned: list[int] = []
    for n in sorted(range(len(areas)), key=load.__getitem__):
        if room >= requested:
            break
        room += areas[n][1] - areas[n][0]
        pinned += range(*spans[n])
    return np.array(sorted(pinned), np.int64), "segments"
