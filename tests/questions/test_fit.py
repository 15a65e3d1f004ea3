# SPDX-License-Identifier: Apache-2.0
"""allocbench fit: the smallest device that is enough, checked by replays on it and just below."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from allocbench import allocators
from allocbench.base.cards import cards, context, find, label
from allocbench.inputs.devices import device_of
from allocbench.questions.fit import Bounds, bounds, fit
from allocbench.questions.occupancy import Outside, occupancy, ranks_of
from allocbench.replays.capacity import STEP, boundary, trial
from allocbench.replays.runner import Runner
from allocbench.reports.rows.results import records
from allocbench.workloads import ALLOC, FREE, Trace, catalog
from tests.commands import QUICK, error, folder, output
from tests.traces import Event, make

__all__ = ["folder"]  # the fixture, by its import

DEVICE = "sim:80GiB"
MIB = 1 << 20
SOME = ["gpt2-train", "llama3-8b-lora", "straddler", "sawtooth", "bomb-best-fit"]


@pytest.mark.parametrize("workload", SOME)
def test_the_answer_completes_and_2_mib_less_does_not(workload: str) -> None:
    trace = catalog.load(workload)
    found = fit(Runner(trace, DEVICE), allocators.names(), Bounds(trace.max_load, None))
    assert list(found["allocator"]) == allocators.names()
    for row in records(found):
        for more, failures in ((0, False), (-STEP, True)):
            device = allocators.SimulatedDevice(row["min_capacity"] + more)
            made = allocators.make(row["allocator"], device)
            stats = allocators.replay(trace, made).stats
            assert (stats.failures > 0) is failures, row["allocator"]
        assert row["min_capacity"] >= row["max_load"]
        assert row["overhead"] == row["min_capacity"] / row["max_load"]


def test_an_allocator_that_is_not_monotone_is_seen_through() -> None:
    trace = catalog.load("llm-decode")
    peak = allocators.replay(trace, allocators.make("free_lists", _device())).stats.peak_reserved
    found = boundary(enough_of(trace, "free_lists"), max_load=trace.max_load, peak_reserved=peak)
    assert found.capacity is not None
    assert found.fails_above
    assert found.fails_above == tuple(sorted(found.fails_above))
    for capacity in found.fails_above:
        assert capacity > found.capacity
        assert not trial(trace, "free_lists", DEVICE, capacity).completes
    low, high = trace.max_load // STEP, -(-peak // STEP)
    while high - low > 1:  # what bisection alone ends at
        middle = (low + high) // 2
        enough = trial(trace, "free_lists", DEVICE, middle * STEP).completes
        low, high = (low, middle) if enough else (middle, high)
    assert found.capacity < high * STEP
    (row,) = records(fit(Runner(trace, DEVICE), ["free_lists"], bounds(trace)))
    assert row["min_capacity"] == found.capacity
    assert row["fails_above"] > min(
        Runner(trace, DEVICE).boundary("free_lists", above=True).fails_above
    )


@pytest.mark.parametrize("spec", ["bfc", "caching", "naive", "free_lists:buffer=8MiB", "arena"])
def test_on_a_small_trace_no_capacity_at_all_is_missed(spec: str) -> None:
    trace = _blocks(300, seed=5)
    answers = {
        n: trial(trace, spec, DEVICE, n * STEP).completes
        for n in range(1, 2 * 16 * MIB * 40 // STEP)
    }
    smallest = min(n for n, enough in answers.items() if enough) * STEP
    found = boundary(enough_of(trace, spec), max_load=trace.max_load, peak_reserved=trace.max_load)
    assert found.capacity == smallest
    assert {answers[n // STEP] for n in found.fails_above} <= {False}


def test_a_trace_that_no_device_holds_has_no_answer() -> None:
    trace = make([(ALLOC, 0, 2 * MIB)])
    (row,) = records(fit(Runner(trace, "sim:80GiB,fail_above=1MiB"), ["naive"], bounds(trace)))
    assert row["min_capacity"] is None
    assert row["cards"] == ()


def test_cards_are_those_on_which_it_completes() -> None:
    assert [card.usable for card in cards()] == sorted(card.usable for card in cards())
    smallest = cards()[0]
    exactly = make([(ALLOC, 0, smallest.free)])
    (row,) = records(fit(Runner(exactly, DEVICE), ["naive"], bounds(exactly)))
    assert row["cards"] == tuple(card.name for card in cards())
    assert row["card"] == smallest.name
    run = Runner(make([(ALLOC, 0, smallest.free + 1)]), DEVICE)
    (row,) = records(fit(run, ["naive"], bounds(run.trace)))
    assert smallest.name not in row["cards"]
    assert context(smallest.name) == smallest.usable - smallest.free > 0


def test_a_card_can_be_the_device() -> None:
    (card,) = find("rtx-3060")
    (row,) = json.loads(
        output(f"replay good.csv --allocator naive --device card:rtx-3060 {QUICK} --json -")
    )
    assert row["device"] == card.device
    assert allocators.make_device(card.device).capacity == card.free
    assert label(device_of("card:rtx-3060,costs=h100")) == f"{card.name} (costs=h100)"
    made = allocators.make_device(device_of("card:rtx-3060,addresses=up,costs=h100"))
    assert (made.capacity, made.cost_source) == (card.free, "h100")
    assert label(device_of("h100")) == label(device_of("card:h100")) == "H100 SXM 80GB"
    assert "they are A100 40GB, A100 80GB" in error("fit good.csv --device a100")
    assert "no such card" in error("fit good.csv --device card:nosuch")


def test_bounds_are_the_max_load_and_a_plan_above_it() -> None:
    trace = _blocks(40, seed=2)
    found = bounds(trace, 1.0)
    assert found.plan is not None
    assert found.max_load == trace.max_load <= found.plan.height
    assert bounds(trace, 0).plan is None


def test_what_is_outside_of_the_allocator_decides_the_card() -> None:
    small, *_, large = cards()
    lacking = small.usable - (1 << 20)
    line = "fit good.csv --allocators caching --time-limit 0 --json -"
    (row,) = json.loads(output(line))
    assert row["card"] == small.name
    assert (row["context"], row["nccl"], row["other"]) == (small.context, 0, 0)
    (row,) = json.loads(output(f"{line} --context 1GiB --nccl 64MiB --other {lacking}"))
    assert row["card"] not in (None, small.name)
    assert (row["context"], row["nccl"], row["other"]) == (1 << 30, 64 << 20, lacking)
    assert row["reserved"] >= row["min_capacity"]
    (row,) = json.loads(output(f"{line} --other {large.usable}"))
    assert row["card"] is None
    assert row["reserved"] is None
    assert "Invalid value for '--other': 'much' is not a number of bytes" in error(
        "fit good.csv --other much"
    )


def test_the_parts_of_a_card_add_up() -> None:
    trace = catalog.load("gpt2-train")
    (card,) = find("RTX 4090")
    outside = Outside(other=MIB, ranks=8)
    found = occupancy(Runner(trace, DEVICE), "caching", card, outside)
    parts = card.context, card.nccl(8), MIB
    assert card.nccl(8) == 2 * 2 * (12 << 20)  # channels, peers, buffers of a connection
    assert found.fits
    assert found.in_use == found.reserved + sum(parts)
    device = allocators.SimulatedDevice(card.usable - sum(parts))
    replayed = allocators.replay(trace, allocators.make("caching", device)).stats
    assert found.reserved == replayed.peak_reserved
    full = occupancy(Runner(trace, DEVICE), "caching", card, Outside(other=card.usable))
    assert not full.fits
    assert full.reserved == full.needed


def test_nccl_has_buffers_for_several_ranks_only() -> None:
    (a100,) = find("A100 40GB")
    assert [a100.nccl(ranks) >> 20 for ranks in (1, 2, 4, 64)] == [0, 544, 688, 688]
    (mi300,) = find("MI300X")
    assert mi300.nccl(8) == 0
    trace = make([(ALLOC, 0, 1)])
    told = replace(trace.provenance, extra={"rank": "0", "world": "16"})
    assert ranks_of(replace(trace, provenance=told)) == 16
    assert ranks_of(trace) == 1


def enough_of(trace: Trace, spec: str) -> Callable[[int], bool]:
    return lambda capacity: trial(trace, spec, DEVICE, capacity).completes


def _device() -> allocators.SimulatedDevice:
    return allocators.SimulatedDevice("80GiB")


def _blocks(count: int, seed: int) -> Trace:
    """Allocs of up to 16 MiB, each freed up to 40 allocs later."""
    random = np.random.default_rng(seed)
    when = np.concatenate([np.arange(count), np.arange(count) + random.integers(1, 40, count)])
    events: list[Event] = []
    for at in np.argsort(when, kind="stable").tolist():
        size = int(np.exp(random.uniform(0, np.log(16 * MIB)))) + 1
        events.append((ALLOC, at, size) if at < count else (FREE, at - count, 0))
    return make(events)
