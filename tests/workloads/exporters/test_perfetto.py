# SPDX-License-Identifier: Apache-2.0
"""Perfetto's counters are the bytes after each event; steps and phases are slices."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocbench import allocators
from allocbench.replays.replayed import replayed
from allocbench.workloads import ALLOC, MARK, Trace, read
from allocbench.workloads.exporters.perfetto import write_perfetto
from tests.commands import EVENTS, QUICK, folder, output
from tests.traces import make
from tests.workloads.exporters.replayable import SPECS, replayable

__all__ = ["folder"]  # the fixture, by its import


def exported(trace: Trace, spec: str, device: str = "sim:80GiB") -> dict[str, Any]:
    sink = io.BytesIO()
    write_perfetto(replayed(trace, spec, device), sink)
    found: dict[str, Any] = json.loads(sink.getvalue())
    return found


@given(trace=replayable(), spec=st.sampled_from(SPECS))
@settings(max_examples=60)
def test_counters_are_what_the_replay_measures(trace: Trace, spec: str) -> None:
    events = exported(trace, spec)["traceEvents"]
    made = allocators.make(spec, allocators.SimulatedDevice("80GiB"))
    timeline = allocators.replay(trace, made, samples=len(trace)).timeline
    for name in ("requested", "allocated", "reserved"):
        shown = {e["ts"]: e["args"]["bytes"] for e in events if e["name"] == f"{name} bytes"}
        now, found = 0, []
        for event in range(len(trace)):
            now = shown.get(float(event), now)
            found.append(now)
        assert [found[event] for event in timeline["event"]] == timeline[name].tolist()


@pytest.mark.parametrize("with_times", [False, True])
def test_times_are_computed_once(with_times: bool) -> None:
    """For each of a million events, they would take half an hour."""
    events = [(ALLOC, n, 8) for n in range(9)]
    times = np.arange(9, dtype=np.uint64) if with_times else None
    found = replayed(make(events, time_ns=times), "naive", "sim:80GiB")
    assert found.time_us is found.time_us


def test_steps_and_phases_are_slices_over_the_trace() -> None:
    events = [(MARK, 0, 0), (ALLOC, 0, 8), (MARK, 1, 0), (MARK, 2, 0), (ALLOC, 1, 8), (MARK, 1, 0)]
    times = np.array([1000, 2000, 3000, 4000, 5500, 9000], np.uint64)
    trace = make(events, labels=("init", "step", "forward"), time_ns=times)
    found = exported(trace, "naive")
    slices = [
        (e["name"], e["tid"], e["ts"], e["dur"]) for e in found["traceEvents"] if e["ph"] == "X"
    ]
    assert slices == [
        ("init", 2, 1.0, 2.0),
        ("step", 1, 3.0, 6.0),
        ("forward", 2, 4.0, 5.0),
        ("step", 1, 9.0, 1.0),
    ]
    assert found["otherData"]["clock"] == "microseconds"
    names = [e["args"]["name"] for e in found["traceEvents"] if e["ph"] == "M"]
    assert names == ["trace through naive on sim:80GiB", "steps", "phases", "failed requests"]


def test_the_command_writes_it() -> None:
    output(f"replay good.csv --allocator bfc {QUICK} --perfetto memory.json")
    written = json.loads(Path("memory.json").read_text())
    assert written == exported(read("good.csv"), "bfc")
    assert len(written["traceEvents"]) > len(EVENTS)
    shown = output(f"replay good.csv --allocator bfc {QUICK} --perfetto -")
    assert json.loads(shown)["otherData"] == {
        **{"workload": "good", "allocator": "bfc", "device": "sim:80GiB", "clock": "events"}
    }
