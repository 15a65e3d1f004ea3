# SPDX-License-Identifier: Apache-2.0
"""Settings that break what a program does are not recommended."""

from dataclasses import replace
from functools import cache

import pytest

from allocbench import allocators
from allocbench.allocators import SpecError, make_device
from allocbench.questions import tune
from allocbench.questions.best import best
from allocbench.questions.check import check
from allocbench.questions.explain import served
from allocbench.questions.hazards import breaks, caveats, modelled, reserve_in_words
from allocbench.replays.recorded_settings import conf, with_conf
from allocbench.replays.runner import Runner
from allocbench.reports.advice.choosing import KEEP
from allocbench.reports.advice.recommending import GIVEN, RECORDED
from allocbench.workloads import ALLOC, FREE, Trace, catalog
from tests.questions import studied
from tests.traces import MIB, Event, make

DEVICE = "sim:8GiB"
BOTH = "caching:max_split_size_mb=128,expandable_segments=true"
EXPANDABLE = with_conf(tune.EXPANDABLE)


@cache
def gpt2(*features: str, told: bool = True, torch: str = "2.9.1+cu128") -> Trace:
    """A trace for which expandable segments are best, of a program with these features."""
    trace = catalog.load("gpt2-train")
    extra = {key: value for key, value in trace.provenance.extra.items() if key != "features"}
    if told:
        extra["features"] = list(features)
    return replace(trace, provenance=replace(trace.provenance, extra=extra, torch=torch))


@pytest.mark.parametrize("feature", ["cuda_ipc", "mem_pool"])
def test_expandable_segments_are_ruled_out(feature: str) -> None:
    for spec in (EXPANDABLE, "caching:expandable_segments=true,max_split_size_mb=64"):
        assert breaks(spec, gpt2(feature))
        assert breaks(spec, gpt2()) is None
        assert breaks(spec, gpt2(told=False)) is None
    assert breaks("caching:max_split_size_mb=64", gpt2(feature)) is None
    assert breaks("bfc", gpt2(feature)) is None


@pytest.mark.parametrize(
    ("torch", "works"), [("", False), ("2.5.1", False), ("2.11.0+cu130", True), ("3.0.0", True)]
)
def test_a_pool_with_an_allocator_works_from_2_11_on(torch: str, works: bool) -> None:
    assert (breaks(EXPANDABLE, gpt2("mem_pool", torch=torch)) is None) == works
    assert breaks(EXPANDABLE, gpt2("cuda_ipc", torch=torch))


def test_recommend_leaves_them_out_and_says_why() -> None:
    free = studied(Runner(gpt2(), DEVICE), orders=0, budget=0)
    assert (free.advice.chosen, free.warnings) == (EXPANDABLE, ())
    bound = studied(Runner(gpt2("cuda_ipc"), DEVICE), orders=0, budget=0)
    assert bound.advice.chosen != EXPANDABLE
    assert EXPANDABLE not in set(bound.rows["allocator"])
    assert bound.warnings[0].startswith(f"not considered: {EXPANDABLE}: the program shares CUDA")
    unknown = studied(Runner(gpt2(told=False), DEVICE), orders=0, budget=0)
    assert "does not say whether the program uses CUDA IPC" in unknown.warnings[0]


def test_tune_does_not_try_them() -> None:
    found = tune.tune(Runner(gpt2("mem_pool"), "sim:80GiB"), "caching", budget=6)
    assert not any("expandable_segments:True" in conf(trial.spec) for trial in found.trials)
    found = tune.tune(Runner(gpt2(), "sim:80GiB"), "caching", budget=6)
    assert any("expandable_segments:True" in conf(trial.spec) for trial in found.trials)


def test_caveats() -> None:
    assert caveats("caching", gpt2(told=False)) == []
    assert caveats(EXPANDABLE, gpt2()) == []
    assert "custom all-reduce" in caveats(EXPANDABLE, gpt2("custom_all_reduce"))[0]
    split = "caching:max_split_size_mb=64,garbage_collection_threshold=0.8"
    (told,) = caveats(split, gpt2("sets_allocator"))
    assert "resets max_split_size_mb and garbage_collection_threshold" in told
    assert caveats(split, gpt2()) == []


def test_a_split_size_that_pytorch_refuses_is_refused() -> None:
    device = make_device("sim:1GiB")
    with pytest.raises(SpecError, match="max_split_size_mb=19 must be a whole number of at least"):
        allocators.make("caching:max_split_size_mb=19", device)
    with pytest.raises(SpecError, match="max_split_size_mb"):
        allocators.make("caching:conf=max_split_size_mb:19", device)
    allocators.make("caching:max_split_size_mb=20", device)


def test_cuda_async_is_called_a_model() -> None:
    told = [line for line in caveats("cuda_async", gpt2()) if "model" in line]
    assert len(told) == 1
    assert not modelled(["caching", "bfc"])
    assert modelled(["caching", "cuda_async:release_threshold=1MiB"]) == told


def growing_reserve() -> Trace:
    """60 times two blocks that come and go, and one of 2 MiB that stays (pytorch#193400)."""
    events: list[Event] = []
    for n in range(60):
        events += [(ALLOC, 3 * n, 95_420_416), (ALLOC, 3 * n + 1, 47_710_208)]
        events += [(ALLOC, 3 * n + 2, 2 * MIB), (FREE, 3 * n, 0), (FREE, 3 * n + 1, 0)]
    return make(events)


@pytest.mark.parametrize("recorded", [True, False])
def test_no_command_keeps_settings_whose_reserve_grows(recorded: bool) -> None:
    """On any device they fit only at first, although 358 MiB are enough."""
    trace, given = growing_reserve(), BOTH
    if recorded:
        settings = {"max_split_size_mb": "128", "expandable_segments": "true"}
        extra = {**trace.provenance.extra, "settings": settings}
        trace, given = replace(trace, provenance=replace(trace.provenance, extra=extra)), KEEP
    run = Runner(trace, DEVICE)
    found = best(run, given=given, budget=5)
    assert found.setting not in (None, given)
    assert found.advice.now in (RECORDED, GIVEN)
    assert "the default" not in " ".join(found.advice.lines)
    assert reserve_in_words(run, found.setting or "") == ""
    answer = check(trace, DEVICE, allocator=given)
    assert answer.verdict == "grows"
    assert [one.kind for one in answer.remedies] == ["setting"]
    for words in (answer.sentence, served(run, given, "it")):
        assert "max_split_size_mb with expandable_segments does that" in words
    if recorded:
        made = studied(Runner(trace, DEVICE), budget=5)
        assert made.advice.setting == found.setting
        assert any("expandable_segments does that" in line for line in made.warnings)
