# SPDX-License-Identifier: Apache-2.0
"""Peaks: limits, baselines, and the reason for growth; programs on a stand-in for a GPU."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allocbench import peak_change
from allocbench.errors import UsageError
from allocbench.programs import program
from allocbench.questions import peaks
from allocbench.questions.peaks import Peak
from allocbench.reports.page import changes
from allocbench.reports.rows import asv
from allocbench.testing import limit_peak
from allocbench.workloads import ALLOC, Provenance
from tests.commands import folder
from tests.commands.test_record import stand_in
from tests.programs.test_program_workloads import programs
from tests.questions.test_holding import training
from tests.traces import make

__all__ = ["folder", "programs", "stand_in"]  # the fixtures, by their imports
MIB = 1 << 20
BEFORE = Peak(1000, 2 * MIB, "null:l4-24gb", [["activations", "a.py:f", 600], ["", "", 400]])


def test_the_peak_of_a_trace() -> None:
    trace = replace(training(), provenance=Provenance(device="null:l4-24gb,memory=5"))
    peak = peaks.peak_of(trace)
    assert (peak.load, peak.reserved, peak.device) == (4440, 2 * MIB, "null:l4-24gb")
    assert sum(size for *_, size in peak.held) == peak.load
    assert ["parameters", "model.py f", 1000] in peak.held


def test_a_limit() -> None:
    trace = make([(ALLOC, 0, 30 * MIB)])
    peak = peaks.peak_of(trace)
    assert peaks.above_limit(peak, trace, 30 * MIB) is None
    told = peaks.above_limit(peak, trace, 29 * MIB)
    assert told is not None
    assert told.endswith("1.00 MiB above the limit of 29.0 MiB\n  30.0 MiB live")


@pytest.mark.parametrize(("load", "percent", "told"), [(1010, 1, 0), (1011, 1, 1), (900, 0, 0)])
def test_a_baseline(load: int, percent: float, told: bool) -> None:
    peak = replace(BEFORE, load=load, held=[["activations", "a.py:f", 610], ["", "", 400]])
    found = peaks.above_baseline(peak, BEFORE, percent)
    assert (found is not None) == told
    if found:
        assert "11 B (1.10 %) above the baseline of 0.98 KiB; 1 % is allowed" in found
        assert found.splitlines()[1:] == ["  +10 B activations by a.py:f"]


def test_a_baseline_of_another_card() -> None:
    with pytest.raises(UsageError, match="the baseline was measured on null:l4-24gb, this run on"):
        peaks.above_baseline(replace(BEFORE, device="null:h100"), BEFORE, 1)


def test_a_file_of_peaks(tmp_path: Path) -> None:
    path = tmp_path / "peaks.json"
    assert peaks.read(path) == {}
    peaks.write(path, {"a": BEFORE})
    assert peaks.read(path) == {"a": BEFORE}
    for text in ("{", "[]", '{"a": 3}', '{"a": {"load": 1}}'):
        path.write_text(text)
        with pytest.raises(UsageError, match=r"peaks\.json: not a file of peaks"):
            peaks.read(path)


def test_a_block_needs_a_gpu_and_a_limit_is_a_size() -> None:
    with pytest.raises(UsageError, match="needs a process with a GPU"), limit_peak("1GiB"):
        pass
    with pytest.raises(ValueError, match="not a number of bytes"):
        limit_peak("much")


def test_the_change_of_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(".", "base", ignore=shutil.ignore_patterns("cache", "base"))
    Path("helper.py").write_text("SIZE = 9000\n")
    subprocess.run(["git", "init", "--quiet"], check=True)
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "commit", "-qm", "all", "--allow-empty"], check=True)
    history = ["--history", "peaks", "--html", "page.html"]
    command = ["--base", "base", *history, "--", sys.executable, "train.py"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_devices", lambda settings: [None])  # the stand-in's GPU
        assert peak_change.main(command) == 0
        codes = [
            peak_change.main(["--exit-code", "--device", device, *command[:2], *command[-3:]])
            for device in ("null:l4", "null:l4,memory=199MiB")  # 198 MiB are for the context
        ]
    assert codes == [2, 1]  # a part of a program that fits proves nothing
    shown = capsys.readouterr().out
    assert "the peak load grows by 3.91 KiB (66.67 %)" in shown
    assert "| live at the peak | 5.86 KiB | 9.77 KiB |" in shown
    assert "- `+3.91 KiB" in shown
    loads = asv.history("peaks").query("metric == 'peak_load'")
    assert loads["value"].tolist() == [10000]
    assert ": peak load</h3>" in Path("page.html").read_text()
    assert peak_change.main(["--base", "nowhere", "--", "nosuch"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    same = peak_change.markdown("train", BEFORE, BEFORE)
    assert "does not change: 0 B (0.00 %)" in same


def committed(n: int, *held: list[Any]) -> None:
    """Add the peaks of a new commit, a day after the one before."""
    day = {**os.environ, "GIT_COMMITTER_DATE": f"2026-01-0{n}T00:00:00Z"}
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *who, "commit", "--quiet", "--allow-empty", "--message", "change"]
    subprocess.run(command, check=True, env=day)
    load = sum(size for *_, size in held)
    commit = peak_change._commit(Path("peaks"))
    assert commit[1] % 86400 == 0
    peak_change.store(Path("peaks"), commit, "python a.py", Peak(load, 2 * MIB, "null:l4", [*held]))


def test_a_history_has_the_curve_and_the_line_that_grew(folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], check=True)
    committed(1, ["activations", "a.py:f", MIB])
    committed(2, ["activations", "a.py:f", MIB], ["activations", "a.py:g", 3 * MIB])
    committed(3, ["activations", "a.py:f", MIB], ["activations", "a.py:g", 3 * MIB])
    history = asv.history("peaks")
    names = [f"python_a_py.track_{metric}" for metric in ("peak_load", "held", "peak_reserved")]
    assert list(dict.fromkeys(history["benchmark"])) == names
    assert set(history["machine"]) == {"null-l4"}
    loads = history[history["benchmark"] == names[0]]["value"].tolist()
    assert loads == [MIB, 4 * MIB, 4 * MIB]
    past = changes.series(history)
    grown = past[past["series"] == "activations by a.py:g"]
    assert grown["value"].tolist() == [0, 3 * MIB, 3 * MIB]
    load, held = (one for one in changes.benchmarks(past) if one.name in names[:2])
    second = grown["commit"].iloc[1][:7]
    assert [(one.newest, one.latest, one.largest) for one in (*load.changes, *held.changes)] == [
        ("4.00 MiB", "none", f"+3.00 MiB (+300.0%) in {second}"),
        ("3.00 MiB", "none", f"+3.00 MiB in {second}"),
    ]
    assert held.others == 1
    committed(4, ["activations", "a.py:f", MIB])
    load, _, held = changes.benchmarks(changes.series(asv.history("peaks")))
    (change,) = load.changes
    assert (change.latest, change.mark) == ("-3.00 MiB (-75.0%)", "best")
    assert load.newest == ["-3.00 MiB (-75.0%)"]
    assert held.newest == ["activations by a.py:g -3.00 MiB (-100.0%)"]


def test_a_history_is_of_commits(folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], check=True)
    Path("a.py").write_text("1")
    subprocess.run(["git", "add", "a.py"], check=True)
    committed(1, ["", "", 5])
    Path("a.py").write_text("2")
    with pytest.raises(UsageError, match=r"a\.py differs from commit .{7}: commit it first"):
        peak_change._commit(Path("peaks"))
