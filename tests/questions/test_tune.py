# SPDX-License-Identifier: Apache-2.0
"""allocbench tune: the results of the search, and its output."""

import pytest

from allocbench.allocators import SpecError
from allocbench.questions.switching import how
from allocbench.questions.tune import EXPANDABLE, SAME, Trial, Tuned, best, frame, front, tune
from allocbench.replays.recorded_settings import conf, with_conf
from allocbench.replays.runner import Runner
from allocbench.workloads import ALLOC, FREE, catalog
from tests.commands import folder, output
from tests.traces import make

__all__ = ["folder"]  # the fixture, by its import

DEVICE = "sim:80GiB"
MIB = 1 << 20


def least(runner: Runner, text: str) -> int:
    """What `fit` finds, of a runner that has not seen the search."""
    capacity = runner.min_capacity(text)
    assert capacity is not None
    return capacity


@pytest.mark.parametrize("workload", ["gpt2-train", "llama3-8b-lora"])
def test_the_best_needs_no_more_than_fit_finds_of_anything_plain(workload: str) -> None:
    trace = catalog.load(workload)
    found, fitted = tune(Runner(trace, DEVICE), "caching", budget=45), Runner(trace, DEVICE)
    assert found.least is not None
    assert found.least.capacity is not None
    assert found.helps
    assert found.default == found.trials[0]
    assert found.default.spec == "caching"
    assert found.least.capacity == least(fitted, with_conf(found.least.spec))
    assert found.least.capacity == least(fitted, f"caching:conf={conf(found.least.spec)}")
    assert found.least.capacity <= SAME * least(fitted, EXPANDABLE)
    assert SAME * found.least.capacity < least(fitted, "caching")
    assert not any("per_process_memory_fraction" in trial.spec for trial in found.trials)
    assert {"caching", EXPANDABLE} <= {trial.spec for trial in found.trials}


def test_a_setting_that_changes_nothing_is_dropped() -> None:
    trials = [
        Trial("caching", 1000, 1e-7, 0),
        Trial("caching:a=1", 900, 1e-7, 0),
        Trial("caching:a=1,b=2", 899, 1e-7, 0),
        Trial("caching:a=1,c=3", 895, 9e-5, 0),
        Trial("caching:d=4", 1, 1e-7, 1),
    ]
    found = best(trials)
    assert found is not None
    assert found.spec == "caching:a=1"
    tuned = Tuned(trials[0], trials, frozenset(trial.spec for trial in trials), interrupted=False)
    assert (tuned.least, tuned.helps) == (found, True)
    close = [trials[0], Trial("caching:a=1", 995, 1e-8, 0)]
    tuned = Tuned(close[0], close, frozenset(trial.spec for trial in close), interrupted=False)
    assert (tuned.least, tuned.helps) == (close[0], False)


def test_the_trials_are_always_the_same_and_the_budget_is_kept() -> None:
    trace = catalog.load("gpt2-train")
    first, again = (tune(Runner(trace, DEVICE), "caching", budget=60).trials for _ in range(2))
    assert first == again
    assert 60 <= len(first) <= 60 + 30  # and what shortens the least
    assert len({trial.spec for trial in first}) == len(first)


def test_the_front_holds_the_trials_that_no_other_dominates() -> None:
    points = [(5, 1.0), (3, 2.0), (3, 2.5), (4, 2.0), (1, 9.0), (5, 1.0)]
    trials = [Trial(f"s:n={n}", a, b, 0) for n, (a, b) in enumerate(points)]
    trials += [Trial("failed", 0, 0.0, 1), Trial("never", None, 0.0, 0)]
    expected = [
        one
        for one in points
        if not any(o[0] <= one[0] and o[1] <= one[1] and o != one for o in points)
    ]
    found = [(t.capacity, t.device_seconds) for t in front(trials)]
    assert found == sorted(set(expected)) == [(1, 9.0), (3, 2.0), (5, 1.0)]


@pytest.mark.parametrize("device", [DEVICE, "sim:8GiB"])
def test_no_setting_that_the_search_gave_up_beats_those_of_the_front(device: str) -> None:
    trace = catalog.load("gpt2-train")
    found, fresh = tune(Runner(trace, device), "caching", budget=60), Runner(trace, device)
    given_up = [trial for trial in found.trials if trial.spec not in found.sure]
    assert len(given_up) > len(found.trials) / 2
    for trial in given_up:
        quicker = [one for one in found.front if one.device_seconds <= trial.device_seconds]
        need = min((one.capacity or 0 for one in quicker), default=0)
        assert trial.failures or 0 < need <= SAME * least(fresh, trial.spec), trial


def test_the_default_is_said_to_be_best_where_it_is() -> None:
    trace = make([(ALLOC, 0, 2 * MIB), (FREE, 0, 0), (ALLOC, 0, 2 * MIB)])
    assert not tune(Runner(trace, DEVICE), "naive", budget=5).helps
    assert "No setting saves" in output("tune good.csv --allocator naive --budget 5")


def test_settings_that_serve_what_the_default_fails_help() -> None:
    found = tune(Runner(catalog.load("gpt2-train"), "sim:8GiB"), "caching", budget=50)
    assert found.default.failures
    assert found.helps
    assert found.least is not None
    assert not found.least.failures


def test_options_that_are_given_stay() -> None:
    found = tune(
        Runner(catalog.load("llm-decode"), DEVICE), "bfc:garbage_collection=true", budget=12
    )
    assert all("garbage_collection=true" in trial.spec for trial in found.trials)
    with pytest.raises(SpecError, match="without wrappers"):
        tune(Runner(catalog.load("llm-decode"), DEVICE), "limit:bytes=8GiB,of=bfc")


def test_an_interrupt_keeps_the_least_so_far() -> None:
    begun: list[str] = []

    def begin(what: str) -> None:
        begun.append(what)
        if len(begun) == 12:
            raise KeyboardInterrupt

    found = tune(Runner(catalog.load("gpt2-train"), DEVICE), "caching", budget=60, begin=begin)
    assert found.interrupted
    assert len(found.trials) >= 11  # those begun, and what shortens the least
    assert found.least is not None


@pytest.mark.parametrize("allocator", ["caching", "bfc"])
def test_the_frame_has_the_best_first_and_the_host_time_of_allocbench_allocators(
    allocator: str,
) -> None:
    run = Runner(catalog.load("gpt2-train"), DEVICE)
    found = tune(run, allocator, budget=20)
    assert found.least is not None
    table = frame(found, run, with_conf(found.least.spec))
    assert len(table) == len(found.trials)
    assert table.loc[0, "min_capacity"] == found.least.capacity
    assert table["least"].tolist() == table["best"].tolist()
    assert table["best"].tolist() == [True] + [False] * (len(table) - 1)
    members = table[table["pareto"] & ~table["best"]]
    assert members["min_capacity"].is_monotonic_increasing
    host = table[table["pareto"]]["seconds_per_event_cold"]
    assert (host > 0).all() if allocator == "bfc" else host.isna().all()
    events = len(run.trace)
    assert (table["device_seconds"] / events == table["device_seconds_per_event"]).all()
    assert table["allocator"][table["default"]].tolist() == [allocator]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("caching", ["unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF"]),
        (
            "caching:expandable_segments=true,version=2.12,max_split_size_mb=64",
            ["export PYTORCH_ALLOC_CONF=expandable_segments:True,max_split_size_mb:64"],
        ),
        (
            "caching:conf=max_split_size_mb:64,version=2.9",
            ["export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64"],
        ),
        (
            "caching:conf=max_split_size_mb:64",
            [
                "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64",
                "export PYTORCH_ALLOC_CONF=max_split_size_mb:64",
            ],
        ),
        (
            "caching:roundup_power2_divisions=[256:1;>:4],version=2.13",
            ["export PYTORCH_ALLOC_CONF='roundup_power2_divisions:[256:1;>:4]'"],
        ),
        ("naive", ["export PYTORCH_NO_CUDA_MEMORY_CACHING=1"]),
    ],
)
def test_the_printed_lines_install_the_allocator(text: str, lines: list[str]) -> None:
    assert how(text).splitlines() == lines


def test_other_allocators_are_installed_by_python() -> None:
    lines = how("check:of=bfc:garbage_collection=true")
    compile(lines, "snippet", "exec")
    assert '"check:of=bfc:garbage_collection=true"' in lines
    with pytest.raises(SpecError, match="only caching"):
        conf("bfc")
