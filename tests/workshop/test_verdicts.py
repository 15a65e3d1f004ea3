# SPDX-License-Identifier: Apache-2.0
"""The commands never contradict one another, and no advice fails or is much worse than another."""

from __future__ import annotations

import html
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocbench.inputs.traces import load
from allocbench.questions.best import best
from allocbench.questions.explain import explain
from allocbench.questions.fit import Bounds, fit
from allocbench.questions.tune import EXPANDABLE
from allocbench.replays.experiment import Effort, run
from allocbench.replays.recorded_settings import with_conf
from allocbench.replays.runner import Runner
from allocbench.reports.advice.choosing import CLOSE, KEEP, ROOM, kind
from allocbench.reports.rows.results import records
from allocbench.workloads import ALLOC, FREE, Trace, catalog, write
from benchmarks.workshop.verdicts import AMPLE, verdicts
from tests.commands import folder
from tests.commands import run as run_command
from tests.traces import Event, decoding, make, training

__all__ = ["folder"]  # the fixture, by its import

MIB = 1 << 20
TABLE = (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text(encoding="utf-8")
SPECS = ["caching", with_conf(EXPANDABLE), "bfc", "free_lists", "naive", "slab", "buddy"]


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


def check(trace: Trace, device: str) -> None:
    """Ask every question about one trace and device, each in its own command, and compare."""
    found = best(Runner(trace, device))
    rows = {row["allocator"]: row for row in records(found.rows)}
    specs = [spec for spec in SPECS if spec in rows]
    fitted = fit(Runner(trace, device), specs, Bounds(trace.max_load, None))
    capacity = Runner(trace, device).capacity
    for row in records(fitted):
        mine = rows[row["allocator"]]
        assert (row["min_capacity"], row["card"]) == (mine["min_capacity"], mine["card"])
    for spec in specs:
        compared, _ = run(trace, spec, device, Effort(0))
        for column in ("min_capacity", "card", "failures"):
            assert compared[column] == rows[spec][column]
        need = compared["min_capacity"]
        assert compared["failures"] or (need is not None and need < capacity + 2 * MIB)
    for spec in ("caching", "bfc"):
        why = explain(Runner(trace, device), spec)
        assert (why is None) is not rows[spec]["failures"]
        if why is not None:
            assert (why.min_capacity, why.card) == (rows[spec]["min_capacity"], rows[spec]["card"])
            saved = {change.spec for change in why.saved_by}
            known = set(specs) & {change.spec for change in why.changes}
            assert {spec for spec in known if not rows[spec]["failures"]} == saved & known
    check_advice(found.advice.chosen, rows, capacity)


def check_advice(chosen: str | None, rows: dict[str, dict[str, Any]], capacity: int) -> None:
    """The advice fits, and leaves at most 1 % of the device less room than any other choice."""
    fitting = [spec for spec, row in rows.items() if not row["failures"]]
    cached = [spec for spec in fitting if kind(spec) != "uncached"]
    assert (chosen is None) is (not fitting)
    if chosen is None:
        return
    assert chosen in fitting
    assert (chosen == "naive") is (not cached)
    limit = (1 - ROOM) * capacity
    short = {spec: max(0.0, rows[spec]["min_capacity"] - limit) for spec in cached or ["naive"]}
    assert short[chosen] <= min(short.values()) + CLOSE * capacity


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(trace=traces(), share=st.integers(60, 300))
def test_commands_never_contradict_one_another(trace: Trace, share: int) -> None:
    capacity = max(MIB, trace.max_load * share // 100)
    check(trace, f"sim:{capacity}")


MOST = 0.01
WRITTEN = {
    f"{program.__name__}-{seed}.parquet": partial(program, seed)
    for program in (training, decoding)
    for seed in (0, 1)
}
NEAR = ("random:seed=1,allocs=1000", "serve-chat:seed=5,count=40", "vit-serve", *WRITTEN)


SHARES = (980, 995, 1005, 1030)
ASKED = [(workload, SHARES[place % 4]) for place, workload in enumerate(NEAR)]


@pytest.mark.parametrize(("workload", "share"), ASKED)
def test_every_command_names_the_same_best(workload: str, share: int) -> None:
    """share: capacity in thousandths of what the default needs."""
    if workload in WRITTEN:
        write(WRITTEN[workload](), workload)
    least = Runner(load(workload), AMPLE).min_capacity(KEEP)
    assert least is not None
    line = f"'{workload}' --device sim:{least * share // 1000} --json rows.json"

    def asked(command: str) -> tuple[Any, str]:
        text = " ".join(run_command(f"{command} {line}").stdout.split())
        return json.loads(Path("rows.json").read_text(encoding="utf-8")), text

    ranked, recommended = asked("recommend")
    compared, _ = asked("compare --time 0 --html report.html")
    tuned, searched = asked("tune")
    for column in ("recommended", "best_setting", "best_allocator"):
        (told,) = {row[column] for row in ranked}
        assert {row[column] for row in compared} == {told}
    setting, chosen = ranked[0]["best_setting"], ranked[0]["recommended"]
    page = Path("report.html").read_text(encoding="utf-8")
    shown = html.unescape(re.sub(r"<[^>]*>", "", page)).replace("a device of ", "sim:")
    shown = re.sub(r"caching \(([^)]+)\)", r"caching:conf=\1", shown)
    for column in ("setting_advice", "allocator_advice", "orders_advice"):
        (told,) = {row[column] for row in compared}
        assert (told or "") in shown
    assert (told is None) is (chosen is None)
    assert (told or "").rpartition(" completes ")[2] in recommended
    assert (told or "") in searched or chosen != setting
    check = run_command(f"check {line}")
    (answer,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert check.exit_code == (answer["verdict"] != "fits")
    remedies = {one["kind"]: one["change"] for one in answer["remedies"]}
    assert remedies.get("setting", setting) == setting
    assert remedies.get("allocator", chosen) == chosen
    assert [row["allocator"] for row in tuned if row["best"]] == [setting] * (setting is not None)
    assert ranked[0]["allocator"] == chosen or chosen is None
    assert ranked[0]["best_allocator"] == (KEEP if chosen and chosen == setting else chosen)
    assert {row["allocator"] for row in compared} >= {chosen, setting} - {None}


@pytest.mark.parametrize("workload", ["vit-serve", "dlrm-train"])
def test_no_advice_fails_or_is_regretted(workload: str) -> None:
    for one in verdicts(workload, (970, 985, 995, 1000, 1030), budget=0):
        assert one.fits is (one.chosen is not None)
        assert one.regret <= MOST
        if one.thousandths < 1000:
            assert one.chosen != KEEP


def test_the_table_has_every_workload_and_no_regret() -> None:
    cells = [line.strip("|").split("|") for line in TABLE.splitlines() if line.count("|") == 7]
    rows = [[cell.strip() for cell in row] for row in cells[2:]]
    assert list(dict.fromkeys(row[0] for row in rows)) == catalog.captured()
    assert all(float(row[-1].strip("%")) <= 100 * MOST for row in rows)
