# SPDX-License-Identifier: Apache-2.0
"""What recordings show of their programs: the right value for each kind of gap."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocbench.workloads import (
    ALLOC,
    FREE,
    PrivatePool,
    Trace,
    TraceError,
    catalog,
    read,
    read_large,
    write,
)
from allocbench.workloads.coverage import UNSEEN, WHOLE, Coverage, from_json, to_json
from allocbench.workloads.formats import FORMATS, RecordingHints, how_to_record
from tests.commands import folder, run
from tests.traces import make
from tests.workloads.importers.snapshots import BASE, MIB, Recorder, snapshot

__all__ = ["folder"]  # the fixture, by its import
CASES = Path(__file__).parents[3] / "shared/data/cases"
GIB = 1 << 30
SEGMENT = 2 * MIB  # of each block of a Recorder


def stored(data: Any) -> Trace:
    path = Path("snapshot.pickle")
    path.write_bytes(pickle.dumps(data))
    return read(path)


def ten_blocks() -> Recorder:
    """Ten blocks of 1,000, 2,000, ... bytes; every second one is freed."""
    recorder = Recorder()
    blocks = [recorder.alloc(1000 * n) for n in range(1, 11)]
    for address in blocks[::2]:
        recorder.free(address)
    return recorder


def without(action: str) -> dict[str, Any]:
    data = snapshot(ten_blocks())
    kept = [event for event in data["device_traces"][0] if event["action"] != action]
    return data | {"device_traces": [kept]}


def failed(*, goes_on: bool) -> dict[str, Any]:
    recorder = Recorder()
    first = recorder.alloc(1000)
    recorder.alloc(MIB)
    recorder.oom(64 * MIB)
    recorder.free(first)
    if goes_on:
        recorder.alloc(3000)
    data = snapshot(recorder)
    for segment in data["segments"]:  # as the recorder obtained them
        segment["total_size"] = SEGMENT
        segment["blocks"][0]["size"] = SEGMENT
    return data


def held_first(keep: int) -> dict[str, Any]:
    data = snapshot(ten_blocks(), keep=keep)
    for segment in data["segments"]:
        segment["total_size"] = SEGMENT
    return data


@pytest.mark.parametrize(
    ("data", "right"),
    [
        (lambda: held_first(30), Coverage(ends="open", reserved=10 * SEGMENT)),
        # The last of the ten blocks is allocated within the last 12 events, in its own segment.
        (
            lambda: held_first(12),
            Coverage("later", "open", held=9 * SEGMENT, live=45_000, reserved=10 * SEGMENT),
        ),
        (
            lambda: held_first(3),
            Coverage("later", "open", held=10 * SEGMENT, live=46_000, reserved=10 * SEGMENT),
        ),
        (
            lambda: held_first(0),
            Coverage(
                "later",
                "open",
                events=False,
                held=10 * SEGMENT,
                live=30_000,
                reserved=10 * SEGMENT,
            ),
        ),
        (
            lambda: failed(goes_on=False),
            Coverage(ends="failure", reserved=2 * SEGMENT, request=64 * MIB, device_free=7),
        ),
        (lambda: failed(goes_on=True), Coverage(ends="open", reserved=2 * SEGMENT)),
    ],
    ids=["whole", "ring", "later", "no events", "failure", "caught failure"],
)
def test_snapshots(data: Callable[[], dict[str, Any]], right: Coverage) -> None:
    found = stored(data()).coverage
    assert replace(found, contradiction="") == right
    assert not found.whole


@pytest.mark.parametrize(
    ("part", "whole", "bound"),
    [
        ({}, True, False),
        ({"frees_missing": 1}, False, False),  # less would be in use, not more
        ({"begins": "later"}, False, True),
        ({"ends": "open"}, False, True),
        ({"ends": "stopped"}, False, True),
        ({"ends": "failure", "request": GIB}, False, True),
        ({"events": False}, False, True),
        ({"allocs_missing": 1}, False, True),
        ({"contradiction": "of the segments"}, False, True),
        ({"shared": GIB, "shared_load": GIB}, False, True),
        ({"masks": "train.py:9", "masks_load": GIB}, False, True),
        ({"workspace": GIB}, False, True),
    ],
)
def test_what_makes_the_need_a_bound(part: dict[str, Any], whole: bool, bound: bool) -> None:
    coverage = Coverage(**part)
    assert (coverage.whole, coverage.bound) == (whole, bound)
    assert bool(coverage.sentence) is not whole
    assert "may need more" in coverage.sentence or not bound or not coverage.events


def test_the_card_is_what_was_reserved_and_free_when_the_request_failed() -> None:
    assert stored(failed(goes_on=False)).coverage.card == 2 * SEGMENT + 7
    assert stored(failed(goes_on=True)).coverage.card is None


def test_memory_returned_after_the_failure_belongs_to_the_card() -> None:
    data = failed(goes_on=False)
    gone = data["segments"].pop(0)
    data["device_traces"][0].append(
        {"action": "segment_free", "addr": gone["address"], "size": SEGMENT, "stream": 0}
    )
    assert stored(data).coverage.card == 2 * SEGMENT + 7


def test_frees_whose_completion_was_skipped_are_known_by_their_requests() -> None:
    skipped, complete = stored(without("free_completed")), stored(snapshot(ten_blocks()))
    assert skipped.coverage.frees_missing == 5
    assert complete.coverage.frees_missing == 0
    assert skipped.load.tolist() == complete.load.tolist()


def test_allocs_that_were_skipped_are_missing() -> None:
    recorder = Recorder()
    for _ in range(3):
        recorder.free(recorder.alloc(1000))
    data = snapshot(recorder)
    events = [event for event in data["device_traces"][0] if event["action"] != "alloc"]
    coverage = stored(data | {"device_traces": [events]}).coverage
    assert coverage.allocs_missing == 2
    assert coverage.begins == "later"


def test_final_segments_that_contradict_the_events_are_named() -> None:
    data = held_first(30)
    del data["segments"][3]
    assert f"{BASE + 3 * 1024 * MIB:#x}" in stored(data).coverage.contradiction


@pytest.mark.parametrize("frames", [True, False])
def test_the_label_of_the_request_that_failed_is_that_of_its_frames(frames: bool) -> None:
    data = failed(goes_on=False)
    (oom,) = [event for event in data["device_traces"][0] if event["action"] == "oom"]
    if frames:
        oom["frames"] = [{"filename": "/home/me/other.py", "line": 7, "name": "forward"}]
    data["external_annotations"] = [
        {"stage": "START", "name": "zero_grad", "device": 0, "time_us": 1},
    ]
    trace = stored(data)
    event = int((trace.size == 64 * MIB).argmax())
    assert trace.label is not None
    assert trace.labels[trace.label[event]] == ("other.py:7 forward" if frames else "")


def profiled(*rows: tuple[int, int, int, int]) -> Trace:
    """A profiler trace of events: address, bytes, Total Allocated, Total Reserved."""
    events = [
        {
            "ph": "i",
            "name": "[memory]",
            "pid": 1,
            "tid": 1,
            "ts": time,
            "args": {
                "Device Type": 1,
                "Device Id": 0,
                "Addr": address,
                "Bytes": size,
                "Total Allocated": allocated,
                "Total Reserved": reserved,
            },
        }
        for time, (address, size, allocated, reserved) in enumerate(rows)
    ]
    path = Path("profile.json")
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return read(path)


def test_a_profile_that_starts_hot_has_the_bytes_held_before() -> None:
    trace = profiled(
        (1 << 40, GIB, 21 * GIB, 25 * GIB),
        (1 << 41, 2 * GIB, 23 * GIB, 25 * GIB),
        (1 << 41, -2 * GIB, 21 * GIB, 25 * GIB),
        (1 << 40, -GIB, 20 * GIB, 25 * GIB),
    )
    assert trace.coverage == Coverage(
        "later", "open", held=25 * GIB, live=20 * GIB, unseen=20 * GIB, reserved=25 * GIB
    )
    assert trace.max_load == 23 * GIB
    assert trace.label is not None
    assert trace.labels[trace.label[0]] == UNSEEN


def test_blocks_of_a_hot_profile_that_are_freed_are_a_part_of_those_held_before() -> None:
    trace = profiled(
        (1 << 40, -2 * GIB, 18 * GIB, 25 * GIB),
        (1 << 41, GIB, 19 * GIB, 25 * GIB),
        (1 << 41, -GIB, 18 * GIB, 25 * GIB),
    )
    assert trace.coverage == Coverage(
        "later", "open", held=25 * GIB, live=20 * GIB, unseen=18 * GIB, reserved=25 * GIB
    )
    assert trace.load.tolist() == [GIB * load for load in (18, 20, 18, 19, 18)]


def test_a_profile_from_the_first_alloc_of_the_process() -> None:
    trace = profiled((1 << 40, 512, 512, SEGMENT), (1 << 40, -512, 0, SEGMENT))
    assert trace.coverage == Coverage(ends="open", reserved=SEGMENT)


def test_a_cache_before_the_first_event_of_a_profile_was_held() -> None:
    trace = profiled((1 << 40, 512, 512, 30 * MIB), (1 << 40, -512, 0, 30 * MIB))
    assert trace.coverage == Coverage("later", "open", held=30 * MIB, reserved=30 * MIB)


def test_a_profile_with_lost_events_reaches_its_largest_total() -> None:
    trace = profiled(
        (1 << 40, 512, 512, SEGMENT),
        (1 << 41, 512, 5 * MIB, 20 * MIB + SEGMENT),  # an alloc between the two is missing
        (1 << 41, -512, 5 * MIB - 512, 20 * MIB + SEGMENT),
    )
    assert trace.coverage.contradiction.endswith("memory event 1")
    assert trace.max_load == 5 * MIB


def test_a_profile_with_lost_frees_reaches_nothing_above_its_largest_total() -> None:
    trace = profiled(
        (1 << 40, GIB, GIB, 7 * GIB),
        (1 << 41, GIB, 6 * GIB, 7 * GIB),  # after an alloc of 4 GiB that is missing
        (1 << 42, GIB, 2 * GIB, 7 * GIB),  # after the frees of it and of the first block
    )
    assert trace.coverage.contradiction
    assert trace.max_load == 6 * GIB


def test_workloads_are_whole_and_logs_may_go_on() -> None:
    assert catalog.load("llm-decode").coverage == WHOLE
    assert read("good.csv").coverage == WHOLE
    log = "Thread,Time,Action,Pointer,Size,Stream\n1,1.0,{},0x7f00,1024,0x0\n"
    Path("begun.csv").write_text(log.format("allocate"))
    Path("later.csv").write_text(log.format("free"))
    assert read("begun.csv").coverage == Coverage(ends="open")
    assert read("later.csv").coverage.begins == "later"


@pytest.mark.parametrize("name", ["kept.parquet", "kept.csv"])
def test_files_have_the_coverage_and_convert_keeps_it(name: str) -> None:
    trace = stored(failed(goes_on=False))
    assert run(f"convert snapshot.pickle -o {name}").exit_code == 0
    assert read(name).coverage == trace.coverage != WHOLE
    assert read_large(name, most_in_memory=0).coverage == trace.coverage
    assert run(f"convert {name} -o again.{name}").exit_code == 0
    assert Path(f"again.{name}").read_bytes() == Path(name).read_bytes()


def test_csv_says_which_part_it_has_in_every_form() -> None:
    some = Coverage("later", "open", contradiction='7 of "segments", 1 event')
    for others in ({}, {"pool": np.zeros(2, np.uint16), "pools": (PrivatePool("0.1"),)}):
        trace = make([(ALLOC, 0, 5), (FREE, 0, 0)], coverage=some, **others)
        write(trace, "part.csv")
        assert read("part.csv").coverage == some
    text = Path("part.csv").read_text()
    Path("spaced.csv").write_text(text.replace("part,", "Part, ").replace("f,0,", "F,0,0"))
    assert read("spaced.csv").coverage == some
    for wrong in ('""later"": 1', '""begins"": ""never""', '""held"": [' + "[" * 9999, "{"):
        Path("wrong.csv").write_text(text.replace('""begins"": ""later""', wrong))
        with pytest.raises(TraceError, match=r"line 2: .* which part of a program this is"):
            read("wrong.csv")


def test_an_import_of_an_earlier_version_is_not_whole() -> None:
    trace = replace(stored(held_first(3)), coverage=WHOLE)
    write(trace, "earlier.parquet")
    assert read("earlier.parquet").coverage == Coverage("later", "open")


@pytest.mark.parametrize(
    "stored",
    [7, {"begins": "early"}, {"held": -1}, {"held": 1.5}, {"events": 0}, {"else": 1}, {"card": 3}],
)
def test_coverage_that_is_not_valid_is_refused(stored: Any) -> None:
    with pytest.raises(TraceError, match="coverage"):
        from_json(stored)


def test_coverage_is_stored_by_what_differs_from_a_whole_program() -> None:
    assert to_json(WHOLE) == {}
    some = Coverage("later", "failure", request=5, device_free=0)
    assert from_json(json.loads(json.dumps(to_json(some)))) == some


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("hot_profile.json", (25 * GIB, 23 * GIB)),
        ("hot_profile_free_first.json", (25 * GIB, 20 * GIB)),
        ("ring_full.pickle", (12 * GIB, 2 * GIB + 64 * MIB)),
        ("no_history.pickle", (20 * GIB, 2 * GIB)),
        ("oom_label_py.pickle", (0, 192 * MIB)),
    ],
)
def test_cases(name: str, right: tuple[int, int]) -> None:
    if not CASES.is_dir():
        pytest.skip(f"{CASES} is not there")
    trace = read(CASES / name)
    assert (trace.coverage.held, trace.max_load) == right


def of_format(name: str, **coverage: Any) -> Trace:
    """A trace with this coverage that was read from a file of a format, or "recorded"."""
    trace = stored(held_first(30))
    kind = "recorded" if name == "recorded" else "imported"
    extra = {"format": name} if kind == "imported" and name else {}
    origin = replace(trace.provenance, kind=kind, extra=extra)
    return replace(trace, provenance=origin, coverage=Coverage(**coverage))


@pytest.mark.parametrize(
    ("name", "begin", "failure"),
    [
        ("PyTorch memory snapshot", "_record_memory_history()", "allocbench check"),
        ("PyTorch profiler trace", "enter the profiler", "larger device"),
        ("RMM log", "LoggingResourceAdaptor", "ManagedMemoryResource"),
        ("Ascend operator memory", "NPU", "larger device"),
        ("recorded", "without --last", "allocbench check"),
        ("", "first request", "larger device"),
    ],
)
def test_hints_are_for_the_program_that_recorded(name: str, begin: str, failure: str) -> None:
    late, open_end = of_format(name, begins="later"), of_format(name, ends="open")
    failing = of_format(name, ends="failure", request=GIB)
    assert begin in how_to_record(late)
    assert begin in how_to_record(of_format(name, begins="later", events=False))
    assert failure in how_to_record(failing)
    assert "end" in how_to_record(open_end)
    assert begin not in how_to_record(open_end)
    gaps = how_to_record(of_format(name, allocs_missing=1))
    assert gaps
    assert gaps == how_to_record(of_format(name, contradiction="of the segments"))
    assert how_to_record(of_format(name, ends="stopped")) == (
        "a larger --steps or --timeout lets the program go on"
    )
    assert how_to_record(of_format(name)) == ""
    if not name.startswith("PyTorch"):
        assert not any("torch." in how_to_record(one) for one in (late, open_end, failing))


def test_every_recorder_of_programs_has_its_own_hints() -> None:
    """A log of requests is simulated, and the three other formats do not say who wrote them."""
    general = [one.name for one in FORMATS if one.hints == RecordingHints()]
    assert general == ["Parquet", "CSV op,id,size", "CSV id,lower,upper,size", "request log"]
