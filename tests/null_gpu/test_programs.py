# SPDX-License-Identifier: Apache-2.0
"""Programs on null GPUs, with each version of PyTorch's CUDA build that is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from allocbench.null_gpu.launch import notes, summary
from tests.null_gpu import VERSIONS, seen

MIB, GIB = 1 << 20, 1 << 30
USABLE = 85_020_639_232  # of an H100
of_each_version = pytest.mark.parametrize("version", VERSIONS)


@of_each_version
def test_a_program_sees_the_card_and_its_end(version: str, tmp_path: Path) -> None:
    found = seen("memory", tmp_path, version=version)
    assert (found["available"], found["devices"]) == (True, 1)
    assert found["name"] == "NVIDIA H100 80GB HBM3"
    assert (found["capability"], found["multiprocessors"]) == ([9, 0], 132)
    assert (found["total"], found["total of mem_get_info"]) == (USABLE, USABLE)
    assert found["free"] == USABLE - 512 * MIB - 2 * MIB
    assert found["allocated"] == GIB
    assert found["reserved"] == 2 * GIB + 2 * MIB
    assert "CUDA out of memory. Tried to allocate" in found["error"]
    assert (found["retries"], found["ooms"]) == (1, 1)
    assert found["reserved after"] == GIB  # the retry gave the cache back
    assert "oom" in found["actions"]
    assert {"alloc", "free_completed", "segment_alloc", "segment_free"} <= set(found["actions"])
    assert found["segments"] == [GIB]
    assert found["has frames"]


@of_each_version
def test_streams_graphs_and_pools(version: str, tmp_path: Path) -> None:
    found = seen("streams", tmp_path, version=version)
    assert found == {
        "events": True,
        "priority": -1,
        "stream in snapshot": True,
        "capturing": True,
        "pools": 2,
        "reading while capturing": True,
        "pool": True,
    }


@of_each_version
def test_values_that_the_host_wrote_are_read_and_others_counted(
    version: str, tmp_path: Path
) -> None:
    found = seen("values", tmp_path, version=version)
    assert found == {
        "written": [3, 1, 4, 1, 5],
        "part": [1, 4],
        "moved": [3, 1, 4, 1, 5],
        "computed": 0,
        "saved": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    }
    left = summary(tmp_path)
    assert dict(left.reads) == {
        'values.py:17 seen["computed"] = there.sum().item()': 1,
        "values.py:18 torch.nonzero(there)": 1,
    }
    assert dict(left.shapes) == {"values.py:18 torch.nonzero(there)": 1}
    assert notes(left)[0].startswith("2 reads of computed values")


@of_each_version
def test_every_library_answers(version: str, tmp_path: Path) -> None:
    found = seen("libraries", tmp_path, version=version)
    assert found["convolution"] == [[64, 3, 7, 7]]
    assert found["lstm"] == [[8, 32, 256], [1024, 128]]
    assert found["fft"] == [[8, 256, 129]]
    assert len(found) == 20


@of_each_version
def test_workers_and_forks(version: str, tmp_path: Path) -> None:
    found = seen("processes", tmp_path, version=version)
    assert found == {"sums": [120.0, 376.0, 632.0, 888.0], "child of a fork": 3}


@of_each_version
def test_one_rank_of_many_runs_without_the_others(version: str, tmp_path: Path) -> None:
    found = seen("distributed", tmp_path, version=version, on="null:h100,rank=3,world=64")
    assert (found["rank"], found["world"]) == (3, 64)
    assert found["whole"] == 64 * found["shard"] == 64 * MIB


@pytest.mark.parametrize("backend", ["expandable_segments:True", "backend:cudaMallocAsync"])
@of_each_version
def test_other_ways_to_reserve(version: str, tmp_path: Path, backend: str) -> None:
    usual = seen("training", tmp_path, version=version)
    other = seen("training", tmp_path, version=version, PYTORCH_CUDA_ALLOC_CONF=backend)
    assert usual["backend"] == "native"
    assert other["peak allocated"] <= usual["peak allocated"]
    if backend.startswith("expandable"):
        assert (usual["expandable"], other["expandable"]) == (False, True)
    else:
        assert other["backend"] == "cudaMallocAsync"
