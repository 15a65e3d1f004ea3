# SPDX-License-Identifier: Apache-2.0
"""Tasks of `make gpu` at full size on a null GPU, with a CUDA build of PyTorch."""

import json
import os
import subprocess
import sys
from pathlib import Path

from allocbench.verification.verify import verify
from allocbench.workloads.files import read, read_recording
from docs.generate import gpu_pairs
from tests.null_gpu import ROOT, python


def walk(into: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python(), "-c", code], capture_output=True, text=True, check=True)
    command = [
        sys.executable,
        "-m",
        "benchmarks.workshop.gpu",
        "--null",
        "null:h100",
        "--into",
        str(into),
    ]
    path = os.pathsep.join([str(ROOT), site.stdout.strip()])
    return subprocess.run(
        [*command, *arguments],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_tasks_run_on_a_null_gpu_and_measure_nothing(tmp_path: Path) -> None:
    for name in ("torch", "bfc"):
        done = walk(tmp_path, "--only", "others", "--match", f"vit-serve--{name}")
        assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "null-h100"
    results = {
        path.stem.partition("--")[2]: json.loads(path.read_text())
        for path in (folder / "programs").glob("*.json")
    }
    assert set(results) == {"torch", "torch-async", "torch-expandable", "bfc"}
    for result in results.values():
        assert "measured" not in result
        assert result["provenance"]["null"] == "null:h100"
        assert result["provenance"]["gpu"] == "null:h100 (a null GPU)"
        assert result["provenance"]["torch"].startswith("2.13.0+cu")
        assert all(outcome == 0 for outcome in result["null"]["outcomes"])
    rows = {name: result["null"]["row"] for name, result in results.items()}
    assert rows["torch"]["peak_requested"] == rows["bfc"]["peak_requested"] > 0
    assert rows["bfc"]["device_kind"] == "null"
    assert rows["bfc"]["device_seconds"] is None
    told = (folder / "README.md").read_text()
    assert "**Runs on a null GPU: bytes and counts, no times." in told
    bfc = next(line for line in told.splitlines() if line.startswith("| bfc |")).split(" | ")
    assert bfc[3:5] == ["", ""]
    assert bfc[6:8] == ["", ""]


def test_a_published_network_is_recorded_beside_the_bytes_of_the_driver(tmp_path: Path) -> None:
    done = walk(tmp_path, "--only", "published", "--match", "RegNetX400MF-265")
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "null-h100" / "published"
    found = json.loads((folder / "RegNetX400MF-265.json").read_text())["null"]
    assert found["code"] == 0
    # A null GPU gives the process that asks its driver a context, too.
    assert found["used"][0][1] == found["first_sample"]
    assert found["most"] == 2 * found["first_sample"] + found["printed"]["reserved"]
    trace = read(folder / "RegNetX400MF-265.pickle.gz")
    assert trace.max_load <= found["printed"]["allocated"] <= found["printed"]["reserved"]


def test_cupy_is_refused_on_a_null_gpu(tmp_path: Path) -> None:
    done = walk(tmp_path, "--only", "cupy")
    assert done.returncode == 2
    assert "CuPy does not run on a null GPU" in done.stderr
    done = walk(tmp_path, "--plan")
    assert done.returncode == 0
    assert "/simulation/" in done.stdout
    assert "/cupy/" not in done.stdout


def test_what_a_program_allocates_is_kept_and_compared(tmp_path: Path) -> None:
    options = ("--only", "agreement", "--jobs", "2")
    done = walk(tmp_path, *options, "--match", "program--training--e")
    assert done.returncode == 0, done.stdout + done.stderr
    done = walk(tmp_path, *options, "--match", "program--optimizers")
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "null-h100" / "agreement"
    kept = folder / "program--optimizers.0.pickle.gz"
    result = json.loads((folder / "program--optimizers.json").read_text())["null"]
    assert (result["code"], result["complaints"]) == (0, [])
    assert result["snapshots"] == {kept.name: kept.stat().st_size}
    settings = json.loads((folder / "program--training--expandable.json").read_text())["null"]
    assert settings["printed"]["expandable"]
    assert settings["facts"]["settings"]["expandable_segments"]

    trace = read(kept)
    assert "aten::randn" in trace.labels
    assert trace.max_load == result["facts"]["stats"]["requested_bytes.all.peak"]
    verdict = verify(kept, "caching:version=2.13")
    assert verdict.exit_code == 0
    same = gpu_pairs.compare("same", read_recording(kept), read_recording(kept))
    assert (same.first, same.only_real, same.only_null) == (None, {}, {})
    assert (same.calls_equal, same.shift) == (True, 0)
    assert same.events[0] == same.events[1] == same.common > trace.allocs
    other = read_recording(folder / "program--training--expandable.0.pickle.gz")
    differs = gpu_pairs.compare("other", read_recording(kept), other)
    assert differs.first is not None
    assert differs.common < same.common
    assert not differs.calls_equal
