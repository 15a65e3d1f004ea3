# SPDX-License-Identifier: Apache-2.0
"""allocbench tune: what the search finds, and what it says."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from allocbench import allocators
from allocbench.allocators import SpecError
from allocbench.questions.switching import conf, how, with_conf
from allocbench.questions.tune import Trial, frame, front, tune
from allocbench.workloads import ALLOC, FREE, catalog
from tests.commands import error, folder, output
from tests.traces import make

__all__ = ["folder"]  # the fixture, by its import

DEVICE = "sim:80GiB"
MIB = 1 << 20


def peak(text: str, workload: str) -> int:
    made = allocators.make(text, allocators.make_device(DEVICE))
    return allocators.replay(catalog.load(workload), made).stats.peak_reserved


@pytest.mark.parametrize("workload", ["gpt2-train", "llama3-8b-lora"])
def test_expandable_segments_are_found_where_they_help(workload: str) -> None:
    found = tune(catalog.load(workload), "caching", DEVICE, budget=70)
    assert found.best is not None
    assert found.helps
    assert found.default == found.trials[0]
    assert found.default.spec == "caching"
    assert found.best.peak_reserved <= peak("caching:expandable_segments=true", workload)
    assert found.best.peak_reserved < peak("caching", workload)
    for trial in found.front:  # what is printed is what was measured
        assert peak(with_conf(trial.spec), workload) == trial.peak_reserved
        assert peak(f"caching:conf={conf(trial.spec)}", workload) == trial.peak_reserved


def test_equal_seeds_give_equal_trials_and_the_budget_is_kept() -> None:
    trace = catalog.load("gpt2-train")
    first, again = (tune(trace, "caching", DEVICE, budget=60, seed=3).trials for _ in range(2))
    assert first == again
    assert 60 <= len(first) <= 60 + 30  # beside what simplifies the front
    assert len({trial.spec for trial in first}) == len(first)


def test_the_front_is_what_nothing_dominates() -> None:
    points = [(5, 1.0), (3, 2.0), (3, 2.5), (4, 2.0), (1, 9.0), (5, 1.0), (0, 0.0)]
    trials = [Trial(f"s:n={n}", a, b, 0) for n, (a, b) in enumerate(points)]
    trials[-1] = Trial("failed", 0, 0.0, 1)
    expected = [
        (t.peak_reserved, t.device_seconds)
        for t in trials[:-1]
        if not any(
            o.peak_reserved <= t.peak_reserved
            and o.device_seconds <= t.device_seconds
            and (o.peak_reserved, o.device_seconds) != (t.peak_reserved, t.device_seconds)
            for o in trials[:-1]
        )
    ]
    found = [(t.peak_reserved, t.device_seconds) for t in front(trials)]
    assert found == sorted(set(expected)) == [(1, 9.0), (3, 2.0), (5, 1.0)]


def test_the_default_is_said_to_be_best_where_it_is() -> None:
    trace = make([(ALLOC, 0, 2 * MIB), (FREE, 0, 0), (ALLOC, 0, 2 * MIB)])
    assert not tune(trace, "naive", DEVICE, budget=5).helps
    assert "already best" in output("tune good.csv --allocator naive --budget 5")


def test_settings_that_serve_what_the_default_fails_help() -> None:
    found = tune(catalog.load("gpt2-train"), "caching", "sim:8GiB", budget=50)
    assert found.default.failures
    assert found.helps
    assert found.best is not None
    assert not found.best.failures


def test_options_that_are_given_stay() -> None:
    found = tune(catalog.load("llm-decode"), "bfc:garbage_collection=true", DEVICE, budget=12)
    assert all("garbage_collection=true" in trial.spec for trial in found.trials)
    with pytest.raises(SpecError, match="without wrappers"):
        tune(catalog.load("llm-decode"), "limit:bytes=8GiB,of=bfc", DEVICE)


def test_an_interrupt_keeps_the_best_so_far() -> None:
    begun: list[str] = []

    def begin(what: str) -> None:
        begun.append(what)
        if len(begun) == 12:
            raise KeyboardInterrupt

    found = tune(catalog.load("gpt2-train"), "caching", DEVICE, budget=60, begin=begin)
    assert found.interrupted
    assert len(found.trials) == 11
    assert found.best is not None


def test_the_frame_has_the_front_first_and_its_host_time() -> None:
    trace = catalog.load("gpt2-train")
    found = tune(trace, "caching", DEVICE, budget=20)
    table = frame(found, trace, DEVICE)
    assert len(table) == len(found.trials)
    members = table[table["pareto"]]
    assert list(members.index) == list(range(len(found.front)))
    assert members["peak_reserved"].is_monotonic_increasing
    assert (members["seconds_per_event"] > 0).all()
    assert table["default"].sum() == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("caching", "unset PYTORCH_ALLOC_CONF"),
        (
            "caching:expandable_segments=true,version=2.12,max_split_size_mb=64",
            "PYTORCH_ALLOC_CONF=expandable_segments:True,max_split_size_mb:64",
        ),
        ("caching:conf=max_split_size_mb:64", "PYTORCH_ALLOC_CONF=max_split_size_mb:64"),
        ("naive", "PYTORCH_NO_CUDA_MEMORY_CACHING=1"),
    ],
)
def test_what_is_printed_installs_it(text: str, line: str) -> None:
    assert how(text) == line


def test_other_allocators_are_installed_by_python() -> None:
    lines = how("check:of=bfc:garbage_collection=true")
    compile(lines, "snippet", "exec")
    assert '"check:of=bfc:garbage_collection=true"' in lines
    with pytest.raises(SpecError, match="only caching"):
        conf("bfc")


def test_the_command_prints_the_line_to_use() -> None:
    shown = output("tune gpt2-train --budget 20")
    assert "\nPYTORCH_ALLOC_CONF=" in shown
    assert "(start)" in shown
    rows: list[dict[str, Any]] = json.loads(output("tune gpt2-train --budget 8 --json -"))
    assert len(rows) >= 8
    assert "without wrappers" in error("tune good.csv --allocator check:of=bfc")


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "allocbench.questions.tune", raising=False)
    monkeypatch.delattr("allocbench.questions.tune", raising=False)
    assert "pip install 'allocbench[tune]'" in error("tune good.csv")
