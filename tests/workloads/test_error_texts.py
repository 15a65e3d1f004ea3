# SPDX-License-Identifier: Apache-2.0
"""What texts of errors say, with any numbers, cut and mixed, is as it was frozen."""

from random import Random
from typing import Any
from zlib import crc32

import pytest

from allocbench.workloads import error_texts
from tests.gold import Gold, outcome
from tests.questions.test_error_text import KNOWN
from tests.questions.test_texts_in_logs import FULL_CARD
from tests.workloads.drawn_texts import varied

_TEXTS = {name: text for name, (text, *_) in KNOWN.items()} | {"PyTorch": FULL_CARD}
_PARTS = 6


@pytest.mark.parametrize("part", range(_PARTS))
def test_texts(part: int, gold: Gold) -> None:
    def read(text: str) -> Any:
        found = error_texts.parse(text)
        return found and (found, error_texts.state(found))

    found = {}
    for name in [name for name in _TEXTS if crc32(name.encode()) % _PARTS == part]:
        rng = Random(name)
        for n in range(16):
            text = _TEXTS[name] if n == 0 else varied(_TEXTS[name], rng, FULL_CARD)
            found[f"{name} {n}"] = outcome(read, text)
    gold(f"error_texts_{part}", found)
