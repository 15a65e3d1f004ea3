# SPDX-License-Identifier: Apache-2.0
"""Recreating bundled traces: which ones differ, and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from allocbench.programs.capturing import Where
from allocbench.workloads import Trace, TraceError, catalog
from allocbench.workloads.fake_cuda import CaptureError
from benchmarks.workshop import recreating

NAMES = ["one", "two"]


@pytest.fixture
def bundled(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / f"{name}.parquet").write_bytes(name.encode())
    return tmp_path


def faithful(names: Sequence[str], folder: Path) -> None:
    for name in names:
        (folder / f"{name}.parquet").write_bytes(name.encode())


def drifted(names: Sequence[str], folder: Path) -> None:
    faithful(names, folder)
    (folder / "two.parquet").write_bytes(b"another")


def broken(names: Sequence[str], folder: Path) -> None:
    raise CaptureError(f"no compiler for {', '.join(names)}")


def test_differing_traces_are_named(bundled: Path) -> None:
    assert recreating.changed(NAMES, faithful, bundled) == []
    assert recreating.changed(NAMES, drifted, bundled) == ["two"]


@pytest.mark.parametrize(
    ("recreate", "check", "code", "complaint"),
    [
        (faithful, True, 0, ""),
        (drifted, True, 1, "error: two: the new capture differs from the bundled file\n"),
        (drifted, False, 0, ""),
        (broken, False, 2, "error: no compiler for one, two\n"),
    ],
)
def test_the_command(
    bundled: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    recreate: recreating.Recreate,
    check: bool,
    code: int,
    complaint: str,
) -> None:
    def all_of(names: Sequence[str], folder: Path, capture_module: catalog.Capture) -> None:
        recreate(names, folder)

    monkeypatch.setattr("sys.argv", ["x", *(["--check"] if check else [])])
    monkeypatch.setattr(recreating, "where", lambda device, python: Where(device))
    monkeypatch.setattr(recreating, "FILES", ((all_of, lambda: NAMES, bundled),))
    monkeypatch.setattr(catalog, "write_sizes", lambda: None)
    assert recreating.main() == code
    assert capsys.readouterr().err == complaint
    kept = (bundled / "two.parquet").read_bytes()
    assert kept == (b"another" if recreate is drifted and not check else b"two")


def test_another_pytorch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(*_: object) -> tuple[Trace, list[str]]:
        trace = catalog.load("random:allocs=3")
        return replace(trace, provenance=replace(trace.provenance, torch="2.9.1")), []

    monkeypatch.setattr(Where, "capture", capture)
    with pytest.raises(TraceError, match=r"PyTorch 2\.9\.1; the bundled traces are made with 2"):
        recreating.capturing(Where("null:h100"))("module", "name", "2000-01-01")
