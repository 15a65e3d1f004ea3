# SPDX-License-Identifier: Apache-2.0
"""The pictures of the strategies show what the strategies do."""

import itertools
from pathlib import Path

import pytest

from allocbench import allocators
from docs.generate import pictures

FOLDER = Path(__file__).parents[2] / "docs" / "strategies"


@pytest.mark.parametrize("name", pictures.names())
def test_a_picture_shows_where_the_strategy_places_blocks_today(name: str) -> None:
    committed = (FOLDER / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    drawn = pictures.drawn(name)
    assert drawn.digest in committed, "make doc-pictures draws it again"
    assert drawn.spec in committed
    assert f"pictures/{name}.svg" in (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def test_only_strategies_that_a_simulated_device_cannot_run_have_no_picture() -> None:
    without = {info.name for info in allocators.strategies()} - {*pictures.names()}
    assert without == {"cuda_async"}
    assert {path.stem for path in (FOLDER / "pictures").iterdir()} == {*pictures.names()}


def test_pictures_are_small_and_self_contained() -> None:
    for path in (FOLDER / "pictures").iterdir():
        text = path.read_text(encoding="utf-8")
        assert len(text) < 40_000
        assert "<script" not in text
        assert 'href="http' not in text


def test_blocks_lie_in_held_memory_and_apart() -> None:
    drawn = pictures.drawn("buddy")
    assert drawn.peak_reserved == 64 << 20
    assert {rect.name for rect in drawn.blocks} == {*pictures.BLOCKS}
    for event in range(len(pictures.script())):
        now = [r for r in drawn.blocks if r.begin <= event < r.end]
        held = [r for r in drawn.held if r.begin <= event < r.end]
        now.sort(key=lambda rect: rect.address)
        for low, high in itertools.pairwise(now):
            assert low.requested <= low.size
            assert low.address + low.size <= high.address
        for rect in now:
            around = [r for r in held if r.address <= rect.address]
            assert any(rect.address + rect.size <= r.address + r.size for r in around)
