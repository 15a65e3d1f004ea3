# SPDX-License-Identifier: Apache-2.0
"""Files appear whole, whatever they are called; `test_interrupts.py` has those that do not."""

import os
import secrets
from pathlib import Path

import pytest

from allocbench.base.files import whole_file


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\U0001f4be"])
def test_every_name_that_a_file_system_allows_can_be_written(letter: str, tmp_path: Path) -> None:
    target = tmp_path / (letter * (255 // len(letter.encode())))
    with whole_file(target) as file:
        file.write(b"whole")
    assert target.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [target]


def test_two_files_may_be_written_at_once(tmp_path: Path) -> None:
    """The same one too: it has the content of the one that was completed last."""
    names = ["a" * 200 + "1", "a" * 200 + "2", "same", "same"]
    opened = [whole_file(tmp_path / name) for name in names]
    for number, file in enumerate([each.__enter__() for each in opened]):
        file.write(b"%d" % number)
    for each in opened:
        each.__exit__(None, None, None)
    written = {path.name[-1]: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {"1": b"0", "2": b"1", "e": b"3"}


def test_a_link_with_the_name_of_the_partial_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "victim").write_text("mine")
    names = iter(("guessed", "free"))
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(names))
    (tmp_path / ".out.guessed.partial").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError), whole_file(tmp_path / "out"):
        pass
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / ".out.guessed.partial").is_symlink()
    with whole_file(tmp_path / "out") as file:
        file.write(b"new")
    assert (tmp_path / "out").read_bytes() == b"new"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o755])
def test_a_file_keeps_its_permissions(mode: int, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    (tmp_path / "out").chmod(mode)
    with whole_file(tmp_path / "out"):
        partial = next(path for path in tmp_path.iterdir() if path.name != "out")
        assert partial.stat().st_mode & 0o777 == mode  # never readable by others meanwhile
    assert (tmp_path / "out").stat().st_mode & 0o777 == mode


def test_a_new_file_has_the_permissions_that_the_user_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / "out"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640
