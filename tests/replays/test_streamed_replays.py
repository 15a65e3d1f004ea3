# SPDX-License-Identifier: Apache-2.0
"""A trace that is replayed part by part has the results of the trace as a whole."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocbench import allocators
from allocbench.allocators import Change
from allocbench.replays import experiment
from allocbench.replays.experiment import Effort
from allocbench.reports.rows.results import SCHEMA
from allocbench.workloads import (
    ALLOC,
    FREE,
    Trace,
    catalog,
    files,
    first_events,
    parquet,
    read,
    write,
)
from allocbench.workloads.distribution import Distribution
from tests.commands import QUICK, error, folder, run
from tests.synthetic_recordings import SYNTHETIC
from tests.traces import GIB, MIB, Event, held_at_start, in_parts, make, valid_traces

__all__ = ["folder"]  # a fixture, used by importing it

STRATEGIES = [info.name for info in allocators.strategies()]
OTHERS = ["caching:expandable_segments=true", "limit:bytes=64MiB,of=bfc", "check:of=tlsf"]
COUNTS = Effort(passes=0, capacity=False)
TIMES = {name for name, column in SCHEMA.items() if column.group in ("latency", "time", "origin")}


@cache
def workload(name: str) -> Trace:
    if name.endswith(".gz"):
        return read(SYNTHETIC / name)
    return first_events(catalog.load(name), 9000)


def row_of(trace: Any, allocator: str, device: str, effort: Effort = COUNTS) -> dict[str, Any]:
    """A row without what differs from run to run."""
    row, _ = experiment.run(trace, allocator, device, effort)
    return {name: value for name, value in row.items() if name not in TIMES}


@pytest.mark.parametrize("name", ["gpt2-train", "random:allocs=2000", "llm-paged"])
@pytest.mark.parametrize("allocator", [*STRATEGIES, *OTHERS])
def test_every_count_is_that_of_the_whole_trace(allocator: str, name: str) -> None:
    trace = workload(name)
    for device in ("sim:80GiB", "sim:1GiB"):
        try:
            expected = row_of(trace, allocator, device)
        except allocators.SpecError:
            pytest.skip(f"{allocator} cannot be made on {device}")
        for events in (37, 4000):
            assert row_of(in_parts(trace, events), allocator, device) == expected


@pytest.mark.parametrize("allocator", ["caching", "bfc", "planned"])
@pytest.mark.parametrize("name", ["warm", "pools", "memory_pool", "graphs", "streams"])
def test_recordings_with_segments_pools_and_streams(allocator: str, name: str) -> None:
    trace = workload(f"{name}.pickle.gz")
    expected = row_of(trace, allocator, "sim:8GiB")
    for events in (1, 5, 64):
        assert row_of(in_parts(trace, events), allocator, "sim:8GiB") == expected


@pytest.mark.parametrize("allocator", ["caching", "tlsf"])
def test_capacities_and_passes(allocator: str) -> None:
    trace = first_events(workload("gpt2-train"), 1500)
    effort = Effort(passes=2)
    expected = row_of(trace, allocator, "sim:8GiB", effort)
    assert expected["min_capacity"] > 0
    assert row_of(in_parts(trace, 400), allocator, "sim:8GiB", effort) == expected


def of_small_blocks(trace: Trace) -> Trace:
    """The same events with sizes of at most 64 MiB."""
    sizes = np.where(trace.op == ALLOC, trace.size % np.uint64(64 * MIB) + np.uint64(1), 0)
    return replace(trace, size=sizes.astype(np.uint64))


def outcome(trace: Any, allocator: str, **options: Any) -> list[Any]:
    """Everything that a replay says, and how it leaves the allocator."""
    made = allocators.make(allocator, allocators.SimulatedDevice("1GiB"))
    result = allocators.replay(trace, made, placements=True, samples=7, detail=True, **options)
    moments = [(f, getattr(result.peak, f)) for f in ("event", "requested", "reserved")]
    columns = [result.timeline, result.placements, *(result.detail or {}).values()]
    kept = made.stats().allocated
    return [
        moments,
        result.max_load,
        result.counters,
        result.internal_fragmentation_mean,
        result.external_fragmentation_mean,
        [{name: column.tolist() for name, column in table.items()} for table in columns],
        (kept, made.stats().reserved, made.device.stats().calls),
        [(s.address, s.size, [(b.address, b.size) for b in s.blocks]) for s in made.snapshot()],
    ]


@settings(max_examples=100)
@given(
    valid_traces(),
    st.integers(1, 70),
    st.sampled_from(["caching", "bfc", "buddy", "arena"]),
    st.booleans(),
)
def test_parts_may_begin_anywhere(trace: Trace, events: int, allocator: str, keep: bool) -> None:
    small = of_small_blocks(trace)
    changes = [Change(len(small) // 2, empty_cache=True), Change(len(small) - 1, empty_cache=True)]
    expected = outcome(small, allocator, keep=keep, changes=changes)
    assert outcome(in_parts(small, events), allocator, keep=keep, changes=changes) == expected


@given(valid_traces(plain=True), st.integers(1, 70), st.integers(1, 400))
def test_a_trial_stops_at_the_same_request(trace: Trace, events: int, mebibytes: int) -> None:
    small = of_small_blocks(trace)
    found = []
    for given_trace in (small, in_parts(small, events)):
        made = allocators.make("naive", allocators.SimulatedDevice(mebibytes * MIB))
        failing = allocators.failing_event(given_trace, made)
        stats = made.stats()
        found.append((failing, stats.allocations, stats.failures, stats.peak_allocated))
        assert stats.allocated == 0
    assert found[0] == found[1]


@given(valid_traces(), st.integers(1, 70))
def test_the_same_calls_are_made_until_every_block_is_freed(trace: Trace, events: int) -> None:
    """Blocks that are live at the end are freed on the streams of their allocs, latest first."""
    small = of_small_blocks(trace)
    calls = []
    for given_trace in (small, in_parts(small, events)):
        made = allocators.make("record:of=naive", allocators.SimulatedDevice("1GiB"))
        allocators.time_pass(given_trace, made)
        found = allocators.recording(made)
        calls.append([c.tolist() for c in (found.op, found.block, found.size, found.stream)])
    assert calls[0] == calls[1]


def test_an_error_in_a_later_part_frees_every_block() -> None:
    trace = make([(ALLOC, 0, MIB), (ALLOC, 1, MIB), (FREE, 0, 0), (ALLOC, 2, MIB)])
    streamed = in_parts(trace, 1)
    parts = list(streamed.parts())

    class Broken:
        step_label, pools, layout = -1, (), None

        def __len__(self) -> int:
            return len(trace)

        def parts(self) -> Any:
            yield from parts[:3]
            yield parts[2]

    made = allocators.make("caching", allocators.SimulatedDevice("1GiB"))
    with pytest.raises(ValueError, match="event 3: block 0 is not alive"):
        allocators.replay(Broken(), made)
    assert (made.stats().allocated, made.stats().allocations) == (0, 2)


@pytest.mark.parametrize("events", [3, 5])
def test_parts_with_another_number_of_events(events: int) -> None:
    trace = make([(ALLOC, 0, MIB), (FREE, 0, 0), (ALLOC, 0, MIB), (FREE, 0, 0)])

    class Other:
        step_label, pools, layout = -1, (), None

        def __len__(self) -> int:
            return events

        def parts(self) -> Any:
            return in_parts(trace, 2).parts()

    made = allocators.make("caching", allocators.SimulatedDevice("1GiB"))
    with pytest.raises(ValueError, match=f"its parts do not have {events} events in all"):
        allocators.completes(Other(), made)
    assert made.stats().allocated == 0


def test_a_layout_is_taken_over_from_the_first_part() -> None:
    held, layout = held_at_start()
    for rest in ([], [(FREE, 0, 0)], [(ALLOC, 2, GIB)], [(FREE, 1, 0), (ALLOC, 1, 5)]):
        trace = make([*held, *rest], layout=layout)
        assert outcome(in_parts(trace, 1), "caching") == outcome(trace, "caching")


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=50), st.integers(1, 20))
def test_percentiles_are_those_of_all_calls(values: list[float], events: int) -> None:
    seconds = np.array(values, np.float32)
    latencies = Distribution()
    for first in range(0, len(seconds), events):
        latencies.add(seconds[first : first + events])
    assert len(latencies) == len(seconds)
    assert latencies.max() == seconds.max()
    assert latencies.mean() == pytest.approx(float(seconds.mean(dtype=np.float64)))
    for percent in (0, 50, 90, 99.9, 100):
        expected = float(np.percentile(seconds.astype(np.float64), percent))
        assert latencies.percentile(percent) == pytest.approx(expected)


SPARSE: list[Event] = [
    (ALLOC, 4, 4096),
    (ALLOC, 1, 100),
    (FREE, 4, 0),
    (ALLOC, 2, 3 << 20),
    (ALLOC, 0, 1),
    (ALLOC, 4, 1),
    (FREE, 1, 0),
]


def test_the_command_reads_a_large_file_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    write(make(SPARSE), "large.parquet")
    line = f"replay large.parquet --allocator bfc {QUICK} --json %s.json --placements %s.csv"
    whole = run(line % ("whole", "whole"))
    assert (whole.exit_code, whole.stderr) == (0, "")
    monkeypatch.setattr(files, "MOST_IN_MEMORY", 2)
    monkeypatch.setattr(parquet, "PART_EVENTS", 2)
    streamed = run(line % ("streamed", "streamed"))
    assert streamed.exit_code == 0
    assert streamed.stderr.startswith("note: large: 7 events are not kept in memory; ")
    assert streamed.stdout == whole.stdout
    assert Path("streamed.csv").read_text() == Path("whole.csv").read_text()
    found = [json.loads(Path(f"{name}.json").read_text()) for name in ("streamed", "whole")]
    for rows in found:
        for row in rows:
            row.pop("date")
    assert found[0] == found[1]


def test_an_export_reads_all_of_a_large_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_IN_MEMORY", 2)
    result = run(f"replay good.parquet --allocator bfc {QUICK} --snapshot s.pickle")
    assert (result.exit_code, result.stderr) == (0, "")
    assert Path("s.pickle").exists()


@pytest.mark.parametrize("name", ["dead.csv", "broken.csv", "cut.parquet"])
def test_a_large_malformed_file_has_the_same_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"replay {name} --allocator bfc"
    expected = error(line)
    monkeypatch.setattr(files, "MOST_IN_MEMORY", 0)
    assert error(line) == expected


_PROGRAM = """
import sys
from allocbench.replays import experiment
from allocbench.workloads import read_large

def peak():
    status = open("/proc/self/status").read()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])

peaks = []
for path in sys.argv[1:]:
    trace = read_large(path, most_in_memory=0)
    experiment.run(trace, "caching", "sim:80GiB", experiment.Effort(passes=1, capacity=False))
    peaks.append(peak())
print(*peaks)
"""


def churn(events: int, path: Path) -> None:
    """Steps of 100 blocks, each of which has an id of its own, in one row group."""
    n = np.arange(events)
    within = n % 200
    is_alloc = within < 100
    block = n // 200 * 100 + np.where(is_alloc, within, within - 100)
    trace = Trace(
        op=np.where(is_alloc, ALLOC, FREE).astype(np.uint8),
        block=block.astype(np.uint32),
        size=np.where(is_alloc, 4096 * (1 + within), 0).astype(np.uint64),
        stream=np.zeros(events, np.uint16),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_ROW_GROUP_EVENTS", events)
        write(trace, path)
    assert pq.ParquetFile(path).num_row_groups == 1


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    small, large = 1_000_000, 8_000_000
    for events in (small, large):
        churn(events, tmp_path / f"{events}.parquet")
    paths = [str(tmp_path / f"{events}.parquet") for events in (small, large)]
    command = [sys.executable, "-c", _PROGRAM, *paths]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    before, after = map(int, done.stdout.split())
    assert after - before < 8 * (large - small), "an event in memory takes 15 bytes"
