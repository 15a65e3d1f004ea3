# SPDX-License-Identifier: Apache-2.0
"""What is said of the steps of programs is as it was frozen."""

from allocbench.programs import program
from tests import drawn_calls
from tests.gold import Gold


def test_of_drawn_arguments(gold: Gold) -> None:
    found = drawn_calls.results(program, 400)
    gold(
        "programs_steps", {name: found[name] for name in ("Steps.grew", "Steps.kept", "sentences")}
    )
