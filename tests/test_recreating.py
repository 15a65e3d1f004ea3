# SPDX-License-Identifier: Apache-2.0
"""Recreating bundled traces: which ones differ, and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from allocbench.workloads import recreating
from allocbench.workloads.fake_cuda import CaptureError

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
    monkeypatch.setattr("sys.argv", ["x", *(["--check"] if check else [])])
    assert recreating.main("x", NAMES, recreate, bundled) == code
    assert capsys.readouterr().err == complaint
    kept = (bundled / "two.parquet").read_bytes()
    assert kept == (b"another" if recreate is drifted and not check else b"two")
