# SPDX-License-Identifier: Apache-2.0
"""The cache folder: private, absolute, and temporary where the user has none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allocbench.base.errors import UserError
from allocbench.base.files import cache, keep_newest


def test_a_new_cache_is_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache() == tmp_path / "cache" / "allocbench"
    assert cache().stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache() == tmp_path / "home" / ".cache" / "allocbench"


def test_a_relative_cache_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    with pytest.raises(UserError, match=r"^XDG_CACHE_HOME=cache: not an absolute path$"):
        cache()


def test_without_a_home_that_can_be_written_the_cache_is_temporary(tmp_path: Path) -> None:
    """One for the whole process, which removes it when it ends."""
    program = (
        "from allocbench.base.files import cache\n"
        "assert cache() == cache() and cache().is_dir()\nprint(cache())"
    )
    environment = os.environ | {"HOME": "/proc/1", "TMPDIR": str(tmp_path)}
    environment.pop("XDG_CACHE_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("most", range(5))
def test_the_newest_entries_are_kept(tmp_path: Path, most: int) -> None:
    names = ["d", "a", "c", "b"]  # the oldest first
    for n, name in enumerate([*names, ".hidden"]):
        path = tmp_path / name
        path.mkdir() if name in "ab" else path.write_text("x")
        os.utime(path, (n * 100, n * 100))
    (tmp_path / "gone").symlink_to("nowhere")
    keep_newest(tmp_path, most)
    kept = {*names[len(names) - most :], ".hidden", "gone"}
    assert {path.name for path in tmp_path.iterdir()} == kept
