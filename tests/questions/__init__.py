# SPDX-License-Identifier: Apache-2.0
"""Tests of the four questions."""

from typing import Any

from allocbench.questions.best import best
from allocbench.questions.recommend import Study, study
from allocbench.replays.runner import Runner


def studied(run: Runner, **options: Any) -> Study:
    """What `recommend` answers. options: of `best`."""
    return study(run, best(run, **options))
