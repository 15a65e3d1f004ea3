# SPDX-License-Identifier: Apache-2.0
"""The columns of the result row: the only place that names and defines a metric."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from allocbench.base import units
from allocbench.base.text import definitions

_COUNTED = """
[identity]
workload: text
    The trace that was replayed.
allocator: text
    The allocator and its options.
device: text
    The device that provides the segments.
device_kind: text
    simulated, cuda or null (a null GPU).
events: count
    Events of the trace.
blocks: count
    Allocs of the trace.
candidate: text
    Whether the allocator can be recommended. The others are floors, shown for comparison.
[workload]
steps: count
    Marks of the trace that begin a step.
streams: count
    Distinct streams of the allocs and frees.
live_blocks_peak: count, called "live blocks, peak"
    Largest number of live blocks at any time.
live_blocks_mean: count, called "live blocks, mean"
    Mean number of live blocks over the events, rounded.
largest_request: bytes
    Largest requested size.
distinct_sizes: count
    Number of distinct requested sizes.
size_entropy: bits
    -sum of p(s) log2 p(s) over the distinct sizes s, p(s) is the share of allocs of size s; 0 if
    all sizes are equal.
lifetime_p50: count
    Smallest lifetime, in events, that 50% of the blocks do not exceed.
lifetime_p90: count
    Smallest lifetime, in events, that 90% of the blocks do not exceed.
lifetime_p99: count
    Smallest lifetime, in events, that 99% of the blocks do not exceed.
repeat_rate: share
    sum of |S_k intersected with S_(k-1)| / sum of max(|S_k|, |S_(k-1)|) over the steps k from the
    second on, where S_k is the multiset of sizes requested in step k; 100% if every step requests
    the same sizes as the one before.
load_mean: share, called "load, mean"
    L(t) / max_load, mean over the events.
peak_width: share
    Share of the events with L(t) >= 0.9 max_load; small for a sharp peak.
peak_position: share
    First event at which L(t) is max_load, as a share of the events.
[memory]
capacity: bytes
    Bytes of the device that a program can use, without the CUDA context.
min_capacity: bytes, lower is better
    Bytes of the smallest device on which the trace completes with no failed request, found by
    bisection to 2 MiB. The CUDA context is not included.
card: text, called "smallest card"
    The smallest common card on which the trace completes. Its capacity is what its driver reports,
    minus the CUDA context.
context: bytes, called "CUDA context"
    Bytes of the card that a CUDA context uses: an estimate, used to find the card.
peak_reserved: bytes, lower is better
    max over time of the bytes held from the device.
overhead: ratio, lower is better
    peak_reserved / max_load (at least 1): the distance from the bound.
wasted: bytes, lower is better, called "wasted at peak"
    peak_reserved - max_load: bytes held at the peak that the program never needed at the same time,
    lost to rounding and to free memory; n/a if requests failed.
stranded: bytes, lower is better
    reserved - allocated, at the instant reserved first peaks: held from the device but not
    allocated.
peak_allocated: bytes, lower is better
    max over time of the bytes set aside after rounding.
peak_requested: bytes
    max over time of the requested bytes.
max_load: bytes
    max over time of the live requested bytes of the trace: the lower bound for any allocator on it.
[fragmentation]
fragmentation_ratio: share, lower is better, called "fragm. ratio"
    1 - peak_allocated / peak_reserved, as in GMLake and STAlloc: the share of the peak reserved
    bytes that was never allocated.
internal_fragmentation: share, lower is better, called "internal fragm."
    (allocated - requested) / allocated, at the instant reserved first peaks.
external_fragmentation: share, called "external fragm."
    (free - largest free block) / free with free = reserved - allocated, at the instant reserved
    first peaks; 0 if nothing is free, n/a if the allocator keeps no free blocks. It shows whether a
    large request would fit; it means little if little is free.
internal_fragmentation_mean: share, lower is better, called "internal fragm., mean"
    (allocated - requested) / allocated, mean over the allocs and frees; 0 if nothing is allocated.
external_fragmentation_mean: share, called "external fragm., mean"
    (free - largest free block) / free, mean over the allocs and frees whose event number is a
    multiple of k = max(1, events // 1000), and the last event; 0 if nothing is free.
utilization: share, higher is better
    peak_allocated / peak_reserved.
utilization_at_peak: share, higher is better
    allocated / reserved, at the instant reserved first peaks.
[memory]
stable_address_share: share, higher is better, called "stable addresses"
    Share of the allocs in steps 3 to K that are at the address of their counterpart in the step
    before. The counterpart of the j-th alloc of a size in step k is the j-th alloc of that size in
    step k-1. An alloc that has no counterpart, or that failed, counts as not stable. n/a if these
    steps have no alloc. A graph must be captured again when the address of an input changes.
stable_address_bytes_share: share, higher is better, called "stable addresses, bytes"
    The same share weighted by the requested bytes of each alloc.
"""
_STATISTIC = """
{call}_{0}_seconds: seconds, lower is better, called "{call} {1}"
    Host seconds to {verb} one block: {2} over the {call}_count calls of a pass; median of the
    passes. The cost of the timer is subtracted, and device time is not included.
{call}_{0}_seconds_low: seconds, called "{call} {1}, low"
    Minimum of {call}_{0}_seconds over the passes.
{call}_{0}_seconds_high: seconds, called "{call} {1}, high"
    Maximum of {call}_{0}_seconds over the passes.
"""
_STATISTICS = (
    ("mean", "mean", "mean"),
    ("p50", "p50", "median"),
    ("p90", "p90", "90th percentile"),
    ("p99", "p99", "99th percentile"),
    ("p999", "p99.9", "99.9th percentile"),
    ("max", "max", "maximum"),
)
"""Of the times of a kind of call: in names, in headings, in words."""
_TIMED = """
{call}_count: count, called "{call}s timed"
    Calls that {verb} a block, timed in each pass.
"""
_TIMER = """
timer_seconds: seconds, called "timer cost"
    Host seconds to read the timer once; subtracted from every timed call.
[time]
"""
_PER_EVENT = """
seconds_per_event_{0}: seconds, lower is better, called "host time per event{1}"
    Host seconds per event of allocbench's own allocator, {2}: minimum of the passes.
seconds_per_event_{0}_median: seconds, lower is better, called "host time per event{1}, median"
    Host seconds per event of allocbench's own allocator, {2}: median of the passes.
seconds_per_event_{0}_max: seconds, lower is better, called "host time per event{1}, max"
    Host seconds per event of allocbench's own allocator, {2}: maximum of the passes.
"""
_OF_THE_DEVICE = """
passes: count
    Number of passes for each time per event.
[device]
device_calls: count, lower is better
    Calls to the device: malloc, free, map, unmap.
device_calls_steady: count, lower is better, called "device calls, steady"
    Calls to the device when one allocator replays the trace for the third time. Each block is freed
    at the end of each pass. So these are the calls that remain when all steps have occurred before.
device_seconds: seconds, lower is better, called "device time"
    Total time of all device calls: measured on a GPU, estimated by a model on a simulated device;
    never part of host time. Tables show an estimate as its range.
device_seconds_low: seconds, called "device time, low"
    Minimum of device_seconds over the passes; of an estimate, the time with all assumed costs at
    the low ends of their ranges.
device_seconds_high: seconds, called "device time, high"
    Maximum of device_seconds over the passes; of an estimate, the time with all assumed costs at
    the high ends of their ranges.
device_seconds_per_event: seconds, lower is better, called "device time per event"
    device_seconds / events.
device_seconds_source: text, called "device time source"
    Whether device_seconds is an estimate or was measured.
device_assumptions: text, called "assumed costs"
    The costs of device calls that an estimate assumes, as JSON: call, bytes, and the low, estimated
    and high seconds of one call; `calls` says how many calls each counts for (one with a size
    between two of these sizes counts for both in part). device_seconds is the sum of calls times
    seconds. Two estimates are compared with the same costs in both: their order is decided only if
    it is the same with all costs within their ranges.
[failures]
failures: count, lower is better
    Requests that failed.
retries: count, lower is better
    Requests that were repeated after a trim.
unavailable: text, called "n/a because"
    Why there is no result: the allocator cannot work on the device, or the run ended with an error.
settings: text, called "as recorded"
    The allocator with the settings and the version that the trace was recorded with, where the
    allocator has none of its own.
begins_with: text
    What the allocator held when a recording began: its segments, or new ones with its blocks in
    them.
coverage: text
    What the trace lacks of its program; null if it has all of it. Otherwise, the program may need
    more than min_capacity.
[advice]
recommended: text
    The better of the best setting and the best allocator. The same in each row.
best_setting: text
    The best setting of PyTorch's own allocator; null if none fits. The same in each row.
best_allocator: text
    The allocator to use: caching for a setting; null if none fits. The same in each row.
setting_advice: text
    The sentence about the best setting. The same in each row.
allocator_advice: text
    The sentence about the best allocator. The same in each row.
orders_advice: text
    Whether the recommended completes the steps in another order. The same in each row.
[plan]
planned_requests: count
    Requests served by the plan.
fallback_requests: count
    Requests outside the plan, served by best fit.
planned_bytes: bytes
    Bytes served by the plan.
fallback_bytes: bytes
    Bytes outside the plan, served by best fit.
[origin]
allocbench_version: text, called "allocbench"
    Version that wrote the row.
python: text, called "Python"
    Version of Python.
cpu: text, called "CPU"
    Processor on which host time was measured.
date: text
    Date and time of the run.
"""
_COLUMN = re.compile(r'(\w+): (\w+)(?:, (lower|higher) is better)?(?:, called "(.*)")?')


@dataclass(frozen=True)
class Column:
    """One column of the result row.

    unit: bytes, seconds, ratio, count, bits, or "" for text.
    `lower_is_better` is None if neither direction is better. A `fraction` is a ratio within 0..1,
    shown in percent. `median` names the column that holds the median of the passes whose minimum
    this column holds. `low` and `high` name the columns that hold the interval of a measured time:
    the minimum and maximum of its passes.
    """

    name: str
    group: str
    unit: str
    heading: str
    definition: str
    lower_is_better: bool | None = None
    fraction: bool = False
    median: str = ""
    low: str = ""
    high: str = ""

    def text(self, number: float | int | None) -> str:
        """The number in the column's unit, "n/a" for None."""
        if number is None:
            return units.NOT_AVAILABLE
        if self.unit == "bytes":
            return units.size(number)
        if self.unit == "seconds":
            return units.seconds(number)
        if self.unit == "ratio":
            return units.percent(number) if self.fraction else units.times(number)
        if self.unit == "bits":
            return f"{number:.2f} bits"
        return f"{number:,}"

    def exact(self, number: float | int | None) -> str:
        """The number unrounded, with its unit."""
        if number is None:
            return units.NOT_AVAILABLE
        digits = f"{number:,}" if isinstance(number, int) else repr(number)
        return f"{digits} {self.unit}" if self.unit in ("bytes", "seconds", "bits") else digits


def _listed(text: str) -> Iterator[Column]:
    """The columns of a text: after the "[group]", a line for each, with its definition below.

    The heading is the name in words unless the column is called something else. The median and the
    interval of a column are in those that have its name and an ending.
    """
    group, names = "", re.findall(r"^(\w+):", text, re.MULTILINE)
    for head, definition in definitions(text):
        if head.startswith("["):
            group = head.strip("[]")
            continue
        found = _COLUMN.fullmatch(head)
        assert found is not None, head
        name, unit, better, heading = found.groups()
        ends = {end: f"{name}_{end}" for end in ("median", "low", "max", "high")}
        known = {end: column for end, column in ends.items() if column in names}
        yield Column(
            name,
            group,
            {"text": "", "share": "ratio"}.get(unit, unit),
            heading or name.replace("_", " "),
            definition,
            None if better is None else better == "lower",
            fraction=unit == "share",
            median=known.get("median", ""),
            low=known.get("low", ""),
            high=known.get("high", known.get("max", "")),
        )


def _calls(call: str, verb: str) -> str:
    """The columns of one kind of call: statistics of its times, and the number of timed calls."""
    statistics = [_STATISTIC.format(*one, call=call, verb=verb) for one in _STATISTICS]
    return "".join([*statistics, _TIMED.format(call=call, verb=verb)])


COLUMNS = tuple(
    _listed(
        _COUNTED
        + "[latency]"
        + _calls("alloc", "allocate")
        + _calls("free", "free")
        + _TIMER
        + _PER_EVENT.format("steady", "", "when an allocator replays the trace for the third time")
        + _PER_EVENT.format("cold", ", cold", "when a new allocator replays the trace")
        + _OF_THE_DEVICE
    )
)
