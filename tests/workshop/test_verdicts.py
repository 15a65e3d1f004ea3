# SPDX-License-Identifier: Apache-2.0
"""The commands never contradict one another, and no advice fails or is much worse than another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocbench.base.cards import cards
from allocbench.questions.explain import explain
from allocbench.questions.fit import Bounds, fit
from allocbench.questions.recommend import EXPANDABLE, study
from allocbench.questions.tune import tune
from allocbench.replays.experiment import Effort, run
from allocbench.replays.runner import Runner
from allocbench.reports.advice.choosing import CLOSE, KEEP, ROOM, kind
from allocbench.reports.rows.results import records
from allocbench.workloads import ALLOC, FREE, Trace, catalog
from benchmarks.workshop.verdicts import CARDS, verdicts
from tests.commands import folder, output
from tests.traces import Event, make

__all__ = ["folder"]  # the fixture, by its import

MIB = 1 << 20
TABLE = (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text(encoding="utf-8")
SPECS = ["caching", EXPANDABLE, "bfc", "free_lists", "naive", "slab", "buddy"]


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """A trace of up to 40 blocks, of bytes to hundreds of MiB, freed in any order."""
    events: list[Event] = []
    alive: list[int] = []
    count: int = draw(st.integers(1, 40))
    for block in range(count):
        size = draw(st.integers(1, 1 << draw(st.integers(0, 28))))
        events.append((ALLOC, block, size))
        alive.append(block)
        frees: int = draw(st.integers(0, 2))
        for _ in range(min(frees, len(alive))):
            events.append((FREE, alive.pop(draw(st.integers(0, len(alive) - 1))), 0))
    return make(events)


def check(trace: Trace, device: str, tuning: int = 6) -> None:
    """Ask every question about one trace and device, each in its own command, and compare."""
    fitted = fit(trace, SPECS, device, known=Bounds(trace.max_load, None))
    least = {row["allocator"]: row["min_capacity"] for row in records(fitted)}
    card = {row["allocator"]: row["card"] for row in records(fitted)}
    found = study(trace, device, specs=SPECS, orders=0, budget=0)
    fits = {row["allocator"]: not row["failures"] for row in records(found.rows)}
    capacity = Runner(trace, device).capacity
    for row in records(found.rows):
        assert row["min_capacity"] == least[row["allocator"]]
        assert row["card"] == card[row["allocator"]]
    for spec in SPECS:
        compared, _ = run(trace, spec, device, Effort(0))
        assert (compared["min_capacity"], compared["card"]) == (least[spec], card[spec])
        assert (not compared["failures"]) is fits[spec]
        need = least[spec]
        assert not fits[spec] or (need is not None and need < capacity + 2 * MIB)
    for spec in ("caching", "bfc"):
        why = explain(trace, spec, device)
        assert (why is None) is fits[spec]
        if why is not None:
            assert (why.min_capacity, why.card) == (least[spec], card[spec])
            saved = {change.spec for change in why.saved_by}
            known = set(SPECS) & {change.spec for change in why.changes}
            assert {spec for spec in known if fits[spec]} == saved & known
    check_advice(found.advice.chosen, least, fits, capacity)
    check_tuned(trace, device, least, fits, tuning)


def check_advice(
    chosen: str | None, least: dict[str, Any], fits: dict[str, bool], capacity: int
) -> None:
    """The advice fits, and leaves at most 1 % of the device less room than any other choice."""
    cached = [spec for spec in SPECS if fits[spec] and kind(spec) != "uncached"]
    assert (chosen is None) is (not any(fits.values()))
    if chosen is None:
        return
    assert fits[chosen]
    assert (chosen == "naive") is (not cached)
    limit = (1 - ROOM) * capacity
    short = {spec: max(0.0, least[spec] - limit) for spec in cached or ["naive"]}
    assert short[chosen] <= min(short.values()) + CLOSE * capacity


def check_tuned(
    trace: Trace, device: str, least: dict[str, Any], fits: dict[str, bool], budget: int
) -> None:
    """The line of `tune` needs no more than the default, as `fit` finds."""
    tuned = tune(trace, "caching", device, budget=budget)
    if tuned.best is None:
        assert not fits["caching"]
        assert not fits[EXPANDABLE]
        return
    again = Runner(trace, device)
    assert again.completes(tuned.best.spec)
    assert tuned.best.capacity == again.min_capacity(tuned.best.spec)
    assert tuned.default.capacity == least["caching"]
    if fits["caching"] and tuned.best.capacity is not None:
        assert tuned.best.capacity <= least["caching"]


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(trace=traces(), share=st.integers(60, 300))
def test_commands_never_contradict_one_another(trace: Trace, share: int) -> None:
    capacity = max(MIB, trace.max_load * share // 100)
    check(trace, f"sim:{capacity}")


@pytest.mark.parametrize("workload", ["random:seed=3,allocs=3000", "serve-chat:seed=5,count=40"])
def test_the_words_of_the_commands_agree(workload: str) -> None:
    device = cards()[0].device
    fitted = json.loads(output(f"fit '{workload}' --allocators caching --device {device} --json -"))
    told = output(f"explain '{workload}' --allocator caching --device {device}")
    rows = json.loads(
        output(f"recommend '{workload}' --device {device} --orders 0 --budget 0 --json -")
    )
    row = next(row for row in rows if row["allocator"] == "caching")
    assert row["min_capacity"] == fitted[0]["min_capacity"]
    assert row["card"] == fitted[0]["card"]
    assert ("no request fails" in told) is (row["failures"] == 0)
    assert f"{row['card']}" in told


@pytest.mark.parametrize("workload", ["gpt2-train", "resnet50-train", "dlrm-train", "vit-serve"])
def test_no_advice_fails_or_is_regretted(workload: str) -> None:
    told = list(verdicts(workload, budget=0))
    assert [one.card.name for one in told] == list(CARDS)
    for one in told:
        assert one.fits is (one.chosen is not None)
        assert one.regret <= one.card.free / 100
        if one.chosen is None:
            assert one.least is not None
            assert one.least > one.card.free
        if one.default is not None and one.default <= one.card.free * (1 - ROOM):
            assert one.chosen == KEEP


def test_the_table_has_every_workload_on_every_card_and_no_regret() -> None:
    cells = [line.strip("|").split("|") for line in TABLE.splitlines() if line.count("|") == 9]
    rows = [[cell.strip() for cell in row] for row in cells[2:]]
    assert [tuple(row[:2]) for row in rows] == [
        (workload, card) for workload in catalog.captured() for card in CARDS
    ]
    for _, _, advice, _, _, _, regret, _ in rows:
        assert regret == "" if advice == "nothing fits" else float(regret.strip("<%")) <= 1
