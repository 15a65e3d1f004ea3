# SPDX-License-Identifier: Apache-2.0
"""Programs of PyTorch's CUDA build on null GPUs, and the commands that run them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from allocbench.null_gpu.launch import notes, summary
from allocbench.workloads import read
from tests.null_gpu import PROGRAMS, allocbench, python, seen

MIB, GIB = 1 << 20, 1 << 30
USABLE = 85_020_639_232  # of an H100


def test_a_program_sees_the_card_and_its_end(tmp_path: Path) -> None:
    found = seen("memory", tmp_path)
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


def test_streams_graphs_and_pools(tmp_path: Path) -> None:
    found = seen("streams", tmp_path)
    assert found == {
        "events": True,
        "priority": -1,
        "stream in snapshot": True,
        "capturing": True,
        "pools": 2,
        "reading while capturing": True,
        "pool": True,
    }


def test_values_that_the_host_wrote_are_read_and_others_counted(tmp_path: Path) -> None:
    found = seen("values", tmp_path)
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


def test_every_library_answers(tmp_path: Path) -> None:
    found = seen("libraries", tmp_path)
    assert found["convolution"] == [[64, 3, 7, 7]]
    assert found["lstm"] == [[8, 32, 256], [1024, 128]]
    assert found["fft"] == [[8, 256, 129]]
    assert len(found) == 20


def test_workers_and_forks(tmp_path: Path) -> None:
    found = seen("processes", tmp_path)
    assert found == {"sums": [120.0, 376.0, 632.0, 888.0], "child of a fork": 3}


def test_one_rank_of_many_runs_without_the_others(tmp_path: Path) -> None:
    found = seen("distributed", tmp_path, on="null:h100,rank=3,world=64")
    assert (found["rank"], found["world"]) == (3, 64)
    assert found["whole"] == 64 * found["shard"] == 64 * MIB


@pytest.mark.parametrize("backend", ["expandable_segments:True", "backend:cudaMallocAsync"])
def test_other_ways_to_reserve(tmp_path: Path, backend: str) -> None:
    usual = seen("training", tmp_path)
    other = seen("training", tmp_path, PYTORCH_CUDA_ALLOC_CONF=backend)
    assert usual["backend"] == "native"
    assert other["peak allocated"] <= usual["peak allocated"]
    if backend.startswith("expandable"):
        assert (usual["expandable"], other["expandable"]) == (False, True)
    else:
        assert other["backend"] == "cudaMallocAsync"


def test_record_writes_one_trace_with_steps(tmp_path: Path) -> None:
    trace = tmp_path / "trace.parquet"
    command = [*allocbench(), "record", "--device", "null:h100", "--labels", "lines", "-o"]
    command += [str(trace), "--steps", "2", "--", python(), str(PROGRAMS / "training.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "reads of computed values, all of them 0" not in done.stderr  # none before the end
    recorded = read(trace)
    assert recorded.provenance.device == "null:h100-sxm-80gb"
    marks = [recorded.labels[block] for block in recorded.block[recorded.op == 2]]
    assert marks.count("step") == 2
    assert any("training.py" in label for label in recorded.labels)


def test_record_of_two_ranks_writes_two_traces(tmp_path: Path) -> None:
    command = [*allocbench(), "record", "--device", "null:a100-40gb,count=2", "-o"]
    command += [str(tmp_path / "trace.parquet"), "--", python(), "-m", "torch.distributed.run"]
    command += ["--nproc-per-node", "2", str(PROGRAMS / "distributed.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    traces = sorted(path.name for path in tmp_path.glob("*.parquet"))
    assert traces == ["trace-rank0-gpu0.parquet", "trace-rank1-gpu1.parquet"]


def test_run_puts_a_program_on_an_allocator(tmp_path: Path) -> None:
    command = [*allocbench(), "run", "--device", "null:rtx4090,memory=23.5GiB", "--allocator"]
    command += ["bfc", "--json", str(tmp_path / "row.json"), "--", python()]
    done = subprocess.run([*command, str(PROGRAMS / "training.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    title = "bfc on null:rtx-4090-24gb,memory=25232932864, NVIDIA GeForce RTX 4090"
    assert title in " ".join(done.stderr.split())
    (row,) = json.loads((tmp_path / "row.json").read_text())
    assert row["device"] == "null:rtx-4090-24gb,memory=25232932864"
    assert row["device_seconds"] is None
    assert row["failures"] == 0


def test_the_programs_own_exit_code_and_output_are_kept(tmp_path: Path) -> None:
    command = [*allocbench(), "record", "--device", "null:h100", "-o", str(tmp_path / "a.parquet")]
    command += ["--", python(), str(PROGRAMS / "values.py"), "fail"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 7
    assert json.loads(done.stdout)["written"] == [3, 1, 4, 1, 5]
    assert (tmp_path / "a.parquet").exists()


def test_a_loop_that_waits_for_a_value_ends_at_the_time_limit(tmp_path: Path) -> None:
    command = [*allocbench(), "record", "--device", "null:h100", "--time-limit", "2", "-o"]
    command += [str(tmp_path / "a.parquet"), "--", python(), str(PROGRAMS / "values.py"), "wait"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "while torch.ones(1, device=" in done.stderr


def test_a_cpu_build_is_told_in_one_line(tmp_path: Path) -> None:
    command = [*allocbench(), "record", "--device", "null:h100", "-o", str(tmp_path / "a.parquet")]
    command += ["--", *allocbench()[:1], "-c", "import torch"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    first = done.stderr.splitlines()[0]
    assert first.startswith("error: torch 2.13.0+cpu in ")
    assert "is not built for CUDA" in first
    assert not list(tmp_path.iterdir())


def test_a_package_that_calls_nvidias_libraries_is_told(tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("loaded = True\n")
    program = "import importlib.util as u; assert u.find_spec('cupy'); import cupy"
    command = [*allocbench(), "record", "--device", "null:h100", "-o", str(tmp_path / "a.parquet")]
    command += ["--", *allocbench()[:1], "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "ImportError: cupy calls NVIDIA's libraries itself" in done.stderr
