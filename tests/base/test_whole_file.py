# SPDX-License-Identifier: Apache-2.0
"""Files appear whole, whatever they are called; `test_interrupts.py` has those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from allocbench.base.whole_file import whole_file


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
