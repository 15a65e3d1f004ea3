# SPDX-License-Identifier: Apache-2.0
"""Settings, version and first segments of a recording hold in every command that replays it."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from allocbench.errors import UsageError
from allocbench.inputs.traces import load
from allocbench.replays.recorded_settings import in_force, takes_over, told
from allocbench.verification.verify import verify
from allocbench.workloads import Provenance, Trace, read
from tests.commands import folder, run
from tests.synthetic_recordings import told as recording

__all__ = ["folder"]  # the fixture, by its import

RECORDINGS = Path(__file__).parents[1] / "data/recordings"


def recorded(name: str) -> Trace:
    return read(RECORDINGS / f"{name}.pickle.gz")


@pytest.mark.parametrize(
    ("given", "actual"),
    [
        ("caching", "caching:max_split_size_mb=24,version=2.11"),
        ("caching:version=2.13", "caching:max_split_size_mb=24,version=2.13"),
        ("caching:expandable_segments=true", "caching:version=2.11,expandable_segments=true"),
        ("caching:conf=", "caching:version=2.11,conf="),
        (
            "limit:bytes=1GiB,of=caching",
            "limit:bytes=1GiB,of=caching:max_split_size_mb=24,version=2.11",
        ),
        ("bfc", "bfc"),
    ],
)
def test_caching_without_settings_has_those_of_the_recording(given: str, actual: str) -> None:
    assert in_force(given, recorded("max_split")) == actual


@pytest.mark.parametrize(
    ("torch", "spec"),
    [
        ("2.9.1+cu128", "caching:version=2.9"),
        ("2.10.0", "caching:version=2.10"),
        ("2.13.0", "caching"),
        ("2.14.0", "caching"),
        ("1.13.1", "caching"),
        ("", "caching"),
    ],
)
def test_the_version_of_a_trace_is_that_of_caching(torch: str, spec: str) -> None:
    trace = replace(recorded("cold"), provenance=Provenance(torch=torch))
    assert in_force("caching", trace) == spec


@pytest.mark.parametrize("name", ["warm", "divisions", "large_segment", "expandable_warm"])
def test_compare_predicts_the_recorded_peak(name: str) -> None:
    line = f"compare {RECORDINGS / name}.pickle.gz --allocators caching,bfc --time 0 --json -"
    done = run(line)
    assert done.exit_code == 0, done.output
    assert f"caching is replayed as {in_force('caching', recorded(name))}" in done.stderr
    caching, bfc = json.loads(done.stdout)
    found = verify(RECORDINGS / f"{name}.pickle.gz").agreement
    assert found is not None
    assert caching["peak_reserved"] == found.peak_reserved_recorded
    assert caching["settings"] == in_force("caching", recorded(name)) != "caching"
    assert bfc["settings"] is None


def test_notes_say_which_rules_of_a_recording_are_a_guess() -> None:
    warm = recorded("warm")
    known = replace(warm, provenance=replace(warm.provenance, torch="2.11.0"))
    notes = {
        (trace.provenance.torch, spec): told("warm", trace, [spec], "sim:80GiB")[1]
        for trace in (warm, known)
        for spec in ("caching", "caching:version=2.12,per_process_memory_fraction=0.5")
        if in_force(spec, trace) != spec
    }
    assert notes == {
        ("", "caching"): "warm: caching is replayed as caching:version=2.11; the recording does "
        "not name its version of PyTorch, and its events name no pools, as before 2.13",
        ("2.11.0", "caching"): "warm: caching is replayed as caching:version=2.11, "
        "as it was recorded",
    }


def test_commands_name_the_allocators_that_take_over_the_first_segments() -> None:
    trace = recorded("warm")
    assert takes_over("caching", trace, "sim:80GiB")
    assert takes_over("limit:bytes=8GiB,of=caching", trace, "sim:80GiB")
    assert takes_over("bfc", trace, "sim:80GiB") is False
    assert takes_over("caching", trace, "sim:1MiB") is False
    assert takes_over("caching", recorded("cold"), "sim:80GiB") is None
    *_, line = told("warm", trace, ["caching", "bfc", "naive"], "sim:80GiB")
    assert "taken over by caching; for the others" in line
    *_, line = told("warm", trace, ["bfc", "naive"], "sim:80GiB")
    assert "for bfc, naive" in line


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ("conf=max_split_size_mb:40", {"max_split_size_mb": "40"}),
        (
            "device=0,conf=garbage_collection_threshold:0.6,max_split_size_mb:40",
            {"max_split_size_mb": "40", "garbage_collection_threshold": "0.6"},
        ),
        (
            "conf=roundup_power2_divisions:[1024:2,>:4],expandable_segments:True,device=0",
            {
                "expandable_segments": "true",
                "roundup_power2_divisions": "[1:2,2:2,4:2,8:2,16:2,32:2,64:2,128:2,256:2,512:2,"
                "1024:4,2048:4,4096:4,8192:4,16384:4,32768:4]",
            },
        ),
    ],
)
def test_settings_may_follow_the_name_of_a_snapshot_without_any(
    given: str, settings: dict[str, str], tmp_path: Path
) -> None:
    data = recording("cold_2.9")
    del data["allocator_settings"]
    path = tmp_path / "old.pickle"
    path.write_bytes(pickle.dumps(data))
    assert load(f"{path}:{given}").provenance.extra["settings"] == settings
    with pytest.raises(UsageError, match="'x' is not option=value"):
        load(f"{path}:device=0,x")
