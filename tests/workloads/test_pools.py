# SPDX-License-Identifier: Apache-2.0
"""Private pools in traces: files of each format, and imported snapshots."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocbench.workloads import ALLOC, FREE, TRIM, PrivatePool, Trace, read, write
from allocbench.workloads.recording_hook import annotation
from allocbench.workloads.vocabulary import (
    CAPTURE_BEGIN,
    CAPTURE_END,
    POOL_CREATE,
    POOL_ENTER,
    POOL_LEAVE,
    POOL_RELEASE,
)
from tests.traces import assert_same, make, message_of
from tests.workloads.importers.snapshots import Recorder, snapshot

EVENTS = [
    (ALLOC, 0, 1048576),
    (POOL_CREATE, 0, 0),
    (POOL_ENTER, 0, 0),
    (ALLOC, 1, 4096),
    (POOL_LEAVE, 0, 0),
    (POOL_RELEASE, 0, 0),
    (CAPTURE_BEGIN, 0, 0),
    (ALLOC, 2, 8192),
    (CAPTURE_END, 0, 0),
    (FREE, 2, 0),
    (POOL_RELEASE, 0, 0),
    (TRIM, 0, 0),
]
POOL = [0, 1, 1, 1, 1, 1, 2, 2, 2, 0, 2, 0]
STREAM = [0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0]


def pooled(**changes: Any) -> Trace:
    pools = (PrivatePool("0.1", use_on_oom=True), PrivatePool("1.0"))
    found: dict[str, Any] = {"pool": np.array(POOL, np.uint16), "pools": pools}
    return make(EVENTS, stream=np.array(STREAM, np.uint16), **(found | changes))


def test_parquet_keeps_pools_and_files_without_pools_keep_their_version(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    trace = pooled()
    trace.validate()
    write(trace, path)
    again = read(path)
    assert_same(trace, again)
    assert again.pools == trace.pools
    assert b'"version": 2' in path.read_bytes()
    write(make([(ALLOC, 0, 5)]), path)
    assert b'"version": 1' in path.read_bytes()


def test_csv_keeps_pools_as_the_documentation_shows_them(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    shown = page.partition("op,id,size,stream,pool\n")[2].partition("```")[0]
    path = tmp_path / "trace.csv"
    write(pooled(), path)
    assert path.read_text() == f"op,id,size,stream,pool\n{shown}"
    again = read(path)
    assert_same(pooled(), again)
    assert again.pools == pooled().pools


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("pool_enter,,,,", "the pool is missing"),
        ("pool_enter,use_on_oom,,,p", "'use_on_oom' is in the column id"),
        ("pool_create,sometimes,,,p", "'sometimes' is in the column id"),
        ("a,1,5,-1,p", "stream '-1' is not a number from 0 to 65535"),
        ("a,1,5,65536,p", "stream '65536' is not a number from 0 to 65535"),
        ("pool_leaves,,,,p", "the id is missing"),
    ],
)
def test_a_wrong_row_of_a_pool_is_shown(tmp_path: Path, row: str, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"op,id,size,stream,pool\n{row}\n")
    assert words in message_of(lambda: read(path))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pool": None, "pools": ()}, "event 1: op 4 is an event of a private pool"),
        ({"pools": (PrivatePool(),)}, "event 6: private pool is out of range: there are 1"),
        ({"pool": np.zeros(12, np.uint16)}, "event 1: op 4 without a private pool"),
        ({"pool": np.zeros(11, np.uint16)}, "column 'pool' has shape (11,), not (12,)"),
    ],
)
def test_broken_rules_of_pools_are_named(changes: dict[str, Any], words: str) -> None:
    assert words in message_of(pooled(**changes).validate)


def test_a_snapshot_has_the_pools_and_their_recorded_events(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.alloc(1000)
    recorder.alloc(2000)
    data = snapshot(recorder)
    (events,) = data["device_traces"]
    allocs = [event for event in events if event["action"] == "alloc"]
    for event in events:
        event["pool_id"] = (0, 3) if event["addr"] == allocs[1]["addr"] else (0, 0)
    for segment in data["segments"]:
        if segment["address"] == allocs[1]["addr"]:
            segment["segment_pool_id"] = (0, 3)
    after_first = allocs[0]["time_us"] + 1
    names = [
        annotation("pool_create", (0, 3), "no_split"),
        annotation("pool_enter", (0, 3)),
        annotation("pool_leave", (0, 3)),
    ]
    times = [after_first, after_first, allocs[1]["time_us"] + 1]
    data["external_annotations"] = [
        {"device": 0, "name": name, "stage": "START", "time_us": time}
        for name, time in zip(names, times, strict=True)
    ]
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(data))
    found = read(path)
    assert found.op.tolist() == [ALLOC, POOL_CREATE, POOL_ENTER, ALLOC, POOL_LEAVE]
    assert found.pool is not None
    assert found.pool.tolist() == [0, 1, 1, 1, 1]
    assert found.pools == (PrivatePool("0.3", no_split=True),)
    assert not set(found.labels) & set(names)
