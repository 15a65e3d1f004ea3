# SPDX-License-Identifier: Apache-2.0
"""asv runs real programs on a null GPU, in series of their own."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allocbench.workloads.recording import has_cuda
from benchmarks import common, gpu_programs
from tests.null_gpu import ROOT, python

SMALL = '''
"""The suite of programs with few parameters."""

from benchmarks import common, gpu_programs


@common.tracks(**gpu_programs.COLUMNS)
class Small(gpu_programs.Programs):
    params = (("cuda", "null"), ("slab", "nothing"), ("vit-serve",))

    def setup_cache(self):
        return self.cells()
'''


def results_of_asv(folder: Path) -> dict[str, list[Any]]:
    """What asv stores of the small suite, run in a copy of the benchmarks."""
    shutil.copytree(
        ROOT / "benchmarks",
        folder / "benchmarks",
        ignore=shutil.ignore_patterns("results", "truth", "measured", "__pycache__"),
    )
    (folder / "benchmarks" / "small.py").write_text(SMALL)
    shutil.copy(ROOT / "asv.conf.json", folder)
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for line in (("init", "-q", "-b", "main"), ("add", "."), (*author, "commit", "-qm", "one")):
        subprocess.run(["git", *line], cwd=folder, check=True)
    environment = os.environ | {
        "HOME": str(folder),
        "ASV_PYTHONPATH": str(ROOT),
        "PYTHONPATH": str(ROOT),
    }
    for line in (
        ("machine", "--yes"),
        ("run", "-E", "existing:same", "--set-commit-hash", "HEAD", "--bench", "Small"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "asv", *line],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (folder / ".asv" / "results").glob("*/*existing*.json")
    stored = json.loads(path.read_text())["results"]
    return {name.rpartition(".")[2]: found[:2] for name, found in stored.items()}


@pytest.mark.skipif(has_cuda(), reason="compares with a machine without a GPU")
def test_asv_keeps_null_gpus_apart_from_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_PYTHON", python())
    found = results_of_asv(tmp_path)
    assert set(found) == {f"track_{column}" for column in gpu_programs.COLUMNS}
    row = gpu_programs.run("null", "slab", "vit-serve")
    assert isinstance(row, dict)
    for name, (values, parameters) in found.items():
        assert parameters[0] == ["'cuda'", "'null'"]
        on_gpu, on_null = values[:2], values[2:]
        # asv stores NaN for n/a, and nothing for a failure.
        assert all(map(math.isnan, on_gpu))
        assert math.isnan(on_null[1])  # no allocator is called nothing
        if name == "track_peak_reserved":
            assert on_null[0] == row["peak_reserved"]
        assert on_null[0] > 0


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
