# SPDX-License-Identifier: Apache-2.0
"""caching does what recorded allocators did, and a recording that was changed is found out."""

from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from allocbench import allocators
from allocbench.verifying import verify
from allocbench.workloads import TraceError, read, write
from allocbench.workloads.layout import to_json

SYNTHETIC = Path(__file__).parent / "data/recordings"
REAL = Path(__file__).parent.parent.parent / "shared/data/recordings"
CASES: dict[str, dict[str, Any]] = json.loads((SYNTHETIC / "cases.json").read_text())


def real_recordings() -> list[Path]:
    if not REAL.is_dir():
        return []
    return sorted(path for path in REAL.iterdir() if path.suffix in (".pickle", ".gz"))


def told(name: str) -> Any:
    return pickle.loads(gzip.decompress((SYNTHETIC / f"{name}.pickle.gz").read_bytes()))


def test_recordings_of_real_gpus_are_there_where_ci_runs() -> None:
    if os.environ.get("CI", "").lower() in ("1", "true"):
        assert len(real_recordings()) >= 4, f"{REAL} lacks the recordings of real GPUs"
    elif not real_recordings():
        pytest.skip(f"{REAL} is not there")


@pytest.mark.parametrize("path", real_recordings(), ids=lambda path: path.name)
def test_caching_does_what_a_real_gpu_s_allocator_did(path: Path) -> None:
    verdict = verify(path)
    assert verdict.difference is None, str(verdict.difference)
    assert verdict.exit_code == 0, verdict.unknown
    found = verdict.agreement
    assert found is not None
    assert found.allocs == found.reserved_equal == found.placed_equal > 30
    assert found.segment_calls == found.segment_calls_equal
    assert found.peak_reserved_recorded == found.peak_reserved_predicted


def test_the_synthetic_recordings_cover_what_may_happen() -> None:
    assert set(CASES) == {path.name.partition(".pickle")[0] for path in SYNTHETIC.glob("*.gz")}
    kinds = {kind for case in CASES.values() for kind in case["covers"]}
    assert kinds >= {
        "warm start",
        "empty_cache",
        "retry after a refusal",
        "several streams",
        "expandable segments",
        "private pools",
        "overflow of the history",
        "max_split_size_mb",
        "garbage_collection_threshold",
        "roundup_power2_divisions",
        "per_process_memory_fraction",
        "large_segment_size_mb",
    }


@pytest.mark.parametrize("name", CASES)
def test_caching_does_what_pytorch_s_allocator_did(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = tmp_path / f"{name}.pickle.gz"
    path.write_bytes((SYNTHETIC / path.name).read_bytes())
    verdict = verify(path, case["allocator"], case["capacity"])
    assert verdict.difference is None, str(verdict.difference)
    assert verdict.exit_code == 0, verdict.unknown
    found = verdict.agreement
    assert found is not None
    events = told(name)["device_traces"][0]
    assert found.allocs == sum(event["action"] == "alloc" for event in events)
    assert found.allocs == found.reserved_equal == found.placed_equal
    assert found.segment_calls == found.segment_calls_predicted == found.segment_calls_equal


def events_of(data: Any, action: str = "") -> list[dict[str, Any]]:
    return [e for e in data["device_traces"][0] if not action or e["action"] == action]


def ends_of(data: Any, begin: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that end the block of an alloc."""
    events = data["device_traces"][0]
    found = []
    for event in events[events.index(begin) + 1 :]:
        if event.get("addr") == begin["addr"] and event["action"].startswith("free_"):
            found.append(event)
            if event["action"] == "free_completed":
                return found
    raise AssertionError("the block is never freed")


def freed_alloc(data: Any, least: int = 0, most: int = 1 << 40, skip: int = 0) -> dict[str, Any]:
    """An alloc of so many bytes whose block is freed later."""
    for event in events_of(data, "alloc")[skip:]:
        if least <= event["size"] <= most:
            try:
                ends_of(data, event)
            except AssertionError:
                continue
            return event
    raise AssertionError("there is no such alloc")


def held_segment(event: dict[str, Any], size: int) -> dict[str, Any]:
    return {
        "device": 0,
        "address": event["addr"],
        "total_size": size,
        "stream": 0,
        "segment_type": "small" if size == 2 << 20 else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "blocks": [{"address": event["addr"], "size": size, "state": "inactive"}],
    }


def larger_segment(data: Any) -> None:
    event = next(e for e in events_of(data, "segment_alloc") if e["size"] > 20 << 20)
    event["size"] += 2 << 20
    for segment in data["segments"]:
        if segment["address"] == event["addr"]:
            segment["total_size"] += 2 << 20


def kept_segment(data: Any) -> None:
    """A segment that was given back is kept, so that the recording holds more."""
    event = events_of(data, "segment_free")[0]
    data["device_traces"][0].remove(event)
    data["segments"].append(held_segment(event, event["size"]))


def needless_segment(data: Any) -> None:
    events = data["device_traces"][0]
    event = events_of(data, "segment_alloc")[0] | {"addr": 1 << 30, "size": 30 << 20}
    events.insert(len(events) // 2, event)
    data["segments"].append(held_segment(event, event["size"]))


def missing_segment(data: Any) -> None:
    """A segment seems to have been there from the start."""
    event = events_of(data, "segment_alloc")[3]
    data["device_traces"][0].remove(event)


def needless_trim(data: Any) -> None:
    """A segment goes back while a block lives in it, and is obtained again at once."""
    events = data["device_traces"][0]
    event = events_of(data, "segment_alloc")[0]
    at = events.index(event) + 40
    events[at:at] = [event | {"action": "segment_free"}, dict(event)]


def moved_block(data: Any) -> None:
    """A small block lies 512 bytes further up."""
    event = freed_alloc(data, most=1 << 18, skip=20)
    moved = event["addr"] + 512
    for end in ends_of(data, event):
        end["addr"] = moved
    event["addr"] = moved


def other_segment(data: Any) -> None:
    """A block lies in a segment that was obtained before."""
    event = freed_alloc(data, least=10 << 20, skip=60)
    moved = events_of(data, "segment_alloc")[0]["addr"]
    for end in ends_of(data, event):
        end["addr"] = moved
    event["addr"] = moved


def other_order(data: Any) -> None:
    """Two blocks of one pool in a row change places."""
    allocs = events_of(data, "alloc")
    events = data["device_traces"][0]
    for one, two in pairwise(allocs):
        at = events.index(one)
        is_next = events[at + 1] is two
        if is_next and max(one["size"], two["size"]) < 1 << 20 and one["size"] != two["size"]:
            events[at], events[at + 1] = two, one
            return
    raise AssertionError("there are no such allocs")


def other_stream(data: Any) -> None:
    """A block is requested on a stream that never had memory."""
    event = freed_alloc(data, least=2 << 20, most=9 << 20)
    for one in (event, *ends_of(data, event)):
        one["stream"] = 999


def other_pool(data: Any) -> None:
    """A block of a private pool seems to be of the default one."""
    event = next(e for e in events_of(data, "alloc") if e["pool_id"] != (0, 0))
    for one in (event, *ends_of(data, event)):
        one["pool_id"] = (0, 0)


def other_size(data: Any) -> None:
    event = freed_alloc(data, most=1 << 18)
    for one in (event, *ends_of(data, event)):
        one["size"] += 64 << 10


def missing_free(data: Any) -> None:
    for event in ends_of(data, freed_alloc(data, least=10 << 20)):
        data["device_traces"][0].remove(event)


def larger_map(data: Any) -> None:
    event = events_of(data, "segment_map")[0]
    event["size"] += 20 << 20


def no_divisions(data: Any) -> None:
    data["allocator_settings"]["roundup_power2_divisions"] = {}


def no_max_split(data: Any) -> None:
    data["allocator_settings"]["max_split_size"] = -1


def not_expandable(data: Any) -> None:
    data["allocator_settings"]["expandable_segments"] = False


def no_large_segment(data: Any) -> None:
    data["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = ""


@pytest.mark.parametrize(
    ("name", "change", "kind", "reason"),
    [
        ("cold", larger_segment, "segment calls", "other settings or another version"),
        ("empty_cache", kept_segment, "segment calls", "keeps 1 segments"),
        ("retry", kept_segment, "segment calls", "keeps 1 segments"),
        ("cold", needless_segment, "segment calls", "a free block of 13008896 bytes would do"),
        ("cold", missing_segment, "segment calls", "a free block of 39845888 bytes would do"),
        ("cold", needless_trim, "segment calls", "holds blocks in the replay"),
        ("cold_2.11", moved_block, "placement", "a free block lies around it"),
        ("cold_2.11", other_segment, "placement", "too few for the 20971520 of the block"),
        ("cold_2.11", other_order, "placement", "a free block lies around it"),
        ("cold", other_size, "placement", "a block is still allocated there"),
        ("streams", other_stream, "segment calls", "without a new segment"),
        ("pools", other_pool, "segment calls", "it is in another pool"),
        ("divisions", no_divisions, "placement", "a free block lies around it"),
        ("max_split", no_max_split, "segment calls", "settings forbid it"),
        ("expandable", not_expandable, "segment calls", "expandable_segments was switched"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_deviation_is_found_and_named(
    name: str, change: Callable[[Any], None], kind: str, reason: str, tmp_path: Path
) -> None:
    data = copy.deepcopy(told(name))
    change(data)
    path = tmp_path / "changed.pickle"
    path.write_bytes(pickle.dumps(data))
    verdict = verify(path)
    assert verdict.exit_code == 1, verdict
    assert verdict.difference is not None
    assert verdict.difference.kind == kind, str(verdict.difference)
    assert reason in verdict.difference.reason


def test_a_recording_that_contradicts_itself_gives_no_verdict(tmp_path: Path) -> None:
    data = copy.deepcopy(told("expandable"))
    larger_map(data)
    path = tmp_path / "changed.pickle"
    path.write_bytes(pickle.dumps(data))
    verdict = verify(path)
    assert verdict.exit_code == 2
    assert "23068672 bytes were mapped" in verdict.unknown


def test_a_missing_free_is_told(tmp_path: Path) -> None:
    """It is taken to have come just before the next alloc at its address."""
    data = copy.deepcopy(told("cold"))
    missing_free(data)
    path = tmp_path / "changed.pickle"
    path.write_bytes(pickle.dumps(data))
    verdict = verify(path)
    assert verdict.frees_missing == 1
    assert verdict.row()["frees_missing"] == 1


def test_a_capacity_that_is_too_small_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fraction.pickle.gz"
    path.write_bytes((SYNTHETIC / path.name).read_bytes())
    verdict = verify(path, "caching:version=2.13", CASES["fraction"]["capacity"] // 2)
    assert verdict.exit_code == 1
    assert verdict.difference is not None
    assert verdict.difference.kind in ("segment calls", "failed request")
    assert verdict.difference.reason


def test_other_reserved_bytes_of_a_profiler_trace_are_found(tmp_path: Path) -> None:
    source = REAL / "normalization.json.gz"
    if not source.exists():
        pytest.skip(f"{source} is not there")
    data = json.loads(gzip.decompress(source.read_bytes()))
    memory = [e for e in data["traceEvents"] if e.get("name") == "[memory]"]
    memory.sort(key=lambda event: float(event["ts"]))
    for event in memory[len(memory) // 2 :]:
        event["args"]["Total Reserved"] += 2 << 20
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(data))
    verdict = verify(path)
    assert verdict.exit_code == 1
    assert verdict.difference is not None
    assert verdict.difference.kind == "reserved bytes", str(verdict.difference)
    assert verdict.difference.reason


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[1700000000, 2, 1024, 0], [1700000001, 3, 1024, 0]]", "is a memory timeline"),
        (
            '{"traceEvents": [{"ph": "i", "name": "[memory]", "ts": 1, "args": {"Bytes": 512}}]}',
            "1 memory events have no addresses",
        ),
    ],
)
def test_what_tells_no_addresses_is_refused_with_a_remedy(
    text: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "memory_timeline.raw.json.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(TraceError, match=f"{told}.*_record_memory_history"):
        read(path)
    assert verify(path).exit_code == 2


@pytest.mark.parametrize("name", ["warm", "expandable_warm"])
def test_a_layout_survives_parquet_and_sets_where_a_replay_begins(
    name: str, tmp_path: Path
) -> None:
    trace = read(SYNTHETIC / f"{name}.pickle.gz")
    assert trace.layout is not None
    write(trace, tmp_path / "trace.parquet")
    again = read(tmp_path / "trace.parquet")
    assert again.layout is not None
    assert to_json(again.layout) == to_json(trace.layout)
    for spec, begins in (("caching:version=2.11", trace.layout.reserved), ("naive", 0)):
        allocator = allocators.make(spec, allocators.SimulatedDevice("80GiB"))
        result = allocators.replay(again, allocator, samples=len(again))
        allocator.check()
        reserved = int(result.timeline["reserved"][0])
        assert reserved == begins if begins else 0 < reserved < trace.layout.reserved
