# SPDX-License-Identifier: Apache-2.0
"""allocbench.replays.experiment and allocbench.replays.capacity: the numbers of a run."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocbench import allocators
from allocbench.allocators import Allocator
from allocbench.replays import capacity, experiment
from allocbench.replays.experiment import Effort
from allocbench.replays.timing import time_passes
from allocbench.reports.rows import results
from allocbench.reports.rows.assumptions import of_row
from allocbench.reports.rows.results import SCHEMA
from allocbench.workloads import ALLOC, FREE, MARK, Trace, catalog
from tests.allocators.test_replay import program
from tests.traces import Event, make, valid_traces

GIB = 1 << 30
BYTES_ONLY = Effort(passes=0)
PLAN = {name for name, column in SCHEMA.items() if column.group == "plan"}
HOST_TIME = {name for name, column in SCHEMA.items() if column.group in ("latency", "time")}
# Live bytes: 100, 400, 300, 350, 50, 0.
TINY: list[Event] = [
    (ALLOC, 0, 100),
    (ALLOC, 1, 300),
    (FREE, 0, 0),
    (ALLOC, 0, 50),
    (FREE, 1, 0),
    (FREE, 0, 0),
]


def run(trace: Trace, allocator: str, device: str = "sim:1GiB", **kwargs: Any) -> Any:
    return experiment.run(trace, allocator, device, kwargs.pop("effort", BYTES_ONLY), **kwargs)[0]


def churn(blocks: int = 400, seed: int = 1) -> Trace:
    """Allocs of up to 16 MiB, each freed about 40 allocs later, in shuffled order."""
    random = np.random.default_rng(seed)
    when = np.concatenate([np.arange(blocks), np.arange(blocks) + random.integers(1, 80, blocks)])
    events: list[Event] = []
    for at in np.argsort(when, kind="stable"):
        size = int(np.exp(random.uniform(0, np.log(16 << 20)))) + 1
        events.append((ALLOC, at, size) if at < blocks else (FREE, at - blocks, 0))
    return make(events)


@pytest.mark.parametrize("name", allocators.names())
def test_a_row_has_every_column_of_the_schema_and_measured_ones_are_numbers(name: str) -> None:
    row = run(churn(), name, workload="churn", effort=Effort(passes=2))
    assert list(row) == list(SCHEMA)
    missing = {key for key, value in row.items() if value is None}
    plan = PLAN if name not in {"arena", "planned"} else set()
    keeps = allocators.info(name).keeps_free_blocks
    external = {"external_fragmentation", "external_fragmentation_mean"}
    no_steps = {"repeat_rate", "stable_address_share", "stable_address_bytes_share"}
    recorded = {"settings", "begins_with", "coverage"}
    of_all_rows = {"recommended", "best_setting", "best_allocator"}
    of_all_rows |= {"setting_advice", "allocator_advice", "orders_advice"}
    unknown = {"unavailable"} | of_all_rows | recorded | no_steps
    assert missing == unknown | plan | (set() if keeps else external)
    assert row["passes"] == 2
    assert row["alloc_count"] == row["free_count"] == row["blocks"] == 400
    assert row["candidate"] is allocators.info(name).candidate


def test_naive_rows_equal_the_numbers_worked_out_by_hand() -> None:
    row = run(make(TINY), "naive", workload="tiny")
    expected = {
        "workload": "tiny",
        "allocator": "naive",
        "device": "sim:1GiB",
        "device_kind": "simulated",
        "events": 6,
        "blocks": 3,
        "candidate": True,
        "max_load": 400,
        "peak_requested": 400,
        "peak_allocated": 400,
        "peak_reserved": 400,
        "stranded": 0,
        "overhead": 1.0,
        "min_capacity": capacity.STEP,
        "internal_fragmentation": 0.0,
        "internal_fragmentation_mean": 0.0,
        "external_fragmentation": None,
        "external_fragmentation_mean": None,
        "utilization": 1.0,
        "utilization_at_peak": 1.0,
        "failures": 0,
        "retries": 0,
        "device_calls": 6,
        "device_calls_steady": 6,
        "device_seconds_source": "estimate",
    }
    assert {key: row[key] for key in expected} == expected
    assert row["device_seconds"] > 0


def test_buddy_fragmentation_at_the_peak_is_what_its_rules_say() -> None:
    # A region of 1 GiB holds two blocks of 1 KiB at first, when reserved bytes first peak: one.
    row = run(make(TINY), "buddy")
    assert row["peak_reserved"] == GIB
    assert row["stranded"] == GIB - 1024
    assert row["internal_fragmentation"] == (1024 - 100) / 1024
    free = GIB - 1024
    assert row["external_fragmentation"] == pytest.approx((free - GIB / 2) / free)
    assert row["utilization"] == 2048 / GIB
    assert row["utilization_at_peak"] == 1024 / GIB
    assert row["overhead"] == GIB / 400


def test_no_passes_means_no_host_time() -> None:
    row = run(make(TINY), "bfc")
    assert {key for key in HOST_TIME if row[key] is not None} == {"passes"}
    assert row["passes"] == 0
    assert BYTES_ONLY.stages == ("replay", "min capacity")


def test_min_capacity_is_left_out_on_demand() -> None:
    assert run(make(TINY), "bfc", effort=Effort(0, capacity=False))["min_capacity"] is None


def test_of_the_passes_the_minimum_and_the_median_count(monkeypatch: pytest.MonkeyPatch) -> None:
    between = 99.0  # the pass between a cold and a steady one
    turns = [3.0, between, 30.0, 1.0, between, 20.0, 2.0, between, 10.0]
    seconds = iter(turns)
    monkeypatch.setattr(allocators, "time_pass", lambda trace, allocator: next(seconds))
    row = run(churn(), "bfc", effort=Effort(passes=3))
    assert [row[f"seconds_per_event_{kind}"] for kind in ("cold", "steady")] == [1, 10]
    assert [row[f"seconds_per_event_{kind}_median"] for kind in ("cold", "steady")] == [2, 20]


def test_failures_are_counted_and_take_the_overhead_away() -> None:
    row = run(make(TINY), "naive", "sim:350")
    assert row["failures"] == 1
    assert row["max_load"] == 400
    assert row["peak_requested"] == 100
    assert row["overhead"] is None
    assert row["min_capacity"] == capacity.STEP


def test_the_arena_says_what_was_planned() -> None:
    step: list[Event] = [(MARK, 0, 0), (ALLOC, 0, 512), (FREE, 0, 0)]
    row = run(make(step * 3, labels=("step",)), "arena")
    assert row["planned_requests"] == 2
    assert row["fallback_requests"] == 1
    assert (row["planned_bytes"], row["fallback_bytes"]) == (1024, 512)


@pytest.mark.parametrize("name", allocators.names())
def test_a_trace_completes_at_min_capacity_and_not_below(name: str) -> None:
    trace = churn()
    found = run(trace, name)["min_capacity"]
    assert found % capacity.STEP == 0
    assert found >= run(trace, name)["max_load"]
    assert run(trace, name)["min_capacity"] == found

    def completes(size: int) -> bool:
        return allocators.completes(trace, allocators.make(name, allocators.SimulatedDevice(size)))

    assert completes(found)
    assert not completes(found - capacity.STEP)


def test_naive_needs_the_max_load_and_no_more() -> None:
    row = run(churn(), "naive")
    assert row["min_capacity"] == -(-row["max_load"] // capacity.STEP) * capacity.STEP


def test_min_capacity_is_found_above_a_device_that_was_too_small() -> None:
    trace = churn()
    assert (
        run(trace, "bfc", "sim:16MiB")["min_capacity"]
        >= run(trace, "bfc", "sim:16MiB")["max_load"]
        > 16 << 20
    )


def test_min_capacity_is_none_where_no_capacity_is_enough() -> None:
    assert run(make(TINY), "naive", "sim:1GiB,fail_call=2")["min_capacity"] is None
    assert run(churn(), "bfc:memory_limit=4MiB")["min_capacity"] is None


def test_other_device_options_hold_on_every_capacity() -> None:
    spec = capacity.with_capacity("sim:80GiB,alignment=4KiB,fail_call=7", 4096)
    assert spec == "sim:capacity=4096,alignment=4KiB,fail_call=7"
    assert allocators.make_device(spec).capacity == 4096


@settings(max_examples=30)
@given(valid_traces(), st.sampled_from(allocators.names()), st.integers(24, 40))
def test_rows_of_any_trace_are_strict_json_and_keep_to_the_bounds(
    trace: Trace, name: str, bits: int
) -> None:
    size = np.where(trace.size > 0, trace.size % 2**34 + 1, 0).astype(np.uint64)
    row = run(dataclasses.replace(trace, size=size), name, f"sim:{2**bits}", workload="drawn")
    json.dumps(row, allow_nan=False)
    results.frame([row])
    assert (row["overhead"] is None) == (row["failures"] > 0 or row["max_load"] == 0)
    assert row["overhead"] is None or row["overhead"] >= 1
    assert row["failures"] > 0 or row["peak_requested"] == row["max_load"]
    assert row["peak_requested"] <= row["peak_allocated"] <= row["peak_reserved"] <= 2**bits
    for key, column in SCHEMA.items():
        assert not column.fraction or row[key] is None or 0 <= row[key] <= 1


@pytest.mark.parametrize("workload", catalog.names())
def test_bundled_workloads_complete_on_the_default_device(workload: str) -> None:
    row = run(catalog.load(workload), "bfc", "sim:80GiB", effort=Effort(0, capacity=False))
    assert row["failures"] == 0
    assert row["overhead"] >= 1


def test_means_and_totals_are_what_their_definitions_say() -> None:
    trace = catalog.load("resnet50-train")
    row = run(trace, "caching", "sim:80GiB")
    made = allocators.make("caching", allocators.make_device("sim:80GiB"))
    stride = max(1, len(trace) // 1000)
    address: dict[int, int] = {}
    external: list[float] = []
    internal: list[float] = []
    events = zip(trace.op.tolist(), trace.block.tolist(), trace.size.tolist(), strict=True)
    for number, (op, block, size) in enumerate(events):
        if op == ALLOC:
            address[block] = made.allocate(size)
        elif op == FREE:
            made.deallocate(address.pop(block))
        else:
            continue
        stats = made.stats()
        lost = stats.allocated - stats.requested
        internal.append(lost / stats.allocated if stats.allocated else 0.0)
        if number % stride == 0 or number + 1 == len(trace):
            free = stats.reserved - stats.allocated
            external.append((free - made.largest_free()) / free if free else 0.0)
    assert stride > 1
    assert row["external_fragmentation_mean"] == pytest.approx(sum(external) / len(external))
    assert row["internal_fragmentation_mean"] == pytest.approx(sum(internal) / len(internal))
    seconds = made.device.stats().seconds
    assert row["device_seconds"] == pytest.approx(seconds)
    estimate = of_row(row)
    assert estimate is not None
    assert estimate.seconds == pytest.approx(seconds, rel=1e-12)
    ends = row["device_seconds_low"], row["device_seconds_high"]
    assert ends == (estimate.low, estimate.high)
    assert 0 < estimate.low < seconds < estimate.high
    assert row["device_seconds_per_event"] == pytest.approx(seconds / len(trace))
    assert row["wasted"] == row["peak_reserved"] - row["max_load"]
    ratio = 1 - row["peak_allocated"] / row["peak_reserved"]
    assert row["fragmentation_ratio"] == pytest.approx(ratio, rel=1e-12)


def test_equal_allocators_take_turns_and_have_a_range() -> None:
    turns: list[str] = []
    trace = churn(20)
    times = time_passes(trace, dict.fromkeys(["naive", "bfc"], "sim:1GiB"), 3, turns.append)
    assert turns == ["naive", "bfc"]
    for row in (found.row for found in times.values()):
        for which in ("cold", "steady"):
            name = f"seconds_per_event_{which}"
            assert 0 < row[name] <= row[f"{name}_median"] <= row[f"{name}_max"]
        for name in ("alloc_p50_seconds", "free_p99_seconds", "alloc_max_seconds"):
            assert 0 < row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
        assert "device_seconds" not in row  # an estimate is the same in each pass


@pytest.mark.parametrize("spec", ["bfc", "caching", "cuda_async", "bump"])
def test_the_device_calls_of_a_steady_replay_are_counted_with_and_without_times(spec: str) -> None:
    """Also where `bump` fails, which is timed on a larger device, and the driver places blocks."""
    trace = program()
    counted, timed = (
        experiment.run(trace, spec, "sim:12MiB", Effort(passes, capacity=False))[0]
        for passes in (0, 1)
    )
    assert counted["device_calls_steady"] == timed["device_calls_steady"]
    assert (spec != "bump") or counted["failures"]


def test_each_pass_begins_with_another_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[str] = []

    def one(trace: Trace, allocator: Allocator) -> float:
        passes.append(allocator.info.name)
        return 1.0

    monkeypatch.setattr(allocators, "time_pass", one)
    specs = ["naive", "bfc", "slab"]
    devices = dict.fromkeys([*specs, "cuda_async"], "sim:1GiB")
    found = time_passes(churn(20), devices, 4, single_calls=False)
    turns = [0, 1, 2, 1, 2, 0, 2, 0, 1, 0, 1, 2]
    assert passes == [specs[n] for n in turns for _ in ("cold", "learning", "steady")]
    assert found["cuda_async"].row == {}  # where its blocks are is the model's choice
    assert found["bfc"].row["seconds_per_event_cold_max"] == 1
    assert time_passes(churn(20), {}, 2) == {}


def test_the_statistics_of_calls_are_the_medians_of_the_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes = iter([4.0, 1.0, 3.0])

    def told(trace: Trace, allocator: Allocator, seen: Callable[..., None]) -> float:
        seconds = np.full(20, next(passes), np.float32)
        seen(seconds, 2 * seconds)
        return 0.5

    monkeypatch.setattr(allocators, "time_calls", told)
    row = time_passes(churn(20), {"bfc": "sim:1GiB"}, 3)["bfc"].row
    for name in ("mean", "p50", "p90", "p99", "p999", "max"):
        column = f"alloc_{name}_seconds"
        assert [row[column], row[f"{column}_low"], row[f"{column}_high"]] == [3, 1, 4]
        assert row[f"free_{name}_seconds"] == 6
    assert (row["alloc_count"], row["timer_seconds"]) == (20, 0.5)
