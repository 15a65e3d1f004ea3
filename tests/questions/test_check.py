# SPDX-License-Identifier: Apache-2.0
"""allocbench check: the right verdict, the same numbers as fit, and remedies that hold."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from allocbench.base.cards import find
from allocbench.questions.check import check, shown
from allocbench.questions.explain import served
from allocbench.questions.whatif import whatif
from allocbench.replays.capacity import STEP
from allocbench.replays.runner import Runner
from allocbench.reports.advice.check import Answer, exit_code
from allocbench.workloads import ALLOC, FREE, MARK, Trace, catalog
from allocbench.workloads.coverage import Coverage
from allocbench.workloads.vocabulary import PrivatePool
from tests.questions import studied
from tests.questions.test_whatif import training
from tests.traces import Event, make

MIB, GIB = 1 << 20, 1 << 30


def program(**part: Any) -> Trace:
    """Five steps, each with 64 MiB beside weights of 128 MiB; part: of its coverage."""
    events: list[Event] = [(ALLOC, 0, 128 * MIB)]
    for step in range(1, 6):
        events += [(MARK, 1, 0), (ALLOC, step, 64 * MIB), (FREE, step, 0)]
    trace = make(events, labels=("", "step"))
    return replace(trace, coverage=Coverage(**part))


def growing(kept: int, steps: int = 10) -> Trace:
    events: list[Event] = []
    for step in range(steps):
        events += [(MARK, 1, 0), (ALLOC, 2 * step, 64 * MIB)]
        events += [(ALLOC, 2 * step + 1, kept)] if kept else []
        events += [(FREE, 2 * step, 0)]
    return make(events, labels=("", "step"))


def in_small_pieces() -> Trace:
    """7,200 blocks of 520 bytes, which PyTorch rounds to 1,024."""
    return make([(ALLOC, n, 520) for n in range(7200)])


def test_a_program_that_fits() -> None:
    answer = check(program(), "sim:1GiB")
    assert (answer.verdict, answer.exit_code) == ("fits", 0)
    assert (answer.need, answer.capacity, answer.bound) == (192 * MIB, GIB, False)
    assert answer.remedies == () == answer.unknown


@pytest.mark.parametrize(("pooled", "outside", "need"), [(64, 128, 192), (20, 512, 532)])
def test_memory_that_private_pools_keep(pooled: int, outside: int, need: int) -> None:
    """A block of a pool is freed before one is made outside of it; little is not worth a word."""
    events = [(4, 0, 0), (ALLOC, 0, pooled * MIB), (FREE, 0, 0), (ALLOC, 1, outside * MIB)]
    pool = np.array([1, 1, 1, 0], np.uint16)
    trace = make(events, pool=pool, pools=(PrivatePool("0.1"),))
    answer = check(trace, "sim:1GiB")
    assert answer.need == need * MIB
    told = "keeps 64.0 MiB that other requests cannot use: without private pools, the program"
    assert any(f"{told} needs 128 MiB" in line for line in answer.unknown) == (pooled == 64)


def test_a_program_whose_load_exceeds_the_card() -> None:
    answer = check(program(), "sim:190MiB")
    assert (answer.verdict, answer.exit_code) == ("too_big", 1)
    assert (answer.need, answer.capacity) == (192 * MIB, 190 * MIB)
    assert [(one.kind, one.change) for one in answer.remedies] == [("card", answer.card)]
    assert find(str(answer.card))[0].free > 192 * MIB
    close = check(program(), f"sim:{192 * MIB - 1}")
    assert "192 MiB in use at once, 1 B more than the device has" in close.sentence
    assert "192 MiB" in answer.sentence
    assert "190 MiB" in answer.sentence


def test_rounding_that_no_setting_cures() -> None:
    trace = in_small_pieces()
    assert trace.max_load == 3_744_000
    answer = check(trace, "sim:6MiB")
    assert (answer.verdict, answer.exit_code) == ("fragmented", 1)
    assert answer.need == 8 * MIB  # 7,200 KiB in segments of 2 MiB
    assert {one.kind for one in answer.remedies} <= {"card", "allocator"}
    for one in answer.remedies:
        if one.kind == "allocator":
            assert Runner(trace, "sim:6MiB").completes(one.change)
            assert one.costs


def test_a_setting_that_helps_is_that_of_recommend() -> None:
    trace = catalog.load("gpt2-train")
    answer = check(trace, "sim:8GiB")
    assert (answer.verdict, answer.exit_code) == ("fits_with_setting", 1)
    run = Runner(trace, "sim:8GiB")
    assert answer.need == run.min_capacity("caching")
    assert (answer.need or 0) > 8 * GIB >= trace.max_load
    setting, *others = answer.remedies
    advice = studied(Runner(trace, "sim:8GiB")).advice
    assert (setting.kind, setting.change, setting.tried) == ("setting", advice.setting, "replay")
    assert run.completes(setting.change)
    assert setting.need == run.min_capacity(setting.change)
    assert [one.kind for one in others] == ["card"]
    assert others[0].change == run.card("caching") == answer.card
    assert advice.allocator == "caching"


@pytest.mark.parametrize(("seed", "failed"), [(12, 0), (34, 1)])
def test_a_setting_that_fails_with_the_steps_in_another_order(seed: int, failed: int) -> None:
    rng, events = Random(seed), list[Event]()
    for step in range(5):
        live = set[int]()
        events.append((MARK, 0, 0))
        for number in range(6 * step, 6 * step + 6):
            events.append((ALLOC, number, rng.randrange(3, 40) * MIB))
            live.add(number)
            if rng.random() < 0.3:
                live.remove(freed := rng.choice(sorted(live)))
                events.append((FREE, freed, 0))
        events += [(FREE, one, 0) for one in sorted(live)]
    trace = make(events, labels=("step",))
    device = (
        f"sim:{Runner(trace, 'sim:1GiB').min_capacity('caching:conf=expandable_segments:True')}"
    )
    answer = check(trace, device, everything=True)
    (setting,) = [one.change for one in answer.remedies if one.kind == "setting"]
    others = Runner(trace, device).other_orders(3, 0)
    assert sum(not order.completes(setting) for order in others) == failed
    warning = f"With the steps in another order, this setting completes {3 - failed} of 3 traces."
    assert (warning in answer.unknown) == bool(failed)
    assert answer.rest is not None
    (tried,) = [one for one in answer.rest.trials if one.change == setting]
    assert (tried.fits, "in 1 of 3 other orders" in tried.note) == (True, bool(failed))


def test_a_setting_may_make_a_smaller_card_enough() -> None:
    trace = catalog.load("gpt2-train")
    small, plain = (one for one in check(trace, "sim:7GiB").remedies if one.kind == "card")
    run = Runner(trace, "sim:7GiB")
    assert (plain.change, plain.setting) == (run.card("caching"), "")
    assert small.setting == "expandable_segments:True"
    assert small.change == run.card(f"caching:conf={small.setting}")
    assert find(small.change)[0].usable < find(plain.change)[0].usable


@pytest.mark.parametrize(
    ("capacity", "kept", "verdict", "step"),
    [
        (600 * MIB, 64 * MIB, "grows", "in step 9"),  # 64 MiB in each, and 64 MiB of work
        (1 * GIB, 64 * MIB, "grows", "after step 15"),  # 704 MiB in 10 steps
        (1 * GIB, 512, "fits", "after step"),  # full after two million steps
        (600 * MIB, 512, "fits", "after step"),
    ],
)
def test_a_leak_counts_if_it_fills_the_device(
    capacity: int, kept: int, verdict: str, step: str
) -> None:
    answer = check(growing(kept), f"sim:{capacity}")
    assert answer.verdict == verdict
    assert step in " ".join([answer.sentence, *answer.unknown])


def test_a_leak_that_is_not_why_it_fails() -> None:
    assert check(growing(MIB), "sim:48MiB").verdict == "too_big"


@pytest.mark.parametrize(
    ("part", "device", "verdict"),
    [
        ({"begins": "later", "ends": "open"}, "sim:1GiB", "unknown"),
        ({"begins": "later", "ends": "open"}, "sim:128MiB", "too_big"),  # a bound proves it
        ({"ends": "open"}, "sim:1GiB", "fits"),  # five steps are enough to see
        ({"ends": "failure", "request": 64 * MIB}, "sim:1GiB", "unknown"),
        ({"begins": "later", "held": 2 * GIB, "live": 128 * MIB}, "sim:1GiB", "unknown"),
        ({"ends": "open", "allocs_missing": 1}, "sim:1GiB", "unknown"),
        ({"events": False, "live": 128 * MIB, "held": 2 * GIB}, "sim:1GiB", "unknown"),
        ({"events": False, "live": 128 * MIB, "held": 2 * GIB}, "sim:100MiB", "too_big"),
    ],
)
def test_a_part_of_a_program_never_fits_by_mistake(
    part: dict[str, Any], device: str, verdict: str
) -> None:
    answer = check(program(**part), device)
    assert answer.verdict == verdict
    assert answer.bound
    assert answer.unknown
    assert answer.exit_code == {"fits": 0, "too_big": 1, "unknown": 2}[verdict]


@pytest.mark.parametrize(
    ("device", "allocator", "verdict"),
    [
        ("sim:512MiB", "caching", "fragmented"),
        ("sim:400MiB", "caching", "fragmented"),
        ("sim:1GiB", "caching", "unknown"),  # more than the program had
        ("sim:512MiB", "caching:max_split_size_mb=64", "unknown"),  # not what it had
        ("sim:128MiB", "caching", "too_big"),
    ],
)
def test_a_request_that_failed_does_not_fit_although_a_replay_serves_it(
    device: str, allocator: str, verdict: str
) -> None:
    trace = program(ends="failure", request=64 * MIB, reserved=500 * MIB, device_free=12 * MIB)
    answer = check(trace, device, allocator=allocator)
    assert answer.verdict == verdict, answer.sentence
    if verdict == "fragmented":
        assert (
            "a request for 64.0 MiB by step failed when 512 MiB were reserved or free"
            in answer.sentence
        )
        assert answer.exit_code == exit_code([answer]) == 1
        assert answer.when == "when the request fails"


@pytest.mark.parametrize(("steps", "verdict"), [(2, "unknown"), (3, "fits")])
def test_three_steps_of_a_program_that_goes_on_show_its_need(steps: int, verdict: str) -> None:
    part = replace(growing(0, steps), coverage=Coverage(ends="open"))
    assert check(part, "sim:1GiB").verdict == verdict


def test_what_was_held_before_the_recording_is_the_least_need() -> None:
    run = Runner(program(begins="later", held=300 * MIB, live=128 * MIB), "sim:1GiB")
    assert run.min_capacity("caching") == run.min_capacity("naive") == 300 * MIB
    assert run.on("sim:256MiB").completes("caching") is False
    answer = check(run.trace, "sim:256MiB")
    assert answer.verdict == "unknown"
    assert "192 MiB" in answer.sentence  # the weights and the work of a step
    assert "needs" not in answer.sentence
    assert "does not fit" not in served(run.on("sim:256MiB"), "caching", "it")


def test_without_a_device_the_smallest_card_is_named() -> None:
    answer = check(catalog.load("gpt2-train"), None)
    assert (answer.verdict, answer.device) == ("fits", answer.card)
    assert answer.card == Runner(catalog.load("gpt2-train"), "sim:80GiB").card("caching")
    huge = check(make([(ALLOC, 0, 1 << 44)]), None)
    assert (huge.verdict, huge.device, huge.need) == ("too_big", "", 1 << 44)


def test_the_settings_of_the_user_are_the_program_as_it_is() -> None:
    trace = catalog.load("gpt2-train")
    answer = check(trace, "sim:8GiB", allocator="caching:expandable_segments=true")
    need = Runner(trace, "sim:8GiB").min_capacity("caching:expandable_segments=true")
    assert (answer.verdict, answer.need) == ("fits", need)


def test_one_capacity_below_the_need_does_not_fit() -> None:
    trace = catalog.load("llama3-8b-lora")
    need = Runner(trace, "sim:80GiB").min_capacity("caching")
    assert need is not None
    assert check(trace, f"sim:{need}").verdict == "fits"
    assert check(trace, f"sim:{need - STEP}").exit_code == 1


def test_the_exit_code_of_several_answers() -> None:
    def of(verdict: Any) -> Answer:
        return Answer("w", "d", verdict, "")

    assert exit_code([of("fits"), of("fits")]) == 0
    assert exit_code([of("fits"), of("unknown")]) == 2
    assert exit_code([of("unknown"), of("grows"), of("fits")]) == 1


def test_an_edit_of_the_program_is_a_change_that_helps() -> None:
    trace = training()
    card = round(0.8 * trace.max_load)
    answer = check(trace, f"sim:{card}")
    assert answer.verdict == "too_big"
    edits = [one for one in answer.remedies if one.kind == "edit"]
    assert {edit.tried for edit in edits} == {"estimate"}
    found = whatif(Runner(trace, f"sim:{card}"), "caching", capacity=card, settings=False).fitting
    assert found
    assert [(edit.change, edit.need) for edit in edits] == [(one.name, one.need) for one in found]
    later = replace(trace, coverage=Coverage(begins="later"))
    assert not any(one.kind == "edit" for one in check(later, f"sim:{card}").remedies)


def test_everything_that_was_tried() -> None:
    """The long answer agrees with the questions that it comes from."""
    trace = training()
    device = f"sim:{round(0.8 * trace.max_load)}"
    short = check(trace, device)
    answer = check(trace, device, everything=True)
    assert short.rest is None
    assert answer.rest is not None
    assert replace(answer, rest=None, holders=()) == replace(short, holders=())
    run = Runner(trace, device)
    trials = answer.rest.trials
    assert {one.kind for one in trials} == {"setting", "edit", "card", "allocator"}
    for one in trials:
        if one.kind in ("setting", "allocator") and one.need is not None:
            assert one.fits == run.completes(one.change), one
    edits = {one.change: one.fits for one in trials if one.kind == "edit"}
    found = whatif(Runner(trace, device), "caching", capacity=run.capacity, settings=False)
    assert found.enough is not None
    assert edits == {one.name: one.fits for one in found.proposals}
    cards = {one.change for one in trials if one.kind == "card" and one.fits}
    assert cards == set(run.cards("caching"))
    for remedy in answer.remedies:
        assert any(one.change == remedy.change and one.fits for one in trials), remedy


def test_every_place_that_holds_memory() -> None:
    places = [f"train.py:{line}" for line in range(1, 8)]
    events: list[Event] = [(ALLOC, n, (8 - n) * MIB) for n in range(7)]
    trace = make(events, label=np.arange(1, 8, dtype=np.uint32), labels=("", *places))
    (few,) = check(trace, "sim:1GiB").holders
    (every,) = check(trace, "sim:1GiB", everything=True).holders
    assert few.bytes == every.bytes == sum(range(2, 9)) * MIB
    assert few.places == every.places[:3]
    assert every.places == tuple((place, (8 - n) * MIB) for n, place in enumerate(places))


def test_a_program_for_no_card_has_everything_on_the_largest() -> None:
    answer = check(make([(ALLOC, 0, 1 << 44)]), None, everything=True)
    assert answer.verdict == "too_big"
    assert answer.rest is not None
    assert not any(one.fits for one in answer.rest.trials)


def test_what_is_enough_for_a_part_of_a_program_is_a_lower_bound() -> None:
    trace = training()
    device = f"sim:{round(0.8 * trace.max_load)}"
    for coverage, bound in ((Coverage(), False), (Coverage(ends="failure", request=MIB), True)):
        answer = check(replace(trace, coverage=coverage), device)
        assert len(answer.remedies) >= 2
        for one in answer.remedies:
            assert one.bound == ("at least" in one.outcome) == bound


def test_a_workspace_of_unknown_size_counts_where_it_may_not_fit() -> None:
    trace = make([(ALLOC, 0, 90 * MIB)])
    stopped = replace(trace, coverage=Coverage(workspace=4 * MIB))
    assert shown(stopped, 100 * MIB)  # 94 of 95
    assert not shown(replace(trace, coverage=Coverage(workspace=6 * MIB)), 100 * MIB)
    # Without one, a trace that nearly fills the device says as much as before.
    full = replace(trace, coverage=Coverage(frees_missing=0, shared=1))
    assert shown(full, 91 * MIB)
