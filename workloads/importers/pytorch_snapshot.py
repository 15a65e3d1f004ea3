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

from collections import Counter
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers import snapshot_start as starts
from allocbench.workloads.importers.addresses import (
    AddressedEvents,
    Blocks,
    Start,
    assemble,
    gaps_of,
    marks_before,
)
from allocbench.workloads.importers.snapshot_additions import (
    apart,
    labels_with,
    noted_segments,
    pool_uses,
    with_modules,
)
from allocbench.workloads.importers.snapshot_tables import Snapshot
from allocbench.workloads.pytorch_settings import read_settings
from allocbench.workloads.recordings import CALLS, Calls, Coverage, FailedRequest, Gaps, Recording
from allocbench.workloads.snapshot_format import TENSORS
from allocbench.workloads.trace import MAX_SIZE, Provenance, Trace

_ALLOC = "alloc"
_FREES, _FREE_REQUESTED = ("free_completed", "free"), "free_requested"
_OUT_OF_MEMORY = "oom"
DEFERRED = "deferred_frees"
"""Key in a provenance's `extra`: blocks that were used on another stream, see `_deferred`."""
_MOST_PLACES = 3


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
    return read_recording(file, path, device=device, conf=conf).with_failure()


def read_recording(
    file: BinaryIO, path: Path, *, device: str | int | None = None, conf: str | int = ""
) -> Recording:
    """Read the trace and what the recorded allocator did; raises as `read` does."""
    snapshot = Snapshot(file)
    return _Device(snapshot, snapshot.choose(device), str(conf)).recording(path)


class _Device:
    """What a snapshot has of one device: n events, of which m are allocs and frees.

    segments: at the end. calls: to the device. live: the blocks alive at the end. unknown: why it
    cannot be known what was held at the start, or "". frees_left_out: frees of which the events
    have only the request, as with skip_actions.
    """

    def __init__(self, snapshot: Snapshot, number: int, conf: str) -> None:
        self._snapshot, self._number = snapshot, number
        self._settings = read_settings(snapshot.data, conf)
        self._events = snapshot.events(number)
        self._action, self._actions = self._events.names("action")
        self.segments = self._segments()
        self.live = self._live()
        self._is_request, self.frees_left_out = self._requests_among_events()
        self._time_ns = self._of_requests("time_us") * 1000
        self.calls = self._calls()
        self._marks, self._of_pools = apart(snapshot.annotations(number))
        noted = noted_segments(self._of_pools, self._time_ns, snapshot.pools.number)
        self._released = starts.name_pools(self.calls, noted, len(self._time_ns))
        self.unknown = ""

    def _is(self, *actions: str) -> NDArray[np.bool_]:
        """Which events have one of some actions."""
        wanted: NDArray[np.bool_] = np.array([name in actions for name in self._actions], np.bool_)
        return wanted[self._action]

    def _requests_among_events(self) -> tuple[NDArray[np.bool_], int]:
        """Which events are allocs and frees, and how many frees are only requested."""
        frees, requested = self._is(*_FREES), self._is(_FREE_REQUESTED)
        if not frees.any():
            address = self._events["addr"][requested]
            if not np.isin(address, self.live.address.astype(np.int64)).all():
                return self._is(_ALLOC) | requested, len(address)
        return self._is(_ALLOC) | frees, 0

    def _of_requests(self, key: str) -> NDArray[Any]:
        return self._events[key][self._is_request]

    def recording(self, path: Path) -> Recording:
        """The recording; its trace gets the name of a file."""
        events = self._requests()
        device, notes = f"cuda:{self._number}", self._notes()
        provenance = Provenance.of_file(path, device=device, extra=notes)
        found = assemble(events, provenance, self.live, self._start)
        times = events.time_ns
        begun = None if times is None else int(times.min(initial=MAX_SIZE))
        trace = with_modules(found.trace, found.address, begun, self._snapshot.data.get(TENSORS))
        gaps = gaps_of(events, found.allocs_before, self.live, self._known_ranges())
        return Recording(
            trace=replace(trace, coverage=self._coverage(trace, gaps)),
            address=found.address,
            calls=Calls(
                np.array([CALLS.index(call.action) for call in self.calls], np.uint8),
                np.array([call.address for call in self.calls], np.uint64),
                np.array([call.size for call in self.calls], np.uint64),
                found.allocs_before[np.array([call.position for call in self.calls], np.int64)],
            ),
            options=self._settings.options,
            tells_pools=len(self._events) > 0 and not self._snapshot.rules(self._number),
            tells_settings="allocator_settings" in self._snapshot.data,
            unknown=self.unknown,
            gaps=gaps,
            failure=self._failure,
        )

    def _requests(self) -> AddressedEvents:
        """The allocs and frees."""
        is_alloc = self._is(_ALLOC)[self._is_request]
        address = np.maximum(self._of_requests("addr"), 0).astype(np.uint64)
        stream, stack = self._of_requests("stream"), self._of_requests("frames")
        stacks = self._snapshot.stacks
        names = stacks.names(np.where(is_alloc, stack, 0))
        time_ns = self._time_ns
        events = AddressedEvents(
            is_alloc=is_alloc,
            address=address,
            size=self._of_requests("size").astype(np.uint64),
            stream=stream,
            label=names.pop("label"),
            time_ns=time_ns if time_ns.any() else None,
            labels=stacks.labels,
            marks=marks_before(time_ns, self._marks),
            pool=self._pools(stream, address),
            pools=self._snapshot.pools.names,
            names=names,
        )
        label, labels = labels_with(events, self._snapshot.workspaces(self._number))
        return replace(events, label=label, labels=labels)

    def _pools(
        self, stream: NDArray[np.int64], address: NDArray[np.uint64]
    ) -> NDArray[np.int32] | None:
        """The private pool of each request: the one that it names, or that of the segment around
        its address. None if there is no private pool.

        The device may give the addresses to several pools: a request belongs to the segment at its
        address if it has the same stream, and comes after the segment was obtained and before it
        was given back.
        """
        pool = self._snapshot.pools.of(self._of_requests("pool_id"))
        obtained = {
            str(call.address): call.position
            for call in self.calls
            if call.action == starts.SEGMENT_ALLOC
        }
        held = [
            starts.Lifetime(
                one.address, one.end, one.stream, one.pool,
                obtained.get(str(one.address), 0), len(pool),
            )
            for one in self.segments
            if one.pool > 0
        ]  # fmt: skip
        order = np.argsort(address, kind="stable")
        ordered, unnamed = address[order], pool < 0
        pool = np.maximum(pool, 0)
        for one in (*self._released, *held):
            first, last = np.searchsorted(ordered, np.array([one.begin, one.end], np.uint64))
            inside = order[first:last]
            inside = inside[(inside >= one.since) & (inside < one.until)]
            pool[inside[unnamed[inside] & (stream[inside] == one.stream)]] = one.pool
        return pool if pool.any() else None

    def _segments(self) -> list[starts.Segment]:
        """The segments held at the end; those of older snapshots may lack a pool and a kind."""
        table, chosen = self._snapshot.segments, self._snapshot.segments_of(self._number)
        kind, kinds = table.names("segment_type")
        pools = np.maximum(self._snapshot.pools.of(table["segment_pool_id"]), 0)
        small = {"small": True, "large": False}
        columns = (
            *(table[key] for key in ("address", "total_size", "stream")), pools, kind,
            table["is_expandable"],
        )  # fmt: skip
        return [
            starts.Segment(address, size, stream, pool, small.get(kinds[kind]), bool(expandable))
            for address, size, stream, pool, kind, expandable in zip(
                *(column[chosen].tolist() for column in columns), strict=True
            )
        ]

    def _calls(self) -> list[starts.SegmentCall]:
        """The calls to the device, in order."""
        chosen = np.flatnonzero(self._is(*starts.ACTIONS))
        columns = (
            self._action[chosen],
            *(self._events[key][chosen] for key in ("addr", "size", "stream")),
            self._snapshot.pools.of(self._events["pool_id"][chosen]),
            np.cumsum(self._is_request)[chosen],
        )
        return [
            starts.SegmentCall(self._actions[action], max(0, address), *others)
            for action, address, *others in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]

    def _live(self) -> Blocks:
        found = self._snapshot.live_blocks(self._number)
        place = {row: n for n, row in enumerate(self._snapshot.segments_of(self._number).tolist())}
        of = [self.segments[place[row]] for row in found["segment"].tolist()]
        names = self._snapshot.stacks.names(found["stack"])
        return Blocks(
            address=found["address"].astype(np.uint64),
            size=found["size"].astype(np.uint64),
            stream=np.array([segment.stream for segment in of], np.int64),
            label=names.pop("label"),
            granted=found["granted"].astype(np.uint64),
            pool=np.array([segment.pool for segment in of], np.int32),
            names=names,
        )

    def _known_ranges(self) -> list[tuple[int, int]]:
        """The ranges whose final state is known: segments with a list of blocks."""
        counts = self._snapshot.segments.ranges("blocks")[1]
        counts = counts[self._snapshot.segments_of(self._number)]
        return [
            (segment.address, segment.end)
            for segment, count in zip(self.segments, counts.tolist(), strict=True)
            if count
        ]

    def _start(self, events: AddressedEvents, initial: Blocks) -> Start:
        """What some events began with, given the blocks that were alive then."""
        uses, traits = pool_uses(self._of_pools, self._time_ns, self._snapshot.pools.number)
        segments, calls = self.segments, self.calls
        recorded = len(segments) > 0 or len(calls) > 0
        try:
            if not recorded:
                raise starts.UnknownLayoutError("it holds no segments and no events of segments")
            settings = starts.rules_of(self._settings.options)
            before = starts.at_start(segments, calls)
            before = starts.with_kinds(
                before, calls, events.address, events.size, settings.large_segment
            )
            layout = starts.layout_of(before, calls, settings, events, initial)
        except starts.UnknownLayoutError as error:
            self.unknown = str(error)
            notes = {"layout": f"unknown: {error}"} if recorded else {}
            return Start(notes=notes, uses=uses, traits=traits)
        releases, runs = starts.trims_of(calls, events, layout, settings)
        return Start(layout if len(before) else None, releases, runs, uses, traits)

    def _notes(self) -> dict[str, Any]:
        """What the provenance says about the snapshot."""
        settings = self._settings
        notes = {
            "format": "PyTorch memory snapshot",
            "sizes": "requested",
            "conf": settings.conf,
            "settings": settings.options,
            "rules": self._snapshot.rules(self._number),
            "other_events": self._others(),
            "after_oom": self._after_failure(),
            DEFERRED: self._deferred(),
        }
        return {key: value for key, value in notes.items() if value}

    def _deferred(self) -> dict[str, Any] | None:
        """The blocks whose free was not completed at once, because another stream used them.

        Their number, their requested bytes in all, and the lines that hold most of them; None if
        there are no such blocks.
        """
        action, address = self._action, self._events["addr"]
        asked, allocs = (np.flatnonzero(self._is(name)) for name in (_FREE_REQUESTED, _ALLOC))
        completed = np.append(self._is(*_FREES), False)[asked + 1]
        completed &= np.append(address, -1)[asked + 1] == address[asked]
        if not self._is(*_FREES).any() or completed.all() or not len(allocs):
            return None
        waiting = asked[~completed]
        _, block = np.unique(address, return_inverse=True)
        at = block * len(action) + np.arange(len(action))  # in order of address, then of time
        by_address = allocs[np.argsort(at[allocs])]
        of = by_address[np.maximum(0, np.searchsorted(at[by_address], at[waiting]) - 1)]
        known = address[of] == address[waiting]
        stack = np.where(known, self._events["frames"][of], 0)
        names, labels = self._snapshot.stacks.names(stack), self._snapshot.stacks.labels
        size = self._events["size"][waiting]
        places = Counter[str]()
        for place, asked_for in zip(names.get("line", names["label"]), size, strict=True):
            places[labels[place]] += int(asked_for)
        return {
            "blocks": len(waiting),
            "bytes": int(size.sum()),
            "places": [pair for pair in places.most_common(_MOST_PLACES) if pair[0]],
        }

    def _others(self) -> dict[str, int]:
        """How many events of each other action there are, in order of their names."""
        counts = np.bincount(self._action[~self._is_request], minlength=len(self._actions)).tolist()
        return {
            name: count for name, count in sorted(zip(self._actions, counts, strict=True)) if count
        }

    @cached_property
    def _last_failure(self) -> int | None:
        failed = np.flatnonzero(self._is(_OUT_OF_MEMORY))
        return int(failed[-1]) if len(failed) else None

    def _after_failure(self) -> dict[str, int] | None:
        """How many allocs and steps came after the last request that failed; None if none did."""
        last = self._last_failure
        if last is None:
            return None
        when = int(self._events["time_us"][last]) * 1000
        return {
            "allocs": int(np.count_nonzero(self._is(_ALLOC)[last:])),
            "steps": sum(name == "step" and time_ns > when for time_ns, name in self._marks),
        }

    @cached_property
    def _failure(self) -> FailedRequest | None:
        """The last request, if it failed."""
        last = self._last_failure
        if last is None or np.any(self._is(_ALLOC)[last:]):
            return None
        free = int(self._events["addr"][last])
        names = self._snapshot.stacks.names(self._events["frames"][last : last + 1])
        labels = self._snapshot.stacks.labels
        return FailedRequest(
            size=int(self._events["size"][last]),
            later=int(np.count_nonzero(self._is_request[last:])),
            names={name: labels[number[0]] for name, number in names.items()},
            device_free=None if free < 0 else free,
            reserved_later=self._grown(last),
        )

    def _grown(self, first: int = 0) -> int:
        """Bytes that the events from one on add to those reserved."""
        size = self._events["size"][first:]
        grown, shrunk = self._is(*starts.GROWTH)[first:], self._is(*starts.SHRINKING)[first:]
        return int(size[grown].sum()) - int(size[shrunk].sum())

    def _coverage(self, trace: Trace, gaps: Gaps) -> Coverage:
        """Which part of the program the events are."""
        at_start, failure = trace.provenance.live_at_start, self._failure
        reserved = sum(segment.size for segment in self.segments)
        held = max(0, reserved - self._grown())
        return Coverage(
            begins="later" if held or at_start else "start",
            ends="failure" if failure else "open",
            events=bool(self._is_request.any()),
            held=held,
            live=int(trace.size[:at_start].sum()),
            reserved=reserved - (failure.reserved_later if failure else 0),
            request=failure.size if failure else 0,
            device_free=failure.device_free if failure else None,
            allocs_missing=gaps.allocs,
            frees_missing=gaps.frees + self.frees_left_out,
            contradiction=self.unknown if self.segments or self.calls else "",
        )
