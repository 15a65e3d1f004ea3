# SPDX-License-Identifier: Apache-2.0
"""Real programs on a null GPU are benchmarked in series of their own."""

import pytest

from allocbench.workloads.recording import has_cuda
from benchmarks import common, gpu_programs
from tests.null_gpu import python


@pytest.mark.skipif(has_cuda(), reason="compares with a machine without a GPU")
def test_null_gpus_are_a_series_apart_from_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_PYTHON", python())
    assert set(gpu_programs.Programs.params[0]) == {"cuda", "null"}
    row = gpu_programs.run("null", "slab", "vit-serve")
    assert isinstance(row, dict)
    assert (row["device"], row["device_kind"]) == ("null:h100-sxm-80gb", "null")
    assert row["peak_reserved"] > row["peak_requested"] > 800 << 20
    assert row["fragmentation_ratio"] == 1 - row["peak_allocated"] / row["peak_reserved"]
    assert row["alloc_p50_seconds"] > 0
    assert (row["device_seconds"], row["device_seconds_source"]) == (None, None)
    assert row.keys() >= gpu_programs.COLUMNS.keys()
    for device, allocator, why in (
        ("cuda", "slab", "libcuda.so.1"),
        ("null", "nothing", "no allocator is called 'nothing'"),
    ):
        cell = gpu_programs.run(device, allocator, "vit-serve")
        assert type(cell) is str  # not available, and no failure
        assert why in cell


def test_a_program_that_runs_out_of_memory_is_not_available() -> None:
    row = {"failures": 3, "peak_reserved": 1}
    found = gpu_programs.cell_of(1, row, "Traceback ...\ntorch.OutOfMemoryError: CUDA ...\n")
    assert found == "out of memory: requests that failed: 3"
    assert gpu_programs.cell_of(0, row, "") == row


def test_other_failures_are_failures() -> None:
    errors = "Traceback ...\nRuntimeError: it broke\nfailures       0\n"
    found = gpu_programs.cell_of(1, {"failures": 0}, errors)
    assert isinstance(found, common.Failed)
    assert found == "exit code 1: RuntimeError: it broke"
    assert gpu_programs.cell_of(2, None, "note: a\nerror: no driver\n") == "no driver"
    assert gpu_programs.cell_of(3, None, "") == "exit code 3: no message"
