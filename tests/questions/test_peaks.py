# SPDX-License-Identifier: Apache-2.0
"""Peaks: limits, baselines, and the reason for growth; programs on a stand-in for a GPU."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from allocbench import peak_change
from allocbench.errors import UsageError
from allocbench.programs import program
from allocbench.questions import peaks
from allocbench.questions.peaks import Peak
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
    assert ["parameters", "model.py:f", 1000] in peak.held


def test_a_limit() -> None:
    trace = make([(ALLOC, 0, 30 * MIB)])
    peak = peaks.peak_of(trace)
    assert peaks.above_limit(peak, trace, 30 * MIB) is None
    told = peaks.above_limit(peak, trace, 29 * MIB)
    assert told is not None
    assert "1.00 MiB above the limit of 29.0 MiB" in told


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
    command = ["--base", "base", "--", sys.executable, "train.py"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_devices", lambda settings: [None])  # the stand-in's GPU
        assert peak_change.main(command) == 0
    shown = capsys.readouterr().out
    assert "the peak load grows by 3.91 KiB (66.67 %)" in shown
    assert "| live at the peak | 5.86 KiB | 9.77 KiB |" in shown
    assert "- `+3.91 KiB" in shown
    assert peak_change.main(["--base", "nowhere", "--", "nosuch"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    same = peak_change.markdown("train", BEFORE, BEFORE)
    assert "does not change: 0 B (0.00 %)" in same
