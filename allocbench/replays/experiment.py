# SPDX-License-Identifier: Apache-2.0
"""One run of a trace through an allocator -> one result row; a matrix of runs.

The keys of a row are the columns of `reports.rows`, which also defines each metric; what was
not measured, or does not exist for an allocator, is None.
"""

import datetime
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from threading import Event, Lock
from types import MappingProxyType
from typing import TypeVar

from allocbench import __version__, allocators
from allocbench.allocators import Allocator, Unavailable
from allocbench.base.spec import name_of
from allocbench.replays import PASSES
from allocbench.replays.capacity import roomy
from allocbench.replays.details import INTERVALS, Tables, of_latency, of_replay, with_key
from allocbench.replays.recorded_settings import in_force, takes_over
from allocbench.replays.runner import (
    Arrays,
    LargeRunner,
    Row,
    beside,
    can_be_made,
    counted,
    fresh,
    innermost,
    steady_calls,
)
from allocbench.replays.timing import Times, has_host_time, time_passes
from allocbench.replays.trace_blocks import TraceBlocks
from allocbench.reports.rows.details import Details, join
from allocbench.reports.rows.results import SCHEMA
from allocbench.workloads import AnyTrace, Features, StreamedTrace, Trace, features

_MOST_AT_ONCE = 4  # runs in threads: each needs memory in proportion to the trace
NOTHING_KNOWN: Mapping[str, Mapping[str, Row]] = MappingProxyType({})
_BEGINS = {None: None, True: "segments", False: "blocks"}


@dataclass(frozen=True)
class Effort:
    """How much a run measures in addition to the replay that counts bytes.

    `passes`: how often the trace is timed: cold, steady and call by call; with 0 no host time is
    measured. `capacity`: whether to search for min_capacity, and the card.
    """

    passes: int = PASSES
    capacity: bool = True

    @property
    def stages(self) -> tuple[str, ...]:
        """What a run goes through, in order."""
        time = ("time",) if self.passes else ()
        return ("replay", *time, *(("min capacity",) if self.capacity else ()))


def check(specs: Sequence[str], device: str) -> None:
    """Make every allocator once; raises SpecError for the first spec that is wrong.

    A spec that cannot work on the device is wrong only if there is no other.
    """
    for spec in specs:
        try:
            fresh(spec, device)
        except Unavailable:
            if len(specs) == 1:
                raise


def run(
    trace: AnyTrace,
    allocator: str,
    device: str,
    effort: Effort = Effort(),
    *,
    workload: str = "",
    described: Features | None = None,
    stage: Callable[[str], None] = lambda name: None,
    placements: Callable[[Arrays], None] | None = None,
    trace_blocks: TraceBlocks | None = None,
    times: Times | None = None,
    known: Row | None = None,
    proceed: Callable[[], None] = lambda: None,
) -> tuple[Row, Details]:
    """Measure one allocator on one trace: the row, and what charts need beyond it.

    allocator, device: specs, such as "bfc:allow_growth=false" and "sim:80GiB"; libraries hold on
        the device what they held beside the trace.
    workload: the name of the trace in the row; default: the trace's own name.
    described: the features of the trace; None: they are computed here.
    stage: called with the name of each of the effort's stages as it begins.
    placements: called with the columns block, segment, offset, size of the replay that counts
        bytes, one element per alloc event; they are not kept.
    trace_blocks: of the trace, when the tables of `reports.details` are wanted; they come from a
        separate replay, which is skipped without it.
    times: what `times_of` has found; measured here when None. known: what `LargeRunner.counted` and
        `LargeRunner.enough` have found; replayed and searched here when None. Without placements.
    proceed: called between replays; what it raises ends the run.

    Each stage has its own device and allocator. Time: see `timing.time_passes`. Host seconds never
    contain the device's. An allocator that cannot work on the device has a row that says why, and
    no timeline. Raises SpecError.
    """
    stage("replay")
    row = _identity(trace, allocator, device, workload) | {"passes": effort.passes} | _origin()
    device = beside(device, trace)
    if described is None:
        described = trace.features if isinstance(trace, StreamedTrace) else features(trace)
    row |= asdict(described)
    row["begins_with"] = _BEGINS[takes_over(allocator, trace, device)]
    try:
        instance = fresh(allocator, device, trace)
    except Unavailable:
        info = allocators.info(innermost(allocator))
        row["unavailable"] = allocators.unavailable(info, allocators.make_device(device))
        return {name: row.get(name) for name in SCHEMA}, {}
    row |= known or counted(trace, instance, placements)
    timed_here = (
        effort.passes > 0
        and has_host_time(allocator, device)
        and _timed_on(trace, allocator, device) == device
    )
    if not timed_here:
        proceed()
        if known:
            allocators.time_pass(trace, instance)
        row["device_calls_steady"] = steady_calls(trace, instance)
    del instance  # it holds memory of the device
    proceed()
    details = _details(trace_blocks, fresh(allocator, device, trace)) if trace_blocks else {}
    if effort.passes:
        if times is None:
            (times,) = times_of(
                trace, [allocator], device, effort.passes, lambda _: stage("time")
            ).values()
        row |= times.row
        if timed_here:
            row["device_calls_steady"] = times.device_calls
        if trace_blocks and times.calls:
            details |= of_latency(trace_blocks, *times.calls)
    if effort.capacity:
        stage("min capacity")
        row |= known or LargeRunner(trace, device, proceed=proceed).enough(allocator)
    return {name: row.get(name) for name in SCHEMA}, with_key(details, row)


def without_result(trace: AnyTrace, allocator: str, device: str, why: str, *, workload: str) -> Row:
    """The row of a run that has no result; `why` follows the allocator's name and "it"."""
    row = _identity(trace, allocator, device, workload) | _origin() | {"unavailable": why}
    return {name: row.get(name) for name in SCHEMA}


def times_of(
    trace: AnyTrace,
    specs: Sequence[str],
    device: str,
    passes: int,
    begin: Callable[[str], None] = lambda spec: None,
) -> dict[str, Times]:
    """The times of each allocator that can work on a device: see `timing.time_passes`.

    A floor is timed on a device with room for all of its requests; otherwise its failures would be
    timed.
    """
    on = {spec: _timed_on(trace, spec, device) for spec in specs if can_be_made(spec, device)}
    return time_passes(trace, on, passes, begin)


def _timed_on(trace: AnyTrace, spec: str, device: str) -> str:
    return device if allocators.info(innermost(spec)).candidate else roomy(device, trace)


def run_matrix(
    workloads: Mapping[str, Trace],
    specs: Sequence[str],
    device: str,
    effort: Effort = Effort(),
    *,
    detailed: bool = False,
    known: Mapping[str, Mapping[str, Row]] = NOTHING_KNOWN,
    stage: Callable[[str, str, str], None] = lambda workload, allocator, name: None,
    done: Callable[[Row], None] = lambda row: None,
) -> tuple[list[Row], Details]:
    """Run every workload through every allocator: the rows, and the tables of `reports.details`.

    detailed: whether to make those tables; otherwise they are empty. known: by workload and spec,
    columns that were found before: see `run`. A spec in it that is not in
    `specs` is also run with its workload. stage: called with workload,
    allocator and stage as each stage begins, from any thread, but one call at a time. done: called
    with each row, in order, as it is ready.

    The allocators of a workload are timed first, when nothing else runs. Then, on a simulated
    device, as many of them as there are processors, but at most 4, run at the same time.

    Raises SpecError for a wrong spec before anything is run.
    """
    check(specs, device)
    rows: list[Row] = []
    parts: list[Details] = []
    at_once = runs_at_once(allocators.make_device(device).simulated)
    lock = Lock()

    def begin(workload: str, spec: str, name: str) -> None:
        with lock:
            stage(workload, spec, name)

    for workload, trace in workloads.items():
        found = known.get(workload, {})
        chosen = [*specs, *(spec for spec in found if spec not in specs)]
        described = features(trace)
        times: dict[str, Times] = {}
        if effort.passes:
            timing = partial(begin, workload, name="time")
            times = times_of(trace, chosen, beside(device, trace), effort.passes, timing)
        trace_blocks = TraceBlocks.of(workload, trace, len(chosen)) if detailed else None
        if trace_blocks:
            parts.append(trace_blocks.details())
        calls = [
            partial(
                run,
                trace,
                spec,
                device,
                effort,
                workload=workload,
                described=described,
                stage=partial(begin, workload, spec),
                trace_blocks=trace_blocks,
                times=times.get(spec),
                known=found.get(spec),
            )
            for spec in chosen
        ]
        with results(calls, at_once=at_once) as finished:
            for row, details in finished:
                rows.append(row)
                parts.append(details)
                done(row)
    return rows, join(parts)


def _details(trace_blocks: TraceBlocks, allocator: Allocator) -> Tables:
    result = allocators.replay(trace_blocks.trace, allocator, samples=INTERVALS, detail=True)
    keeps = allocator.info.keeps_free_blocks
    return of_replay(trace_blocks, result, allocator.device.capacity, keeps)


def _identity(trace: AnyTrace, allocator: str, device: str, workload: str) -> Row:
    """What is known before anything is run; the device is not opened."""
    actual = in_force(allocator, trace)
    return {
        "coverage": trace.coverage.sentence or None,
        "workload": workload or trace.name,
        "allocator": allocator,
        "device": device,
        "device_kind": "cuda" if name_of(device) == "cuda" else "simulated",
        "settings": actual if actual != allocator else None,
        "events": len(trace),
        "blocks": trace.allocs,
        "candidate": allocators.info(innermost(allocator)).candidate,
    }


def _origin() -> Row:
    return {
        "allocbench_version": __version__,
        "python": platform.python_version(),
        "cpu": _cpu(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


@cache
def _cpu() -> str:
    """The processor's name as reported by Linux, or its architecture."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(\S.*)$", text, re.MULTILINE)
    return match.group(1).strip() if match else platform.processor() or platform.machine()


Result = TypeVar("Result")


class StoppedError(Exception):
    """The result of a call is no longer wanted."""


def runs_at_once(simulated: bool) -> int:
    """How many runs may go on at once: one on a GPU, which serves one allocator at a time."""
    return min(len(os.sched_getaffinity(0)), _MOST_AT_ONCE) if simulated else 1


@contextmanager
def results(calls: Sequence[Callable[..., Result]], *, at_once: int) -> Iterator[Iterator[Result]]:
    """The results of calls, in order; at most `at_once` of them run at the same time.

    Each call gets a function as `proceed` and calls it now and then: it raises StoppedError after
    the result is no longer wanted. If at_once is 1, each call runs in this thread when its result
    is asked for. The exception of a call is raised in place of its result. At its end, the block
    waits for the calls that run; those that have not begun are dropped.
    """
    threads = min(at_once, len(calls))
    if threads <= 1:
        yield (call(proceed=lambda: None) for call in calls)
        return
    ended = Event()

    def proceed() -> None:
        if ended.is_set():
            raise StoppedError

    with ThreadPoolExecutor(threads) as pool:
        try:
            futures = [pool.submit(call, proceed=proceed) for call in calls]
            yield (future.result() for future in futures)
        finally:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
