# SPDX-License-Identifier: Apache-2.0
"""allocbench explain: constructed failures whose cause is known."""

import numpy as np
import pytest

from allocbench import allocators
from allocbench.questions import search_space
from allocbench.questions.explain import Explanation, explain, pins, verdict
from allocbench.questions.failure import before, first_failure
from allocbench.replays.runner import Runner, can_be_made
from allocbench.workloads import ALLOC, FREE, MARK, Trace, catalog
from tests.commands import folder
from tests.traces import Event, make

__all__ = ["folder"]  # the fixture, by its import

MIB = 1 << 20


def explained(trace: Trace, allocator: str, device: str) -> Explanation:
    found = explain(Runner(trace, device), allocator)
    assert found is not None
    check_changes(found, trace, device)
    return found


def check_changes(found: Explanation, trace: Trace, device: str) -> None:
    """The result of each change is confirmed by a replay."""
    for change in found.changes:
        made = allocators.make(change.spec, allocators.make_device(device))
        placed = allocators.replay(trace, made, placements=True).placements["size"]
        number = int(np.count_nonzero(trace.op[: found.failure.event] == ALLOC))
        assert change.completes is bool((placed > 0).all()), change
        assert change.passes is bool((placed[: number + 1] > 0).all()), change


def test_no_change_is_tried_on_a_full_device() -> None:
    trace = make([(ALLOC, 0, 6 * MIB), (ALLOC, 1, 3 * MIB), (FREE, 1, 0), (ALLOC, 2, 5 * MIB)])
    found = explained(trace, "naive", "sim:10MiB")
    assert (found.kind, found.failure.event) == ("full", 3)
    assert (found.failure.live, found.failure.requested) == (6 * MIB, 5 * MIB)
    assert (found.failure.reserved, found.failure.room) == (6 * MIB, 4 * MIB)
    assert found.changes == []
    assert found.leak is None
    assert pins(found).empty
    assert "1.00 MiB more than its 10.0 MiB" in verdict(found)


def test_memory_in_two_pieces_is_pinned_by_the_one_block_between() -> None:
    events = [(ALLOC, 0, 24 * MIB), (ALLOC, 1, MIB), (ALLOC, 2, 30 * MIB), (FREE, 0, 0)]
    events += [(FREE, 2, 0), (ALLOC, 0, 40 * MIB), (FREE, 1, 0)]
    trace = make(events, labels=("", "left", "pin", "right", "big"))
    label = np.array([1, 2, 3, 1, 3, 4, 2], np.uint32)
    trace = make(events, labels=trace.labels, label=label)
    found = explained(trace, "bfc:allow_growth=false", "sim:64MiB")
    failure = found.failure
    assert (found.kind, failure.event, failure.operator) == ("fragmentation", 5, "big")
    assert (failure.reserved, failure.room, failure.allocated) == (64 * MIB, 0, MIB)
    assert (failure.free, failure.largest_free) == (63 * MIB, 39 * MIB)
    (pin,) = pins(found).to_dict("records")
    assert {key: pin[key] for key in ("block", "size", "event", "operator", "freed")} == {
        "block": 1,
        "size": MIB,
        "event": 1,
        "operator": "pin",
        "freed": 6,
    }
    assert "naive" in [change.spec for change in found.saved_by]
    assert "The request would fit without 1 block (1.00 MiB)" in verdict(found)
    assert found.min_capacity is not None
    assert found.min_capacity > 64 * MIB


def test_waste_of_rounding_is_distinguished_from_fragmentation() -> None:
    trace = make([(ALLOC, n, 5 * MIB) for n in range(9)])
    found = explained(trace, "buddy:region=64MiB", "sim:64MiB")
    assert (found.kind, found.failure.event) == ("rounding", 8)
    assert (found.failure.live, found.failure.allocated) == (40 * MIB, 64 * MIB)
    assert "rounding adds 24.0 MiB" in verdict(found)
    assert "tlsf" in [change.spec for change in found.saved_by]


@pytest.mark.parametrize("spec", ["limit:bytes=8MiB,of=naive", "buddy:region=1MiB"])
def test_room_that_the_allocator_cannot_use_is_not_called_fragmentation(spec: str) -> None:
    trace = make([(ALLOC, 0, 4 * MIB), (ALLOC, 1, 9 * MIB)])
    found = explained(trace, spec, "sim:16MiB")
    assert found.kind == "refused"
    assert found.failure.room >= 9 * MIB
    assert pins(found).empty
    assert found.saved_by


def leaky(steps: int, kept: int, *, marked: bool = True) -> Trace:
    """Weights of 2 MiB; in each step 4 MiB of work, and `kept` bytes that are never freed."""
    events: list[Event] = [(ALLOC, 0, 2 * MIB)]
    for step in range(steps):
        events += [(MARK, 1, 0)] if marked else []
        events += [(ALLOC, 1 + step, 4 * MIB), (ALLOC, steps + 1 + step, kept)]
        events += [(FREE, 1 + step, 0)]
    return make(events, labels=("", "step"))


@pytest.mark.parametrize("marked", [True, False])
def test_a_leak_and_its_cost_are_found(marked: bool) -> None:
    found = explained(leaky(40, MIB, marked=marked), "naive", "sim:30MiB")
    assert found.leak is not None
    (growth,) = found.leak.growths
    assert growth.sizes == (MIB, MIB)
    assert found.leak.rate == MIB
    assert (found.leak.unit == "step") is marked
    assert growth.bytes == found.failure.live - 6 * MIB  # the weights and a step's work
    assert found.failure.requested == MIB
    assert growth.blocks == 24
    assert found.kind == "full"
    assert "grows by 1.00 MiB a" in verdict(found)


def test_freed_blocks_and_those_of_the_first_step_are_not_leaks() -> None:
    steps = 12
    events: list[Event] = [(ALLOC, n, MIB) for n in range(10)]
    for step in range(steps):  # each step's block lives until the next step has begun
        events += [(MARK, 1, 0), (ALLOC, 10 + step, MIB)]
        events += [(FREE, 9 + step, 0)] if step else []
    events += [(ALLOC, 10 + steps, 9 * MIB)]
    found = explained(make(events, labels=("", "step")), "naive", "sim:16MiB")
    assert found.leak is None


def test_a_trace_without_failures_has_no_explanation() -> None:
    assert explain(Runner(catalog.load("gpt2-train"), "sim:80GiB"), "caching") is None


def test_the_first_failure_of_a_real_trace_is_that_of_a_replay() -> None:
    trace = catalog.load("gpt2-train")
    failure = first_failure(trace, "caching", "sim:8GiB")
    assert failure is not None
    made = allocators.make("caching", allocators.SimulatedDevice("8GiB"))
    cut = before(trace, failure.event)
    cut.validate()
    assert allocators.completes(cut, made)
    again = allocators.make("caching", allocators.SimulatedDevice("8GiB"))
    allocators.replay(cut, again, keep=True)
    with pytest.raises(allocators.OutOfMemory):
        again.allocate(failure.requested, int(trace.stream[failure.event]))
    assert failure.live == int(trace.load[failure.event - 1])
    assert failure.operator.startswith("aten::")
    assert 1 <= failure.step <= trace.steps


def test_every_declared_option_has_values_to_try_or_a_reason_for_none() -> None:
    for info in allocators.strategies():
        tried = search_space.values(info.name)
        types = {option.name: option.type for option in info.options}
        for option in info.options:
            key = f"{info.name}:{option.name}"
            assert (option.name in tried) is (key not in search_space.LEFT_OUT), key
        for name, values in tried.items():
            assert values[0] == search_space.DEFAULT
            assert len(set(values)) == len(values)
            made = [search_space.written(info.name, {name: value}) for value in values[1:]]
            assert sum(can_be_made(text, "sim:1TiB") for text in made) >= len(made) / 3
            if types[name] == "bytes":  # in the largest unit that divides them
                numbers = [int(value.rstrip("KMGiB")) for value in values[1:]]
                assert all(number == 0 or number % 1024 for number in numbers), values


def test_single_changes_differ_in_one_setting_and_keep_wrappers() -> None:
    device = "sim:80GiB"
    text = "limit:bytes=8GiB,of=bfc:garbage_collection=true"
    found = [*search_space.singles(text, device)]
    assert "limit:bytes=8GiB,of=bfc" in found  # garbage_collection=false is the default
    assert "limit:bytes=8GiB,of=bfc:garbage_collection=true,allow_growth=false" in found
    assert text not in found
    assert list(search_space.singles("naive", device)) == []
