# SPDX-License-Identifier: Apache-2.0
"""What recordings show of their programs: the right value for each kind of gap."""

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
from allocbench.workloads.coverage import WHOLE, Coverage
from allocbench.workloads.formats import FORMATS, RecordingHints
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
                "later", "open", events=False, held=10 * SEGMENT, live=30_000, reserved=10 * SEGMENT
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
        {"stage": "START", "name": "zero_grad", "device": 0, "time_us": 1}
    ]
    trace = stored(data)
    event = int((trace.size == 64 * MIB).argmax())
    assert trace.label is not None
    assert trace.labels[trace.label[event]] == ("other.py:7 forward" if frames else "")


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


def test_every_recorder_of_programs_has_its_own_hints() -> None:
    """A log of requests is simulated, and the three other formats do not say who wrote them."""
    general = [one.name for one in FORMATS if one.hints == RecordingHints()]
    assert general == ["Parquet", "CSV op,id,size", "CSV id,lower,upper,size", "request log"]
