# SPDX-License-Identifier: Apache-2.0
"""caching agrees with recorded allocators."""

import gzip
import json
import os
import pickle
from pathlib import Path

import pytest

from allocbench import allocators
from allocbench.verification.verify import verify
from allocbench.workloads import TraceError, read, write
from allocbench.workloads.parquet import layout_to_json
from tests.commands import run
from tests.synthetic_recordings import CASES, SYNTHETIC, told

REAL = Path(__file__).parents[3] / "shared/data/recordings"


def real_recordings() -> list[Path]:
    if not REAL.is_dir():
        return []
    return sorted(path for path in REAL.iterdir() if path.suffix in (".pickle", ".gz"))


def test_recordings_of_real_gpus_are_there_where_ci_runs() -> None:
    if os.environ.get("CI", "").lower() in ("1", "true"):
        assert len(real_recordings()) >= 4, f"{REAL} lacks the recordings of real GPUs"
    elif not real_recordings():
        pytest.skip(f"{REAL} is not there")


@pytest.mark.parametrize("path", real_recordings(), ids=lambda path: path.name)
def test_caching_agrees_with_recordings_of_real_gpus(path: Path) -> None:
    verdict = verify(path)
    assert verdict.difference is None, str(verdict.difference)
    assert verdict.exit_code == 0, verdict.unknown
    found = verdict.agreement
    assert found is not None
    assert found.allocs == found.reserved_equal == found.placed_equal > 30
    assert found.segment_calls == found.segment_calls_equal
    assert found.peak_reserved_recorded == found.peak_reserved_predicted


def test_a_recording_without_events_compares_nothing(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(told("cold") | {"device_traces": []}))
    verdict = verify(path)
    assert verdict.unknown == "contains no alloc and no segment call to compare"
    assert verdict.exit_code == 2


def test_the_synthetic_recordings_cover_every_kind_of_event() -> None:
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
        "max_non_split_rounding_mb",
        "garbage_collection_threshold",
        "roundup_power2_divisions",
        "per_process_memory_fraction",
        "large_segment_size_mb",
    }


@pytest.mark.parametrize("name", CASES)
def test_caching_agrees_with_recordings_of_pytorch(name: str, tmp_path: Path) -> None:
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
    ("text", "reason"),
    [
        ("[[1700000000, 2, 1024, 0], [1700000001, 3, 1024, 0]]", "is a memory timeline"),
        (
            '{"traceEvents": [{"ph": "i", "name": "[memory]", "ts": 1, "args": {"Bytes": 512}}]}',
            "1 memory events have no addresses",
        ),
    ],
)
def test_a_file_without_addresses_is_refused_with_a_remedy(
    text: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "memory_timeline.raw.json.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(TraceError, match=f"{reason}.*_record_memory_history"):
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
    assert layout_to_json(again.layout) == layout_to_json(trace.layout)
    for spec, begins in (("caching:version=2.11", trace.layout.reserved), ("naive", 0)):
        allocator = allocators.make(spec, allocators.SimulatedDevice("80GiB"))
        result = allocators.replay(again, allocator, samples=len(again))
        allocator.check()
        reserved = int(result.timeline["reserved"][0])
        assert reserved == begins if begins else 0 < reserved < trace.layout.reserved


OLD_SETTINGS = {
    "divisions_2.9": "caching:version=2.9,roundup_power2_divisions=8",
    "max_split": "caching:version=2.11,max_split_size_mb=24",
    "expandable_warm": "caching:version=2.11,conf=expandable_segments:True",
    "collection_2.11": "caching:version=2.11,per_process_memory_fraction=0.5,"
    "conf=garbage_collection_threshold:0.6",
}


@pytest.mark.parametrize("name", OLD_SETTINGS)
def test_given_settings_hold_for_the_start_of_a_recording_without_any(
    name: str, tmp_path: Path
) -> None:
    """Snapshots up to PyTorch 2.3 lack the settings."""
    data = told(name)
    del data["allocator_settings"]
    path = tmp_path / "old.pickle"
    path.write_bytes(pickle.dumps(data))
    verdict = verify(path, OLD_SETTINGS[name], CASES[name]["capacity"])
    assert verdict.exit_code == 0, verdict.difference or verdict.unknown
    assert not verdict.row()["settings_recorded"]
    assert verdict.row()["settings"] == {}
    assert verify(path, f"caching:version={CASES[name]['torch'][:-2]}").exit_code == 1


def test_given_settings_do_not_replace_those_by_which_a_start_is_found(tmp_path: Path) -> None:
    path = SYNTHETIC / "divisions_2.9.pickle.gz"
    told = read(path)
    assert told.layout is not None
    given = read(path, conf="max_split_size_mb:24")
    assert given.layout is not None
    assert layout_to_json(given.layout) == layout_to_json(told.layout)


def test_a_snapshot_without_settings_is_read_under_those_given(tmp_path: Path) -> None:
    data = told("divisions_2.9")
    recorded = read(SYNTHETIC / "divisions_2.9.pickle.gz")
    del data["allocator_settings"]
    path = tmp_path / "old.pickle"
    path.write_bytes(pickle.dumps(data))
    given = read(path, conf="roundup_power2_divisions:[1:8,>:8]")
    assert recorded.layout is not None
    assert given.layout is not None
    assert layout_to_json(given.layout) == layout_to_json(recorded.layout)
    given_settings = given.provenance.extra["settings"]
    assert given_settings == recorded.provenance.extra["settings"]
    with pytest.raises(TraceError, match="max_split_size_mb=many must be number"):
        read(path, conf="max_split_size_mb:many")


@pytest.mark.parametrize("width", [120, 60])
def test_a_table_of_recordings_folds_no_name_and_names_the_columns_it_hides(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = ["cold_2.10.pickle.gz", "collection_2.11.pickle.gz", "max_split_2.13.pickle.gz"]
    ended = run("verify " + " ".join(str(SYNTHETIC / name) for name in names))
    lines = ended.stdout.splitlines()
    table = lines[: lines.index(next(line for line in lines if names[-1] in line)) + 1]
    assert all(len(line) <= width for line in table)
    assert [line.split()[0] for line in table[-len(names) :]] == names
    assert ("not shown for lack of space: segment calls, peak" in ended.stdout) is (width < 100)


def test_a_snapshot_with_settings_that_pytorch_does_not_have_is_read_without_a_layout(
    tmp_path: Path,
) -> None:
    data = told("max_split")
    data["allocator_settings"]["max_split_size"] = 5 << 20
    path = tmp_path / "odd.pickle"
    path.write_bytes(pickle.dumps(data))
    trace = read(path)
    assert trace.layout is None
    assert "max_split_size_mb=5 must be a whole number" in trace.provenance.extra["layout"]
    assert trace.size.tolist() == read(SYNTHETIC / "max_split.pickle.gz").size.tolist()
