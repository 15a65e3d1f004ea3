# SPDX-License-Identifier: Apache-2.0
"""caching does what recorded allocators did, and a recording that was changed is found out."""

from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
from collections.abc import Callable
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


def where(events: list[dict[str, Any]], action: str) -> int:
    return next(n for n, event in enumerate(events) if event["action"] == action)


def larger_segment(data: Any) -> None:
    events = data["device_traces"][0]
    event = next(e for e in events if e["action"] == "segment_alloc" and e["size"] > 20 << 20)
    event["size"] += 2 << 20
    for segment in data["segments"]:
        if segment["address"] == event["addr"]:
            segment["total_size"] += 2 << 20


def no_trim(data: Any) -> None:
    """A segment that was given back is kept, so that the recording holds more."""
    events = data["device_traces"][0]
    event = events.pop(where(events, "segment_free"))
    data["segments"].append(
        {
            "device": 0,
            "address": event["addr"],
            "total_size": event["size"],
            "stream": 0,
            "segment_type": "small" if event["size"] == 2 << 20 else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "blocks": [{"address": event["addr"], "size": event["size"], "state": "inactive"}],
        }
    )


def other_settings(data: Any) -> None:
    data["allocator_settings"]["roundup_power2_divisions"] = {}


@pytest.mark.parametrize(
    ("name", "change", "kind"),
    [
        ("empty_cache", no_trim, "segment calls"),
        ("cold", larger_segment, "segment calls"),
        ("divisions", other_settings, "placement"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_planted_deviation_is_found_and_named(
    name: str, change: Callable[[Any], None], kind: str, tmp_path: Path
) -> None:
    data = copy.deepcopy(told(name))
    change(data)
    path = tmp_path / "changed.pickle"
    path.write_bytes(pickle.dumps(data))
    verdict = verify(path)
    assert verdict.exit_code == 1, verdict
    assert verdict.difference is not None
    assert verdict.difference.kind == kind, str(verdict.difference)
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
