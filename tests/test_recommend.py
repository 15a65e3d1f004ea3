# SPDX-License-Identifier: Apache-2.0
"""allocbench recommend: the ranking over frames, and the same answer as by trying everything."""

from __future__ import annotations

import json
import re
from typing import Any

import pandas as pd
import pytest

from allocbench import allocators
from allocbench.questions.capacity import completes_on
from allocbench.questions.fit import Bounds, fit
from allocbench.questions.recommend import Study, stages, study
from allocbench.reports.recommending import (
    OBJECTIVES,
    PROGRAM_SECONDS,
    Objective,
    recommend,
    scores,
)
from allocbench.workloads import ALLOC, catalog
from tests.commands import error, folder, output
from tests.traces import make

__all__ = ["folder"]  # the fixture, by its import

DEVICE = "sim:80GiB"
GIB = 1 << 30
MIB = 1 << 20


def rows(**given: tuple[float, float, float] | None) -> pd.DataFrame:
    """GiB, host and device nanoseconds per event of each allocator; None: it failed requests."""
    made = [
        {
            "allocator": name,
            "candidate": name != "bump",
            "failures": int(numbers is None),
            "min_capacity": None if numbers is None else int(numbers[0] * GIB),
            "host_seconds": None if numbers is None else numbers[1] * 1e-9,
            "device_seconds": 0.0 if numbers is None else numbers[2] * 1e-9,
        }
        for name, numbers in given.items()
    ]
    return pd.DataFrame(made).astype({"min_capacity": "Int64", "host_seconds": "float64"})


def test_each_objective_has_its_own_best() -> None:
    given = rows(small=(7, 50, 40_000), fast=(12, 20, 30), both=(8, 50, 300), caching=(9, 60, 900))
    best = {objective: recommend(given, objective).allocator for objective in OBJECTIVES}
    assert best == {"memory": "small", "latency": "fast", "balanced": "both"}
    found = scores(given, "balanced")
    assert found["both"] == pytest.approx(8 * GIB * (PROGRAM_SECONDS + 350e-9))
    reason = recommend(given, "memory").reason
    assert reason == "small completes on 7.00 GiB; the next, both, completes on 8.00 GiB."


def test_what_fails_and_what_is_a_floor_is_never_recommended() -> None:
    given = rows(bump=(1, 1, 1), broken=None, caching=(9, 60, 900), tlsf=(8, 60, 900))
    found = recommend(given, "memory")
    assert (found.allocator, found.failed) == ("tlsf", ("broken",))
    elsewhere = rows(bump=None, broken=None, caching=(9, 60, 900), tlsf=None)
    found = recommend(given, "memory", (elsewhere,))
    assert (found.allocator, found.failed) == ("caching", ("broken", "tlsf"))
    none = recommend(rows(bump=(1, 1, 1), broken=None), "memory")
    assert none.allocator is None
    assert "No candidate" in none.reason


def test_no_clear_difference_is_said_and_changes_nothing() -> None:
    given = rows(tlsf=(8, 50, 500), caching=(8.05, 50, 500), slab=(8.04, 50, 500), bfc=(9, 1, 1))
    found = recommend(given, "memory")
    assert found.allocator == "caching"
    assert found.alike == ("tlsf", "slab", "caching")
    assert found.reason.startswith("No clear difference by memory: caching completes on 8.05 GiB")
    assert found.confidence == "medium"
    assert found.margin == pytest.approx(9 / 8)
    without = recommend(given[given["allocator"] != "caching"], "memory")
    assert without.allocator == "tlsf"


def test_of_those_alike_the_one_with_the_best_of_both_is_taken() -> None:
    given = rows(naive=(7, 60, 45_000), expandable=(7.05, 60, 900), caching=(9, 60, 600))
    found = recommend(given, "memory")
    assert found.allocator == "expandable"
    assert "naive nearly the same" in found.reason


def test_confidence_falls_with_a_close_second_and_with_other_orders() -> None:
    clear = rows(a=(7, 50, 500), b=(9, 50, 500))
    close = rows(a=(7, 50, 500), b=(7.2, 50, 500))
    turned = rows(a=(9, 50, 500), b=(7, 50, 500))
    assert recommend(clear, "memory").confidence == "high"
    assert recommend(clear, "memory", (clear, clear, clear)).confidence == "high"
    assert recommend(clear, "memory", (clear, clear, turned)).confidence == "medium"
    assert recommend(clear, "memory", (clear, turned, turned)).confidence == "low"
    assert recommend(close, "memory", (close,)).confidence == "medium"
    found = recommend(close, "memory", (clear, turned))
    assert (found.agreement, found.confidence) == (0.5, "low")


@pytest.mark.parametrize("workload", [*catalog.captured(), "straddler", "bomb-best-fit", "ramp"])
def test_memory_agrees_with_trying_everything(workload: str) -> None:
    trace = catalog.load(workload)
    names = [name for name in allocators.names() if name != "planned"]  # it is slow to search for
    found = study(trace, DEVICE, "memory", specs=names, orders=1, tuning=0)
    everything = fit(trace, names, DEVICE, known=Bounds(trace.max_load, None))
    enough = everything[everything["candidate"]].set_index("allocator")["min_capacity"]
    served = [name for name in enough.index if completes_on(trace, str(name), DEVICE, 80 * GIB)]
    enough = enough[enough.index.isin(served)]
    answer = found.recommendation.allocator
    assert answer is not None
    assert enough[answer] <= enough.min() * 1.01
    measured = found.rows.set_index("allocator")["min_capacity"].dropna()
    assert dict(measured) == {name: enough[name] for name in measured.index}
    check_ranking(found)


@pytest.mark.parametrize("objective", ["latency", "balanced"])
def test_time_agrees_with_the_rows_measured(objective: Objective) -> None:
    names = ["bfc", "caching", "naive", "bump", "slab"]
    found = study(catalog.load("gpt2-train"), DEVICE, objective, specs=names, orders=1, tuning=0)
    check_ranking(found)
    assert found.recommendation.allocator not in {"naive", "bump", "slab"}


def check_ranking(found: Study) -> None:
    """The rows are in the order of a score worked out here."""
    objective = found.recommendation.objective

    def score(row: Any) -> float:
        seconds = float(row["host_seconds"] + row["device_seconds"])
        memory = float(row["min_capacity"])
        return {
            "memory": memory,
            "latency": seconds,
            "balanced": memory * (PROGRAM_SECONDS + seconds),
        }[objective]

    ranked = found.rows[found.rows["score"].notna()]
    expected = [score(row) for row in ranked.to_dict("records")]
    assert expected == sorted(expected)
    assert ranked["candidate"].all()
    assert (ranked["failures"] == 0).all()


def test_tuned_caching_is_among_them_where_it_helps() -> None:
    begun: list[str] = []
    found = study(
        catalog.load("gpt2-train"),
        "sim:24GiB",
        specs=["caching", "bfc"],
        orders=1,
        tuning=30,
        begin=begun.append,
    )
    assert found.recommendation.allocator == "caching:conf=expandable_segments:True"
    assert len(begun) == stages("sim:24GiB", ["caching", "bfc"], 1, 30)
    assert len(found.perturbed) == 1


def test_the_command_answers_and_tells_how_to_switch() -> None:
    line = "recommend gpt2-train --device sim:8GiB --orders 1 --tuning 20"
    shown = output(line)
    assert "recommended: caching:conf=expandable_segments:True\n" in shown
    assert "\nPYTORCH_ALLOC_CONF=expandable_segments:True\n" in shown
    assert re.search(r"caching +n/a .* 1 failed", shown)
    assert "confidence: " in shown
    table = json.loads(output(f"{line} --json -"))
    assert {row["allocator"] for row in table} >= set(allocators.names())
    assert all(row["score"] is None for row in table if row["failures"] or not row["candidate"])


def test_what_cannot_be_is_one_line() -> None:
    assert "valid names: memory, latency, balanced" in error("recommend good.csv --objective cost")
    assert "--device" in error("recommend good.csv --device nosuch")
    trace = make([(ALLOC, 0, 2 * MIB)])
    found = study(trace, "sim:1MiB", specs=["naive", "bfc"], orders=0, tuning=0)
    assert found.recommendation.allocator is None
