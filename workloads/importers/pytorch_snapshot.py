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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from allocbench.workloads.coverage import Coverage
from allocbench.workloads.importers import snapshot_parts as parts
from allocbench.workloads.importers.addresses import (
    AddressedEvents,
    Blocks,
    PoolUse,
    Start,
    traced,
)
from allocbench.workloads.importers.gaps import gaps_of
from allocbench.workloads.importers.labels import marks_of
from allocbench.workloads.importers.module_names import BETWEEN, TENSORS, with_modules
from allocbench.workloads.importers.pickles import DataPickle
from allocbench.workloads.importers.pool_ids import PoolId
from allocbench.workloads.importers.snapshot_columns import Columns
from allocbench.workloads.importers.snapshot_events import DeviceEvents
from allocbench.workloads.importers.snapshot_layout import layout_of
from allocbench.workloads.importers.snapshot_pool_events import apart, pool_uses
from allocbench.workloads.importers.snapshot_pools import Pools
from allocbench.workloads.importers.snapshot_segments import (
    Segment,
    SegmentCall,
    UnknownLayoutError,
    at_start,
    with_kinds,
)
from allocbench.workloads.importers.snapshot_trims import trims_of
from allocbench.workloads.importers.snapshot_workspaces import labels_with, workspaces_of
from allocbench.workloads.pytorch_settings import BEFORE_POOLS, Settings, read_settings
from allocbench.workloads.recordings import Calls, Recording, Refused, with_gaps
from allocbench.workloads.trace import ALLOC, FREE, MAX_SIZE, NAMED, PrivatePool, Provenance, Trace

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
    snapshot = parts.parts_of(data)
    chosen = parts.device_of(snapshot, device, columns.count)
    here = parts.segments_on(snapshot, chosen)
    settings = read_settings(data, str(conf))
    of_device = snapshot.events[chosen] if chosen < len(snapshot.events) else []
    live = parts.live_blocks(here, columns.label_number)
    recorded = DeviceEvents(columns, of_device, live.address)
    final, calls = parts.final_segments(here), recorded.calls()
    pools = Pools(final, calls)
    live = pools.blocks(live)
    named, of_pools = apart(parts.begun_ranges(snapshot.annotations, chosen))
    marks = marks_of(named)
    events = recorded.addressed(pools, marks)
    label, labels = labels_with(events, workspaces_of(data, chosen))
    events = replace(events, label=label, labels=labels)
    uses, traits = pool_uses(of_pools, recorded.time_ns, pools.of)
    provenance = Provenance(
        name=path.stem,
        kind="imported",
        source=path.name,
        device=f"cuda:{chosen}",
        extra=_told(settings, recorded, marks),
    )
    beginning = _Beginning(final, calls, settings, pools, uses, traits)
    found = traced(events, provenance, live, beginning.of)
    begun = None if events.time_ns is None else int(events.time_ns.min(initial=MAX_SIZE))
    tensors = data.get(TENSORS) if isinstance(data, dict) else None
    trace, gaps = (
        with_modules(found.trace, found.address, begun, tensors),
        gaps_of(events, found.allocs_before, live, parts.known_ranges(here)),
    )
    coverage = _coverage(trace, recorded, sum(segment.size for segment in final))
    coverage = replace(coverage, contradiction=beginning.unknown if final or calls else "")
    coverage = with_gaps(coverage, gaps)
    coverage = replace(coverage, frees_missing=coverage.frees_missing + recorded.frees_left_out)
    return Recording(
        trace=replace(trace, coverage=coverage),
        address=found.address,
        calls=Calls.of(calls, found.allocs_before),
        options=settings.options(),
        tells_pools=recorded.tell_pools,
        tells_settings=isinstance(data, dict) and "allocator_settings" in data,
        unknown=beginning.unknown,
        gaps=gaps,
        refused=recorded.refused(),
    )


def _told(
    settings: Settings, recorded: DeviceEvents, marks: Sequence[tuple[int, str]]
) -> dict[str, Any]:
    """What the provenance says about the snapshot."""
    told = {
        "format": "PyTorch memory snapshot",
        "sizes": "requested",
        "conf": settings.conf,
        "settings": settings.options(),
        "rules": BEFORE_POOLS if recorded.lack_pools else "",
        "other_events": recorded.others(),
        "after_oom": recorded.after_failure(marks),
    }
    return {key: value for key, value in told.items() if value}


def _coverage(trace: Trace, recorded: DeviceEvents, reserved: int) -> Coverage:
    """What the events say; reserved: bytes held after the last one."""
    at_start = trace.provenance.live_at_start
    refused, held = recorded.refused(), max(0, reserved - recorded.reserved())
    return Coverage(
        begins="later" if held or at_start else "start",
        ends="failure" if refused else "open",
        events=len(recorded) > 0,
        held=held,
        live=int(trace.size[:at_start].sum()),
        reserved=reserved - (refused.reserved_later if refused else 0),
        request=refused.size if refused else 0,
        device_free=refused.device_free or None if refused else None,
    )


@dataclass
class _Beginning:
    """Finds what was held when the recording began, by undoing its calls to the device.

    unknown: why it cannot be known, or "".
    """

    final: Sequence[Segment]
    calls: Sequence[SegmentCall]
    settings: Settings
    pools: Pools
    uses: Sequence[PoolUse]
    traits: Mapping[PoolId, PrivatePool]
    unknown: str = ""

    def of(self, events: AddressedEvents, initial: Blocks) -> Start:
        """What some events began with, given the blocks that were alive then."""
        final, calls, settings, number = self.final, self.calls, self.settings, self.pools.number
        recorded = len(final) > 0 or len(calls) > 0
        try:
            if not recorded:
                raise UnknownLayoutError("it holds no segments and no events of segments")
            before = at_start(final, calls)
            before = with_kinds(before, calls, events.address, events.size, settings.large_segment)
            layout = layout_of(before, calls, settings, events, initial, number)
        except UnknownLayoutError as error:
            self.unknown = str(error)
            told = {"layout": f"unknown: {error}"} if recorded else {}
            return Start(told=told, uses=self.uses, traits=self.traits)
        trims = trims_of(calls, events, layout, settings, number)
        held = layout if len(before) else None
        return Start(held, trims.at, trims.told(), self.uses, self.traits)


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
    labels = [*trace.labels]
    names = dict(zip(NAMED, (*refused.label.split(BETWEEN), "", "")[:3], strict=True))
    for name in names.values() if trace.label is not None else ():
        if name not in labels:
            labels.append(name)

    def named(column: str) -> Any:
        values = getattr(trace, column)
        return values if values is None else longer(values, labels.index(names[column]))

    return replace(
        trace,
        labels=tuple(labels),
        op=longer(trace.op, ALLOC),
        block=longer(trace.block, trace.blocks),
        size=longer(trace.size, refused.size),
        stream=longer(trace.stream),
        time_ns=longer(trace.time_ns),
        **{column: named(column) for column in NAMED},
        pool=longer(trace.pool, 0),
        provenance=replace(trace.provenance, extra=extra),
    )
