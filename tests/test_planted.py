# SPDX-License-Identifier: Apache-2.0
"""The planted bugs fit the sources and the page that lists them; `make planted` plants them."""

from pathlib import Path

import pytest

from tests.planted.bugs import BUGS, DRAWN, Bug

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/trust.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("bug", [*BUGS, *DRAWN], ids=lambda bug: bug.name)
def test_a_bug_has_its_place_and_its_test(bug: Bug) -> None:
    text = (ROOT / bug.file).read_text(encoding="utf-8")
    assert text.count(bug.old) == 1, f"{bug.file} has changed: the place of the bug, too"
    assert bug.old != bug.new
    for test in bug.tests:
        file, _, function = test.partition("::")
        source = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {function.partition('[')[0]}" in source


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_page_lists_every_bug_and_the_file_of_its_test(bug: Bug) -> None:
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| {bug.name} |"))
    assert all(f"`{Path(test.partition('::')[0]).name}`" in row for test in bug.tests)
