# SPDX-License-Identifier: Apache-2.0
"""asv's machine record and the scrub of results: correct, and unchanged when repeated."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from allocbench.reports.rows import asv
from tests import asv_results as made

PYTHON = "/home/someone/envs/x/bin/python3.11"
EXISTING = "existing-py_home_someone_envs_x_bin_python3.11"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def output(line: str) -> str:
    ended = made.run(line)
    assert (ended.exit_code, ended.stderr) == (0, "")
    return ended.stdout


def error(line: str) -> str:
    ended = made.run(line)
    assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    return ended.stderr


def test_the_machine_record_says_what_device_it_has() -> None:
    output("machine --machine here --file machines.json")
    record = json.loads(Path("machines.json").read_text())["here"]
    assert record["machine"] == "here"
    assert record["torch"] == version("torch")
    assert (record["device"] == "simulated") == (record["gpu"] == "none")
    assert {"gpu", "driver", "cuda", "cpu", "ram"} <= record.keys()


def test_writing_the_machine_again_changes_nothing() -> None:
    Path("machines.json").write_text(
        json.dumps({"version": 1, "other": {"machine": "other"}, "here": {"cpu": "mine"}})
    )
    output("machine --machine here --file machines.json")
    first = Path("machines.json").read_bytes()
    stored = json.loads(first)
    assert stored["other"] == {"machine": "other"}
    assert stored["here"]["cpu"] == "mine"
    output("machine --machine here --file machines.json")
    assert Path("machines.json").read_bytes() == first


def test_a_gpu_is_named_with_its_driver(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    tool = folder / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "print('NVIDIA H200, 570.1' if len(sys.argv) > 1 else '| CUDA Version: 12.8 |')\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    output("machine --machine gpu --file machines.json")
    record = json.loads(Path("machines.json").read_text())["gpu"]
    assert [record[key] for key in ("gpu", "driver", "cuda", "device")] == [
        "NVIDIA H200",
        "570.1",
        "12.8",
        "cuda",
    ]


def test_a_machine_file_of_another_schema_is_refused() -> None:
    Path("machines.json").write_text('{"version": 7}')
    assert "machines.json" in error("machine --file machines.json")


def test_scrubbed_results_hold_no_path_and_stay_as_they_are(folder: Path) -> None:
    made.write(Path("asv"), "a" * 40, environment=EXISTING, python=PYTHON)
    made.write(Path("asv"), "b" * 40)
    assert output("scrub asv") == "1 of 2 files changed\n"
    names = sorted(path.name for path in Path("asv/sim").glob("*-*.json"))
    assert names == ["aaaaaaaa-existing-py3.11.json", "bbbbbbbb-virtualenv-py3.11.json"]
    text = Path("asv/sim", names[0]).read_text()
    assert "someone" not in text
    assert {cell.environment for cell in asv.cells("asv")} == {
        "existing-py3.11",
        "virtualenv-py3.11",
    }
    assert output("scrub asv") == "0 of 2 files changed\n"
    assert Path("asv/sim", names[0]).read_text() == text


def test_an_interpreter_that_does_not_say_its_version_is_unknown(folder: Path) -> None:
    made.write(Path("asv"), "a" * 40, environment="existing-py_opt_python3", python="/opt/python3")
    output("scrub asv")
    assert [path.name for path in Path("asv/sim").glob("*-*.json")] == ["aaaaaaaa-existing.json"]
    assert output("scrub asv") == "0 of 1 files changed\n"


def test_two_results_that_would_share_a_name_are_not_changed(folder: Path) -> None:
    made.write(Path("asv"), "a" * 40, environment=EXISTING, python=PYTHON)
    made.write(Path("asv"), "a" * 40, environment="existing-py3.11")
    assert "two results of one commit" in error("scrub asv")


def test_a_folder_without_results_is_refused() -> None:
    assert "not a results folder of asv" in error("scrub .")
