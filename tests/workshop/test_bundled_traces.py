# SPDX-License-Identifier: Apache-2.0
"""Making bundled traces again: how a program is recorded, which files differ, the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocbench.workloads import ALLOC, FREE, MARK, Provenance, Trace, TraceError, catalog, write
from allocbench.workloads.recording import Recorded, RecordError
from benchmarks.workshop import bundled_traces
from benchmarks.workshop.bundled_traces import TORCH, TraceFile, trace_of
from benchmarks.workshop.models.program import ModelProgram
from tests.traces import make

NAMES = ["one", "two"]


@dataclasses.dataclass(frozen=True)
class Config:
    layers: int


PROGRAM = ModelProgram(run=lambda *_: None, full=Config(2), tiny=Config(1), model="GPT-2", seed=7)


def small(size: int) -> Trace:
    return make([(ALLOC, 0, size), (FREE, 0, 0)], provenance=Provenance(name="small"))


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files, of 1 and of 2 bytes."""
    for size, name in enumerate(NAMES, 1):
        write(small(size), tmp_path / f"{name}.parquet")
    monkeypatch.setattr(catalog, "SIZES", tmp_path / "sizes.json")
    monkeypatch.setattr(
        bundled_traces,
        "files",
        lambda names: [
            TraceFile(tmp_path / f"{name}.parquet", name, "2000-01-01", PROGRAM, name)
            for name in NAMES
        ],
    )
    return tmp_path


@pytest.mark.parametrize(
    ("sizes", "check", "code", "complaint"),
    [
        ({"one": 1, "two": 2}, True, 0, ""),
        ({"one": 1, "two": 3}, True, 1, "error: two: the new trace differs from the file\n"),
        ({"one": 1, "two": 3}, False, 0, ""),
        ({"one": 1}, False, 2, "error: two: no recording: exit code 1\n"),
    ],
)
def test_the_command(
    bundled: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sizes: dict[str, int],
    check: bool,
    code: int,
    complaint: str,
) -> None:
    def recorded(file: TraceFile, python: str) -> Trace:
        if file.name not in sizes:
            raise RecordError(f"{file.name}: no recording: exit code 1")
        return small(sizes[file.name])

    monkeypatch.setattr(bundled_traces, "trace_of", recorded)
    monkeypatch.setattr("sys.argv", ["x", "--python", "any", *(["--check"] if check else [])])
    before = (bundled / "two.parquet").read_bytes()
    assert bundled_traces.main() == code
    assert capsys.readouterr().err == complaint
    replaced = (bundled / "two.parquet").read_bytes() != before
    assert replaced == (not check and sizes.get("two") == 3)
    assert (bundled / "sizes.json").exists() == replaced


FILE = TraceFile(Path("gpt2.parquet"), "mine", "2000-01-01", PROGRAM, "models.gpt2", ("--fast",))


def test_how_a_program_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frees between two other events are in the order of their blocks; marks of PyTorch go."""
    labels = ("step", "Optimizer.step#AdamW.step")
    events = [(MARK, 0, 0), (ALLOC, 5, 8), (ALLOC, 2, 9), (MARK, 1, 0), (FREE, 2, 0), (FREE, 5, 0)]
    torch = [f"{TORCH}+cu130"]
    results: list[tuple[int, list[str]]] = [(0, []), (3, []), (0, ["it was killed"])]
    commands = []

    def record(command: Sequence[str], **options: Any) -> Recorded:
        commands.append(command)
        assert options["labels"] == "operators"
        code, complaints = results.pop(0)
        extra = {"features": ["mem_pool"], "other_events": {}}
        provenance = Provenance(torch=torch[0], device="null:h100", extra=extra)
        trace = make(
            events, labels=labels, provenance=provenance, time_ns=np.arange(6, dtype=np.uint64)
        )
        return Recorded(code, {} if complaints else {"": trace}, complaints)

    monkeypatch.setattr(bundled_traces, "record", record)
    trace = trace_of(FILE, "other/python")
    assert commands == [["other/python", "-m", "models.gpt2", "--fast", "--device", "cuda"]]
    assert trace.op.tolist() == [MARK, ALLOC, ALLOC, FREE, FREE]
    assert trace.block.tolist() == [0, 0, 1, 0, 1]
    assert (trace.labels, trace.time_ns) == (("step",), None)
    assert trace.provenance == Provenance(
        name="mine",
        kind="captured",
        source="models.gpt2",
        model="GPT-2",
        torch=TORCH,
        device="null:h100",
        date="2000-01-01",
        seed=7,
        extra={"config": {"layers": 2}, "features": ["mem_pool"]},
    )
    for message in ("mine: no recording: exit code 3", "mine: no recording: it was killed"):
        with pytest.raises(RecordError, match=f"^{message}$"):
            trace_of(FILE, "other/python")
    torch[0], results[:] = "2.9.1", [(0, [])]
    with pytest.raises(TraceError, match=r"PyTorch 2\.9\.1; the bundled traces are made with 2"):
        trace_of(FILE, "other/python")
