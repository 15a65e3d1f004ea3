# SPDX-License-Identifier: Apache-2.0
"""record, limit, check, per_stream: each alone, combined, and with invalid specs.

The requirements on every allocator are tested on wrapped ones too, by the cases in `conftest.py`.
"""

import random
import re
from typing import Any

import numpy as np
import pytest

from allocbench import allocators
from allocbench.allocators.spec import Spec, parse, split
from allocbench.workloads import ALLOC, FREE, MARK, TRIM, Trace, catalog
from tests.conftest import MIB
from tests.traces import make as trace_of

WRAPPERS = ["binning", "check", "limit", "per_stream", "record"]
NESTED = "check:of=limit:bytes=8GiB,of=bfc:allow_growth=false,memory_limit=4GiB"
PROGRAM = [
    (MARK, 0, 0),
    (ALLOC, 0, 5000),
    (ALLOC, 1, 3 * MIB),
    (MARK, 1, 0),
    (ALLOC, 2, 700),
    (FREE, 1, 0),
    (TRIM, 0, 0),
    (MARK, 0, 0),
    (ALLOC, 3, 100),
    (FREE, 0, 0),
]  # blocks 2 and 3 stay


def made(spec: str, capacity: str = "1GiB", **options: object) -> allocators.Allocator:
    return allocators.make(spec, allocators.SimulatedDevice(capacity), **options)


def bytes_of(allocator: allocators.Allocator) -> dict[str, int]:
    stats = allocator.stats()
    return {name: getattr(stats, name) for name in dir(stats) if not name.startswith("_")}


# -- specs


def test_everything_after_of_is_the_inner_spec() -> None:
    spec = parse(NESTED)
    inside = Spec("bfc", {"allow_growth": "false", "memory_limit": "4GiB"})
    limit = Spec("limit", {"bytes": "8GiB"}, inside)
    assert spec == Spec("check", {}, limit)
    assert spec.layers == [spec, limit, inside]
    assert str(spec) == NESTED
    assert parse(" check : of = bfc".replace(" :", ":")) == Spec("check", {}, Spec("bfc"))


def test_wrapped_specs_can_be_in_a_list() -> None:
    conf = "record:of=caching:conf=max_split_size_mb:128,expandable_segments:True"
    specs = ["naive", NESTED, "bfc:a=1,b=2", conf, "limit:bytes=1MiB,of=naive", "buddy"]
    assert split(",".join(specs)) == specs


def test_wrappers_are_listed_separately() -> None:
    assert [info.name for info in allocators.wrappers()] == WRAPPERS
    assert not set(WRAPPERS) & set(allocators.names())
    assert all(info.summary for info in allocators.wrappers())
    (option,) = allocators.wrappers()[WRAPPERS.index("limit")].options
    assert (option.name, option.type) == ("bytes", "bytes")


def test_a_wrapped_allocator_has_the_info_of_its_strategy() -> None:
    allocator = made(NESTED, "16GiB")
    assert allocator.info.name == "bfc"
    allocator.allocate(1)
    assert allocator.stats().reserved == 4 << 30


def test_keyword_options_apply_to_the_outermost_layer() -> None:
    allocator = made("limit", bytes="2MiB", of="bfc:allow_growth=false")
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(3 * MIB)
    with pytest.raises(allocators.SpecError, match="the option of is given both in"):
        made("check:of=bfc", of="naive")
    with pytest.raises(allocators.SpecError, match="check has no option 'memory_limit'"):
        made("check:of=bfc", memory_limit="1MiB")


@pytest.mark.parametrize("name", allocators.names())
def test_a_wrapper_does_not_change_behavior(name: str) -> None:
    trace = catalog.load("llm-decode")
    results = []
    for around in ("", "check:of=", "record:of=", "limit:bytes=1TiB,of=", "per_stream:of="):
        allocator = made(around + name, "200GiB")
        result = allocators.replay(trace, allocator, samples=10, placements=True)
        state = bytes_of(allocator), result.counters, result.device.calls
        results.append((result.placements, state))
        allocator.check()
    (plain, before), *others = results
    for wrapped, after in others:
        for column, values in plain.items():
            np.testing.assert_array_equal(values, wrapped[column])
        assert before == after


# -- limit


def test_limit_refuses_calls_that_would_exceed_it() -> None:
    allocator = made("limit:bytes=8MiB,of=naive")
    first = allocator.allocate(5 * MIB)
    with pytest.raises(allocators.OutOfMemory, match=r"limit: 8\.00 MiB \(8388608 bytes\)"):
        allocator.allocate(3 * MIB + 1)
    assert allocator.device.stats().malloc_calls == 1  # the device was not called
    allocator.allocate(3 * MIB)
    allocator.deallocate(first)
    allocator.allocate(5 * MIB)
    allocator.check()
    stats = allocator.stats()
    assert (stats.reserved, stats.peak_reserved, stats.failures) == (8 * MIB, 8 * MIB, 1)


@pytest.mark.parametrize("name", allocators.names())
def test_no_strategy_exceeds_a_limit(name: str) -> None:
    allocator = made(f"limit:bytes=30MiB,of={name}")
    allocators.replay(churn(), allocator)
    assert 0 < allocator.stats().peak_reserved <= 30 * MIB
    allocator.check()


def test_at_the_limit_caches_are_trimmed_as_on_a_full_device() -> None:
    allocator = made("limit:bytes=22MiB,of=caching")
    allocator.deallocate(allocator.allocate(12 * MIB))
    allocator.allocate(16 * MIB)  # more than is left next to the cached segment
    assert (allocator.stats().retries, allocator.stats().reserved) == (1, 16 * MIB)


def test_the_smaller_limit_applies_and_pages_count() -> None:
    for spec in ("limit:bytes=4MiB,of=limit:bytes=9MiB,of=naive",
                 "limit:bytes=9MiB,of=limit:bytes=4MiB,of=naive"):  # fmt: skip
        allocator = made(spec)
        allocator.allocate(4 * MIB)
        with pytest.raises(allocators.OutOfMemory):
            allocator.allocate(1)
    allocator = made("limit:bytes=40MiB,of=caching:expandable_segments=true")
    allocator.allocate(30 * MIB)
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(30 * MIB)
    assert allocator.stats().peak_reserved == 40 * MIB
    allocator.check()


# -- record


@pytest.mark.parametrize("name", catalog.names()[::4])
def test_a_recording_of_a_replay_is_the_trace(name: str) -> None:
    trace = catalog.load(name)
    allocator = made("record:of=bfc", "800GiB")
    allocators.replay(trace, allocator, samples=1, keep=True)
    recorded = recording(allocator)
    recorded.validate()
    steps_only = (trace.op != MARK) | (trace.block == trace.step_label)
    np.testing.assert_array_equal(recorded.op, trace.op[steps_only])
    np.testing.assert_array_equal(recorded.size, trace.size[steps_only])
    np.testing.assert_array_equal(recorded.stream, trace.stream[steps_only])
    assert recorded.max_load == trace.max_load
    original, again = made("caching", "800GiB"), made("caching", "800GiB")
    allocators.replay(trace, original)
    allocators.replay(allocators.recording(allocator), again)
    assert bytes_of(original) == bytes_of(again)


def recording(allocator: allocators.Allocator) -> Trace:
    actual = allocators.recording(allocator)
    return Trace(actual.op, actual.block, actual.size, actual.stream, actual.labels)


def test_a_recording_has_steps_trims_streams_and_no_failed_request() -> None:
    allocator = made("limit:bytes=8MiB,of=record:of=naive")
    address = allocator.allocate(100, stream=3)
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(9 * MIB)
    allocator.step()
    allocator.trim()
    with pytest.raises(allocators.BadFree):
        allocator.deallocate(address + 1)
    allocator.allocate(0)
    allocator.deallocate(address, stream=4)
    allocator.allocate(7)
    actual = recording(allocator)
    assert actual.op.tolist() == [ALLOC, MARK, TRIM, FREE, ALLOC]
    assert actual.block.tolist() == [0, 0, 0, 0, 1]
    assert actual.size.tolist() == [100, 0, 0, 0, 7]
    assert actual.stream.tolist() == [3, 0, 0, 4, 0]
    assert actual.labels[actual.step_label] == "step"
    actual.validate()


def test_a_stream_number_too_large_for_a_trace_is_an_error() -> None:
    allocator = made("record:of=naive")
    assert [*allocators.recording(allocator).parts()] == []
    allocator.allocate(1, stream=65535)
    assert recording(allocator).stream.tolist() == [65535]
    allocator.allocate(1, stream=65536)
    with pytest.raises(ValueError, match="streams up to 65535, not 65536"):
        allocators.recording(allocator)


@pytest.mark.parametrize("spec", ["bfc", "check:of=bfc", "per_stream:of=record:of=bfc"])
def test_without_a_record_wrapper_there_is_no_recording(spec: str) -> None:
    with pytest.raises(allocators.SpecError, match="has no 'record' wrapper"):
        allocators.recording(made(spec))


# -- check


def test_invalid_frees_are_distinguished() -> None:
    allocator = made("check:of=bfc")
    first, second = allocator.allocate(5000), allocator.allocate(700)
    allocator.deallocate(first)
    for address, message in (
        (first, "double free of {}: the block of request 0 is free"),
        (second + 256, r"foreign free of {}: 256 bytes into the block of request 1 \(700 bytes"),
        (1 << 60, "foreign free of {}: never handed out"),
    ):
        with pytest.raises(allocators.BadFree, match="check: " + message.format(hex(address))):
            allocator.deallocate(address)
    assert allocator.allocate(5000) == first  # no longer free: best fit
    allocator.deallocate(first)
    with pytest.raises(allocators.BadFree, match="the block of request 2 is free"):
        allocator.deallocate(first)
    allocator.check()


def test_leaks_have_their_request_and_step() -> None:
    allocator = made("limit:bytes=16MiB,of=check:of=bfc")
    assert allocators.leaks(allocator) == []
    gone = allocator.allocate(100)
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(2**63)
    allocator.step()
    kept = allocator.allocate(5000, stream=2)
    allocator.deallocate(gone)
    (leak,) = allocators.leaks(allocator)
    assert leak == allocators.Leak(kept, 5000, 5120, stream=2, request=2, step=1)
    assert str(leak) == f"4.88 KiB (5000 bytes) at {kept:#x}: request 2, step 1, stream 2"


LABEL = np.array([0, 1, 2, 0, 2, 0, 0, 0, 1, 0], np.uint32)


@pytest.mark.parametrize(
    ("label", "labels"), [(None, ["forward", "step"]), (LABEL, ["aten::mm", "forward"])]
)
def test_leaks_have_the_label_of_their_alloc(label: Any, labels: list[str]) -> None:
    trace = trace_of(PROGRAM, labels=("step", "forward", "aten::mm"), label=label)
    allocator = made("check:of=caching")
    allocators.replay(trace, allocator, keep=True)
    leaks = allocators.leaks(allocator, trace)
    assert [(leak.requested, leak.step) for leak in leaks] == [(700, 1), (100, 2)]
    assert [leak.label for leak in leaks] == labels
    assert str(leaks[0]).endswith(f", {labels[0]}")
    short = trace_of(PROGRAM[:6], labels=trace.labels)
    with pytest.raises(ValueError, match=r"the trace has 3 allocs, but .* request 3 \(from 0\)"):
        allocators.leaks(allocator, short)
    allocator = made("check:of=caching")
    allocators.replay(trace, allocator)
    assert allocators.leaks(allocator, trace) == []


@pytest.mark.parametrize("seed", range(8))
def test_a_leak_has_the_label_of_the_last_mark(seed: int) -> None:
    rng, names = random.Random(seed), ("step", "forward", "backward")
    last, expected, events = "", list[str](), list[tuple[int, int, int]]()
    for _ in range(rng.randrange(1, 12)):
        if rng.random() < 0.5:
            events.append((MARK, block := rng.randrange(3), 0))
            last = names[block]
        else:
            events.append((ALLOC, len(expected), 1))
            expected.append(last)
    allocator, trace = made("check:of=bfc"), trace_of(events, labels=names)
    allocators.replay(trace, allocator, keep=True)
    assert [leak.label for leak in allocators.leaks(allocator, trace)] == expected


# -- per_stream


def churn(streams: int = 1, blocks: int = 2000) -> Trace:
    """Blocks of all sizes that live for a while on their stream and are freed on another one."""
    rng = np.random.default_rng(0)
    events, live = list[tuple[int, int, int]](), list[int]()
    stream: list[int] = []
    for block in range(blocks):
        events.append((ALLOC, block, int((2 * MIB) ** rng.random())))
        live.append(block)
        if len(live) > 20:
            events.append((FREE, live.pop(int(rng.integers(len(live)))), 0))
        stream += rng.integers(streams, size=len(events) - len(stream)).tolist()
    return trace_of(events, stream=np.array(stream, np.uint16))


@pytest.mark.parametrize("name", allocators.names())
def test_streams_do_not_share_segments_and_frees_go_to_the_owner(name: str) -> None:
    trace = churn(streams=3)
    allocator = made(f"check:of=per_stream:of={name}", "800GiB")
    result = allocators.replay(trace, allocator, placements=True, keep=True)
    assert result.stats.failures == 0
    streams = trace.stream[trace.op == ALLOC]
    for segment in np.unique(result.placements["segment"]):
        assert len(np.unique(streams[result.placements["segment"] == segment])) == 1
    for leak in allocators.leaks(allocator):
        allocator.deallocate(leak.address)
    allocator.check()
    allocator.trim()
    assert allocator.stats().reserved == allocator.device.reserved == 0
    assert allocator.stats().peak_reserved >= allocator.stats().peak_allocated


def test_a_stream_out_of_memory_gets_the_others_free_memory() -> None:
    allocator = made("per_stream:of=bfc", "8MiB")
    allocator.deallocate(allocator.allocate(6 * MIB, stream=1), stream=1)
    assert allocator.stats().reserved >= 6 * MIB
    address = allocator.allocate(6 * MIB, stream=2)
    assert (allocator.stats().retries, allocator.stats().failures) == (1, 0)
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(6 * MIB, stream=1)
    assert (allocator.stats().retries, allocator.stats().failures) == (1, 1)
    allocator.deallocate(address, stream=1)
    allocator.check()


def test_a_limit_inside_per_stream_is_for_each_stream() -> None:
    each, all_ = (
        made("per_stream:of=limit:bytes=4MiB,of=naive"),
        made("limit:bytes=4MiB,of=per_stream:of=naive"),
    )
    for allocator in (each, all_):
        allocator.allocate(4 * MIB, stream=1)
        with pytest.raises(allocators.OutOfMemory):
            allocator.allocate(1, stream=1)
    each.allocate(4 * MIB, stream=2)
    with pytest.raises(allocators.OutOfMemory):
        all_.allocate(1, stream=2)
    assert each.stats().reserved == 8 * MIB


def test_counters_and_the_memory_log_cover_all_streams() -> None:
    allocator, single = made("per_stream:of=arena"), made("arena")
    for stream in range(3):
        allocator.allocate(1000, stream)
    single.allocate(1000)
    assert allocator.counters() == {name: 3 * n for name, n in single.counters().items()}
    allocator = made("per_stream:of=bfc", "8MiB")
    allocator.allocate(1000, stream=5)
    with pytest.raises(allocators.OutOfMemory) as caught:
        allocator.allocate(9 * MIB)
    assert re.search(r"\nstream 0:\n(.|\n)*\nstream 5:\n", str(caught.value))
