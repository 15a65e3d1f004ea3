# SPDX-License-Identifier: Apache-2.0
"""A trial on one capacity says what happens on all of its range, and nothing beyond it."""

from random import Random

import pytest

from allocbench import allocators
from allocbench.replays.capacity import Shown, trial
from allocbench.replays.runner import Runner
from allocbench.workloads import Trace, catalog
from tests.random_events import events
from tests.traces import decoding, training

LARGEST = 1 << 44
SPECS = (
    *allocators.names(allocators.SimulatedDevice("1GiB")),
    "caching:expandable_segments=true",
    "caching:expandable_segments=true,expandable_segments_reserve=0.4",
    "caching:throw_on_cudamalloc_oom=true",
    "caching:max_split_size_mb=32,roundup_power2_divisions=4",
    "caching:per_process_memory_fraction=0.9,garbage_collection_threshold=0.6",
    "bfc:preset=onnxruntime,garbage_collection=true",
    "rmm_pool:initial_pool_size=1MiB",
    "xla_vmm:memory_fraction=0.75",
    "limit:bytes=64MiB,of=caching:expandable_segments=true",
)
TRACES = {"steps": training(3), "random": events(600), "decoding": decoding(1)}


def _seen(trace: Trace, spec: str, device: str) -> tuple[object, ...]:
    made = allocators.make(spec, allocators.make_device(device))
    event = allocators.failing_event(trace, made)
    result = allocators.replay(trace, allocators.make(spec, allocators.make_device(device)))
    stats, calls = result.stats, result.device
    return (
        event,
        stats.peak_reserved,
        stats.failures,
        stats.retries,
        calls.calls,
        result.peak.largest_free,
    )


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("spec", SPECS)
def test_all_capacities_of_a_range_give_the_same(spec: str, name: str) -> None:
    trace, chance = TRACES[name], Random(f"{spec} {name}")
    peak = max(trace.max_load, 1 << 20)
    for _ in range(5):
        capacity = chance.randint(peak // 2, 3 * peak)
        options = chance.choice(("", ",page=2MiB", ",addresses=up"))
        device = allocators.make_device(f"sim:{capacity}{options}")
        made = allocators.make(spec, device)
        allocators.replay(trace, made)
        first, below = device.same_answers
        assert first <= capacity < below
        expected = _seen(trace, spec, f"sim:{capacity}{options}")
        last = min(below - 1, LARGEST)
        for other in {first, last, chance.randint(first, last)} - {capacity, 0}:
            assert _seen(trace, spec, f"sim:{other}{options}") == expected, (capacity, other)


def test_a_range_ends_where_the_device_answers_otherwise() -> None:
    trace = training(3)
    made = trial(trace, "naive", "sim:1GiB", 1 << 30)
    assert made == Shown(True, trace.max_load, made.below)
    assert made.below > 1 << 40
    refused = trial(trace, "naive", "sim:1GiB", trace.max_load - 1)
    assert refused.completes is False
    assert refused.below <= trace.max_load


def test_a_search_makes_few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counting(*given: object) -> Shown:
        made.append(int(str(given[3])))
        return trial(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("allocbench.replays.runner.trial", counting)
    runner = Runner(catalog.load("gpt2-train"), "sim:80GiB")
    assert runner.min_capacity("caching") == 8_849_981_440
    assert len(made) < 12
