# SPDX-License-Identifier: Apache-2.0
"""Names in narrow cells are cut between their parts only."""

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from allocbench.base.folding import FoldedText, folded, least_width

TEXTS = st.lists(st.text("ab:=,/", min_size=1, max_size=12), min_size=1).map(" ".join)


def test_a_name_is_cut_after_its_separators() -> None:
    name = "caching:conf=expandable_segments:True,max_split_size_mb:128"
    assert folded(name, 26).split("\n") == [
        "caching:conf=",
        "expandable_segments:True,",
        "max_split_size_mb:128",
    ]
    assert folded(name, 100) == name
    assert least_width(name) == len("expandable_segments:True,")
    assert folded("train.py:7 step 1.50 GiB, b.py", 20) == "train.py:7 step\n1.50 GiB, b.py"
    assert folded("  a request for 12 GiB", 12) == "  a request\n  for 12 GiB"
    assert folded("/home/name/train.py:7 step", 12) == "/home/name/\ntrain.py:7\nstep"


@given(TEXTS, st.integers(1, 40))
def test_nothing_is_lost_and_lines_are_as_short_as_their_parts_allow(text: str, width: int) -> None:
    lines = folded(text, width).split("\n")
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert max(map(len, lines)) <= max(width, least_width(text))
    drawn = Console(width=40, color_system=None)
    with drawn.capture() as captured:
        drawn.print(FoldedText(Text(text)))
    assert captured.get().replace(" ", "").replace("\n", "") == text.replace(" ", "")
