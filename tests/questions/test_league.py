# SPDX-License-Identifier: Apache-2.0
"""Scores of the league."""

from math import sqrt

import pytest

from allocbench import allocators
from allocbench.questions.league import ADVERSARIES, PROGRAMS, LeagueError, digest, frozen, scores
from allocbench.workloads import catalog, lifetimes
from docs.generate.league import committed

FAST = "vit-serve"
RAMP = "ramp:blocks=64,size=1MiB"


def own(*programs: str, adversary: str = RAMP) -> dict[str, dict[str, str]]:
    listed = {PROGRAMS: programs, ADVERSARIES: (adversary,)}
    return {
        part: {name: digest(catalog.load(name)) for name in names} for part, names in listed.items()
    }


def test_the_set_is_what_was_frozen() -> None:
    parts = frozen()
    assert {part: len(names) for part, names in parts.items()} == {PROGRAMS: 15, ADVERSARIES: 14}
    for names in parts.values():
        for name, expected in names.items():
            assert digest(catalog.load(name)) == expected, name


def test_a_changed_workload_is_refused() -> None:
    changed = own(RAMP)
    changed[PROGRAMS][RAMP] = "0" * 64
    with pytest.raises(LeagueError, match="is not the workload"):
        scores(["naive"], [], changed)


def test_scores_of_a_set_computed_by_hand() -> None:
    """64 blocks of 1 MiB, and 32 of 3 MiB: what `naive` needs is the load, buddy rounds 3 to 4."""
    other = "ramp:blocks=32,size=3MiB"
    naive, buddy = scores(["buddy:region=256MiB", "naive"], [], own(RAMP, other, adversary=RAMP))
    assert (naive.name, naive.programs, naive.worst, naive.adversaries) == ("naive", 1, 1, 1)
    assert naive.calls == pytest.approx(1000, rel=0.02)  # one for each alloc and each free
    assert buddy.name == "buddy:region=256MiB"
    ramp, wider = buddy.ratios[RAMP] or 0, buddy.ratios[other] or 0
    assert 1 <= ramp < wider
    assert buddy.programs == pytest.approx(sqrt(ramp * wider), abs=1e-6)
    assert (buddy.worst, buddy.worst_workload) == (wider, other)


def test_an_allocator_that_no_device_is_enough_for_comes_last() -> None:
    limited = "limit:bytes=1MiB,of=naive"
    *_, last = scores([limited, "naive"], [], own(RAMP))
    assert (last.name, last.programs, last.worst) == (limited, None, None)


def test_a_plan_is_scored_by_its_height() -> None:
    (score,) = scores([], ["greedy_by_size"], own(FAST))
    blocks = lifetimes(catalog.load(FAST))
    plan = allocators.plan(
        blocks.size, blocks.first, blocks.last, planner="greedy_by_size", alignment=256
    )
    assert score.ratios[FAST] == plan.height / plan.max_load


def test_the_committed_table_is_that_of_this_version() -> None:
    table = {score.name: score for score in committed()}
    assert table.keys() == {
        *allocators.names(allocators.make_device("sim:80GiB")),
        *allocators.planners(),
    }
    for score in scores(["caching", "bfc", "planned"], ["best_fit", "exact"], own(FAST)):
        assert table[score.name].ratios[FAST] == score.ratios[FAST]
        assert table[score.name].division == score.division
