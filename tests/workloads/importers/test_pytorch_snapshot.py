# SPDX-License-Identifier: Apache-2.0
"""Snapshots of every kind become the trace of their requests, or one line says why not."""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allocbench.workloads import ALLOC, FREE, Trace, read
from tests.commands import QUICK, error, folder, output, run
from tests.traces import assert_same, message_of
from tests.workloads.importers.snapshots import (
    CPP_FRAMES,
    FRAMES,
    MIB,
    WRITERS,
    Recorder,
    pickled,
    snapshot,
)
from tests.workloads.peak_memory import events_and_growth

__all__ = ["folder"]  # the fixture, by its import

Named = Callable[[Any], Path]


@pytest.fixture
def named(tmp_path: Path) -> Named:
    """A file, whose name says nothing, of a snapshot or of bytes."""

    def one(content: Any) -> Path:
        path = tmp_path / "memory.dat"
        path.write_bytes(content if isinstance(content, bytes) else pickled(content))
        return path

    return one


def rows(trace: Trace) -> list[tuple[int, int, int, int]]:
    columns = (trace.op, trace.block, trace.size, trace.stream)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def labels(trace: Trace) -> list[str]:
    assert trace.label is not None
    return [trace.labels[n] for n in trace.label]


def played(steps: list[tuple[int, int, bool]]) -> Recorder:
    """Draws of (size, which, completed): an alloc where the size is not 0, else a free."""
    recorder = Recorder()
    for size, which, completed in steps:
        if size:
            recorder.alloc(size, stream=(0, 0x55AA00, 0x55BB00)[which % 3])
        elif recorder.live:
            recorder.free(sorted(recorder.live)[which % len(recorder.live)], completed=completed)
    return recorder


# --- what is in a snapshot


def test_events_sizes_streams_times_and_labels(named: Named) -> None:
    recorder = Recorder()
    first = recorder.alloc(1000, stream=0x55AA00, frames=CPP_FRAMES)
    second = recorder.alloc(7)
    recorder.free(first)
    recorder.oom(1 << 40)
    recorder.free(second, completed=False)
    trace = read(named(snapshot(recorder)))
    allocs = [(ALLOC, 0, 1000, 1), (ALLOC, 1, 7, 0)]
    failed = (ALLOC, 2, 1 << 40, 1)  # no alloc came later
    assert rows(trace) == [*allocs, (FREE, 0, 0, 1), failed]
    assert labels(trace) == ["aten::addmm", "train.py:12 step", "", ""]
    assert trace.time_ns is not None
    assert trace.time_ns.tolist() == [0, 2000, 4000, 4000]
    origin = trace.provenance
    assert (origin.name, origin.kind, origin.device) == ("memory", "imported", "cuda:0")
    assert origin.extra["conf"] == "expandable_segments:False"
    others = {"free_requested": 2, "oom": 1, "segment_alloc": 2}
    assert origin.extra["other_events"] == others


def test_blocks_that_another_stream_used_are_counted_with_their_lines(named: Named) -> None:
    recorder = Recorder()
    first, second = (recorder.alloc(size, frames=FRAMES) for size in (1000, 50))
    recorder.free(first, completed=False)
    again = recorder.alloc(7, frames=[])
    recorder.free(first)  # now it is completed
    recorder.free(second)
    recorder.free(again, completed=False)
    found = read(named(snapshot(recorder))).provenance.extra["deferred_frees"]
    places = [("train.py:12 step", 1000)]
    assert found == {"blocks": 2, "bytes": 1007, "places": places}


def test_both_spellings_of_a_waiting_block_and_the_older_history(named: Named) -> None:
    recorder = Recorder()
    for size in (100, 200, 300, 400, 0):
        recorder.alloc(size)
    data = snapshot(recorder, keep=0)
    blocks = [segment["blocks"][0] for segment in data["segments"]]
    blocks[0]["state"] = "active_pending_free"
    blocks[1]["state"] = "active_awaiting_free"
    blocks[2]["state"] = "inactive"
    blocks[3] |= {"history": [{"addr": 1, "real_size": 444, "frames": CPP_FRAMES}]}
    for gone in ("requested_size", "frames", "address"):
        del blocks[3][gone]
    trace = read(named(data))
    assert [size for _, _, size, _ in rows(trace)] == [100, 200, 444]
    assert labels(trace) == ["train.py:12 step"] * 2 + ["aten::addmm"]
    assert trace.provenance.live_at_start == 3
    assert_same(read(named(data["segments"])), trace)  # as torch.cuda.memory_snapshot() returns


def test_a_snapshot_of_several_devices(named: Named) -> None:
    one, three = Recorder(1), Recorder(3)
    one.alloc(11)
    path = named(snapshot(one, Recorder(3)))
    assert [size for _, _, size, _ in rows(read(path))] == [11]  # the only one with events
    three.alloc(33)
    path = named(snapshot(one, three))
    told = message_of(lambda: read(path))
    devices = "0 (0 events), 1 (2 events), 2 (0 events), 3 (2 events)"
    assert (
        told == f"{path}: holds the events of several devices: {devices}; choose one: FILE:device=N"
    )
    for device in (3, "3"):
        trace = read(path, device=device)
        assert (rows(trace)[0][2], trace.provenance.device) == (33, "cuda:3")
    told = message_of(lambda: read(path, device="7"))
    assert told == f"{path}: has no device '7'; its devices are {devices}"
    assert "holds no events" in message_of(lambda: read(path, device=0))


def test_commands_take_the_devices_of_a_file_apart() -> None:
    one, three = Recorder(1), Recorder(3)
    one.alloc(11)
    three.alloc(33)
    Path("memory.dat").write_bytes(pickled(snapshot(one, three)))
    assert "choose one: FILE:device=N" in error("inspect memory.dat")
    assert "its devices are 0 (" in error("inspect memory.dat:device=5")
    assert "is PyTorch memory snapshot, which has no option 'gpu'; valid options: device" in error(
        "inspect memory.dat:gpu=1"
    )
    assert "cuda:3" in output("inspect memory.dat:device=3")
    files = ["memory.dat:device=1", "memory.dat:device=3"]
    line = f"compare {' '.join(files)} --allocators naive {QUICK} --json -"
    found = {row["workload"]: row["peak_requested"] for row in json.loads(run(line).stdout)}
    assert found == dict(zip(files, (11, 33), strict=True))
    Path("memory.dat").rename("memory.dat:device=1,x")  # a file with that name is used literally
    assert "choose one: FILE:device=N" in error("inspect memory.dat:device=1,x")
    assert "neither a file nor a workload" in error("inspect memory.dat:device=1")


# --- who wrote it, and how much


@pytest.fixture(scope="module")
def long() -> dict[str, Any]:
    """Enough events for several windows, frames of pickle and batches, some with new frames."""
    rng = random.Random(0)
    recorder = Recorder()
    for n in range(4000):
        if len(recorder.live) > 100:
            recorder.free(rng.choice(list(recorder.live)), completed=n % 7 > 0)
        new = [{"filename": f"/me/f{n}.py", "line": n, "name": "f"}]
        frames = new * (n % 5 == 0) + FRAMES * rng.randrange(3)
        recorder.alloc(rng.randrange(1, 1 << 34), stream=n % 3 * 1000, frames=frames)
        if n % 1000 == 0:
            recorder.oom(n)
    return snapshot(recorder)


@pytest.mark.parametrize("how", WRITERS)
def test_all_writers_write_the_same(named: Named, long: dict[str, Any], how: int | str) -> None:
    trace = read(named(pickled(long, how)))
    events = [e for e in long["device_traces"][0] if e["action"] in ("alloc", "free_completed")]
    assert len(trace) == len(events) > 7000
    for row, label, event in zip(rows(trace), labels(trace), events, strict=True):
        is_alloc = event["action"] == "alloc"
        assert (row[0] == ALLOC) == is_alloc
        assert row[2] == event["size"] * is_alloc
        assert row[3] == (0, 1, 2)[event["stream"] // 1000]
        own = [f for f in event["frames"] if f["filename"].startswith(("/me", "/home"))]
        expected = f"{own[0]['filename'].rpartition('/')[2]}:{own[0]['line']}" if own else ""
        assert label.partition(" ")[0] == expected * is_alloc


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_an_event_with_thirty_frames_takes_less_than_its_frames(
    tmp_path: Path, named: Named
) -> None:
    """As dicts and lists, it would take 700 bytes."""
    rng = random.Random(0)
    frames = [{"filename": f"/me/{n}.py", "line": n, "name": f"f{n}"} for n in range(500)]
    recorder = Recorder()
    for _ in range(60_000):
        if len(recorder.live) > 500:
            recorder.free(next(iter(recorder.live)))
        at = rng.randrange(470)
        recorder.alloc(rng.randrange(1, MIB), frames=frames[at : at + 30])
    small = tmp_path / "small"
    small.write_bytes(pickled(snapshot(played([(1, 0, True)]))))
    data = snapshot(recorder)
    large = named(data)
    events = len(data["device_traces"][0])
    count, grown = events_and_growth(small, large)
    assert 0 < count < events
    assert grown < 450 * events


# --- what it must not be
