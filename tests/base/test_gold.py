# SPDX-License-Identifier: Apache-2.0
"""Units, texts and specs of drawn arguments are as they were frozen."""

from typing import Any

import pytest

from allocbench.base import cards, folding, spec, text, units
from tests import drawn_calls
from tests.gold import Gold


@pytest.mark.parametrize("module", [cards, folding, spec, text, units])
def test_of_drawn_arguments(module: Any, gold: Gold) -> None:
    gold(f"base_{module.__name__.split('.')[-1]}", drawn_calls.results(module, 400))
