# SPDX-License-Identifier: Apache-2.0
"""Snapshots of every kind become the trace of their requests, or one line says why not."""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allocbench.workloads import Trace, read
from tests.commands import QUICK, error, folder, output, run
from tests.traces import message_of
from tests.workloads.importers.snapshots import MIB, Recorder, pickled, snapshot
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
