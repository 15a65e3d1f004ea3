# SPDX-License-Identifier: Apache-2.0
"""The cells of asv's results, and why some have no number."""

import json
import math
from pathlib import Path

import pytest

from allocbench.reports.rows import ResultError, asv
from tests import asv_results as made

OLD, NEW = "a" * 40, "b" * 40


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made.write(tmp_path / "asv", NEW, made.NUMBERS | {made.PEAK: [6144, 8192]}, date=2000)
    made.write(tmp_path / "asv", OLD)
    return tmp_path / "asv"


def cell(folder: Path, benchmark: str, allocator: str, commit: str = OLD) -> asv.AsvResult:
    (found,) = (
        one
        for one in asv.cells(folder)
        if (one.benchmark, one.allocator, one.commit) == (benchmark, allocator, commit)
    )
    return found


def test_a_cell_has_its_names_its_number_and_its_unit(folder: Path) -> None:
    found = cell(folder, made.PEAK, "bfc")
    assert (found.metric, found.workload, found.unit) == ("peak_reserved", "train", "bytes")
    assert (found.value, found.state, found.machine) == (4096, asv.NUMBER, "sim")
    assert found.deterministic
    assert math.isnan(found.low)


def test_samples_are_their_median(folder: Path) -> None:
    found = cell(folder, made.CALLS, "naive")
    assert (found.metric, found.value) == ("alloc", 2e-8)
    assert not found.deterministic


def test_not_available_failed_and_stale_are_distinguished(tmp_path: Path) -> None:
    made.write(tmp_path, OLD, made.NUMBERS | {made.PEAK: [None, 1]})
    assert cell(tmp_path, made.EXTERNAL, "naive").state == asv.NOT_AVAILABLE
    assert cell(tmp_path, made.PEAK, "bfc").state == asv.FAILED
    made.write(tmp_path, NEW, {made.PEAK: None})
    assert cell(tmp_path, made.PEAK, "naive", NEW).state == asv.FAILED
    for other in ("0", "2"):
        made.write(tmp_path, OLD, version=other)
        assert cell(tmp_path, made.PEAK, "bfc").state == asv.STALE


def test_measurements_on_a_gpu_are_not_deterministic(folder: Path) -> None:
    described = json.loads((folder / "benchmarks.json").read_text())
    stored = json.loads((folder / "sim" / f"{OLD[:8]}-virtualenv-py3.11.json").read_text())
    name = "gpu_training.Training.track_peak_reserved"
    described[name] = described[made.PEAK]
    stored["results"] = {name: stored["results"][made.PEAK]}
    (folder / "benchmarks.json").write_text(json.dumps(described))
    (folder / "sim" / "gpu.json").write_text(json.dumps(stored))
    found = cell(folder, name, "bfc")
    assert (found.device_kind, found.deterministic) == ("cuda", False)


def test_a_gpu_and_a_null_gpu_share_no_series(folder: Path) -> None:
    described = json.loads((folder / "benchmarks.json").read_text())
    stored = json.loads((folder / "sim" / f"{OLD[:8]}-virtualenv-py3.11.json").read_text())
    name = "gpu_programs.Programs.track_peak_reserved"
    names = ["device", "allocator", "workload"]
    described[name] = described[made.PEAK] | {"name": name, "param_names": names}
    params = [["'cuda'", "'null'"], ["'bfc'"], ["'train'"]]
    stored["results"] = {name: [[8192, 4096], params, "1"]}
    (folder / "benchmarks.json").write_text(json.dumps(described))
    (folder / "sim" / "gpu.json").write_text(json.dumps(stored))
    found = [one for one in asv.cells(folder) if one.benchmark == name]
    assert [(one.device_kind, one.value, one.case) for one in found] == [
        ("cuda", 8192, "train"),
        ("null", 4096, "train"),
    ]
    assert not any(one.deterministic for one in found)


def test_other_parameters_take_the_place_of_a_workload(folder: Path) -> None:
    described = json.loads((folder / "benchmarks.json").read_text())
    described[made.PEAK]["param_names"] = ["planner", "blocks"]
    (folder / "benchmarks.json").write_text(json.dumps(described))
    assert cell(folder, made.PEAK, "bfc").case == "blocks=train"


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("benchmarks.json", None, "cannot read"),
        ("benchmarks.json", "[]", "expected asv results of schema 2, found None"),
        ("benchmarks.json", "{", "not JSON"),
        ("sim/x.json", "{", "not JSON"),
        ("sim/x.json", '{"version": 3}', "schema 2, found 3"),
        ("sim/x.json", '{"version": 2}', "not asv results"),
    ],
)
def test_a_folder_without_asv_results_is_refused_by_name(
    folder: Path, path: str, text: str | None, words: str
) -> None:
    if text is None:
        (folder / path).unlink()
    else:
        (folder / path).write_text(text)
    with pytest.raises(ResultError, match=words) as found:
        asv.cells(folder)
    assert str(folder / path) in str(found.value)
