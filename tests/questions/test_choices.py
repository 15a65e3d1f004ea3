# SPDX-License-Identifier: Apache-2.0
"""Choices among trials and failures of replays: properties, and the rules taken word by word."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allocbench.questions.failure import first_failure
from allocbench.questions.tune import Trial, Tuned, best, front
from allocbench.replays.runner import Runner
from allocbench.reports.advice.choosing import PROGRAM_SECONDS
from allocbench.reports.rows.assumptions import Cost, Estimate
from allocbench.workloads import ALLOC, FREE, Trace
from tests.traces import valid_traces

PAGE = Cost("map", 2 << 20, 1e-6 / 3, 1e-6, 3e-6)
SPECS = ("caching:", "caching:a=1,", "caching:conf=b:1,", "bfc:x=1,y=2,")


@st.composite
def trials(draw: st.DrawFn) -> list[Trial]:
    """Needs and times that are often equal, or within a percent or 5 % of one another."""
    found = []
    for number in range(draw(st.integers(1, 7))):
        pages = draw(st.integers(0, 6))
        seconds = pages * PROGRAM_SECONDS / 40
        found.append(
            Trial(
                f"{draw(st.sampled_from(SPECS))}n={number}" if number else "caching",
                draw(st.sampled_from([None, 1000, 1000, 1010, 1011, 2000])),
                seconds,
                draw(st.sampled_from([0, 0, 0, 1])),
                estimate=draw(st.sampled_from([None, Estimate(0, {PAGE: seconds / 1e-6})])),
                failed_orders=draw(st.sampled_from([0, 0, 0, 2])),
            )
        )
    return found


def tuned(default: Trial, found: list[Trial]) -> Tuned:
    """A search that found these capacities exactly."""
    return Tuned(default, [default, *found], frozenset(one.spec for one in found), False)


@given(trials())
def test_the_best_trial_by_the_rule_whatever_the_order(given: list[Trial]) -> None:
    """At most 1 % more than the least, then at most 5 % slower, then fewest settings."""
    served = [one for one in given if not one.failures and not one.failed_orders and one.capacity]
    chosen = best(given)
    again = best(given[::-1])
    assert (again is None) is (chosen is None)
    if chosen and again:  # of trials that are equal in all that counts, any
        assert (chosen.settings, chosen.capacity) == (again.settings, again.capacity)
        assert chosen.device_seconds == again.device_seconds
    if not served:
        assert chosen is None
        assert front(given) == []
        return
    assert chosen in served
    least = min(one.capacity or 0 for one in served)
    near = [one for one in served if 100 * (one.capacity or 0) <= 101 * least]
    pace = min(one.device_seconds for one in near) + PROGRAM_SECONDS
    quick = [one for one in near if one.device_seconds + PROGRAM_SECONDS <= 1.05 * pace]
    assert chosen in quick
    fewest = min(one.spec.count("=") for one in quick)
    assert chosen.settings == fewest
    for one in quick:
        if one.settings == fewest:
            assert (chosen.capacity or 0, chosen.device_seconds) <= (
                one.capacity or 0,
                one.device_seconds,
            )


@given(trials())
def test_the_front_dominates_all_others_and_itself_nowhere(given: list[Trial]) -> None:
    served = [one for one in given if one.serves]
    kept = front(given)
    assert [one.capacity for one in kept] == sorted({one.capacity or 0 for one in kept})

    def no_worse(one: Trial, other: Trial) -> bool:
        return (one.capacity or 0) <= (other.capacity or 0) and (
            one.device_seconds <= other.device_seconds
        )

    assert all(any(no_worse(one, other) for one in kept) for other in served)
    assert not any(no_worse(one, other) for one in kept for other in kept if one is not other)
    for one in kept:
        same = [
            other.settings
            for other in served
            if (other.capacity, other.device_seconds) == (one.capacity, one.device_seconds)
        ]
        assert one.settings == min(same)


@given(trials())
def test_rivals_could_be_over_5_percent_quicker_with_other_costs(given: list[Trial]) -> None:
    """A page costs from a third to three times as much as is assumed."""
    chosen = best(given)
    if chosen is None:
        return
    served = [one for one in given if one.serves]
    least = min(one.capacity or 0 for one in served)
    wanted = []
    for one in served:
        ends = []
        for cost in (1 / 3, 3):
            mine, its = (
                other.device_seconds * (cost if other.estimate else 1) + PROGRAM_SECONDS
                for other in (one, chosen)
            )
            ends.append(1.05 * mine < its * (1 - 1e-12))
        if any(ends) and 100 * (one.capacity or 0) <= 101 * least:
            wanted.append(one)
    found = tuned(Trial("caching:failed=1", None, 0, 1), given).rivals
    assert {one.spec for one in found} == {one.spec for one in wanted}
    keys = [(one.capacity or 0, one.settings) for one in found]
    assert keys == sorted(keys)


@given(trials())
def test_what_helps_needs_over_a_percent_less(given: list[Trial]) -> None:
    for one in given:
        for other in given:
            less = 101 * (one.capacity or 0) < 100 * (other.capacity or 0)
            assert tuned(other, [one]).helps is (one.serves and (less or not other.serves))


def small(trace: Trace) -> Trace:
    sizes = np.where(trace.size > 0, trace.size % np.uint64(1 << 24) + np.uint64(1), 0)
    return replace(trace, size=sizes.astype(np.uint64))


@settings(max_examples=60)
@given(valid_traces(plain=True).filter(lambda trace: trace.allocs), st.integers(1, 1 << 28))
def test_more_memory_never_fails_sooner_and_a_free_never_raises_the_need(
    drawn: Trace, capacity: int
) -> None:
    trace = small(drawn)
    events = [
        len(trace) if found is None else found.event
        for found in (first_failure(trace, "naive", f"sim:{capacity * n}") for n in (1, 2, 3))
    ]
    assert events == sorted(events)
    loads = trace.load.tolist()
    fits = [load <= capacity for load in loads]
    assert events[0] == (fits.index(False) if False in fits else len(trace))
    live = set(trace.block[trace.op == ALLOC].tolist())
    last = {block: n for n, block in enumerate(trace.block.tolist())}
    ended = {block for block, n in last.items() if trace.op[n] == FREE}
    more = sorted(live - ended)[:1]
    freed = Trace(
        op=np.append(trace.op, np.full(len(more), FREE, np.uint8)),
        block=np.append(trace.block, np.array(more, np.uint32)),
        size=np.append(trace.size, np.zeros(len(more), np.uint64)),
        stream=np.append(trace.stream, np.zeros(len(more), np.uint16)),
    )
    needs = [Runner(one, "sim:1TiB").min_capacity("naive") for one in (trace, freed)]
    assert needs[0] == needs[1] == -(-trace.max_load // (2 << 20)) * (2 << 20)
