# SPDX-License-Identifier: Apache-2.0
"""The server: its allocations, their timing, and its budget."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocbench.workloads import ALLOC, FREE, MARK, TRIM, Provenance, Trace, catalog
from allocbench.workloads.events import Events
from allocbench.workloads.generator import settle
from allocbench.workloads.serving import GENERATORS, server
from allocbench.workloads.serving.caches import Contiguous, Held, Paged
from allocbench.workloads.serving.models import Model
from allocbench.workloads.serving.requests import Requests
from allocbench.workloads.serving.server import Counts, run_pass
from tests.traces import assert_same, message_of

NAMES = [generator.name for generator in GENERATORS]
TINY = Model(4, 64, 4, 2, 16, 96, 1000)
TOKEN = 4 * 2 * 2 * 16 * 2  # bytes of keys and values of a token, all layers
KV = ("kv", "kv_page")


def requests(
    *asked: tuple[float, int, int], prefix: Sequence[Sequence[int]] | None = None
) -> Requests:
    arrival, prompt, output = zip(*asked, strict=True)
    return Requests(np.array(arrival, float), np.array(prompt), np.array(output), prefix=prefix)


class Expecting(Events):
    """Events that remember how many allocs were expected at least."""

    least: int | None = None

    def expect(self, allocs: int) -> None:
        super().expect(allocs)
        self.least = self.allocs + allocs


def served(asked: Requests, model: Model = TINY, **given: Any) -> tuple[Trace, Counts]:
    events = Expecting()
    defaults: dict[str, Any] = {"memory": "1GiB", "layer_group": 4}
    counts = server.serve(
        events, model, server.ServerSettings(**settle(server.OPTIONS, defaults | given)), asked
    )
    trace = events.trace(Provenance())
    trace.validate()
    assert (trace.op == FREE).sum() == trace.allocs
    assert events.least is not None
    assert events.least <= trace.allocs
    return trace, counts


def sizes(trace: Trace, *labels: str) -> list[int]:
    """Sizes allocated with certain labels, in order."""
    assert trace.label is not None
    chosen = [trace.labels.index(label) for label in labels if label in trace.labels]
    result: list[int] = trace.size[(trace.op == ALLOC) & np.isin(trace.label, chosen)].tolist()
    return result


def most(trace: Trace, *labels: str) -> int:
    """Largest sum of live bytes allocated with certain labels."""
    assert trace.label is not None
    chosen = {trace.labels.index(label) for label in labels if label in trace.labels}
    live: dict[int, int] = {}
    held = largest = 0
    rows = zip(
        *(trace.columns()[c].tolist() for c in ("op", "block", "size", "label")), strict=True
    )
    for op, block, size, label in rows:
        if op == ALLOC and label in chosen:
            live[block] = size
            held += size
        elif op == FREE:
            held -= live.pop(block, 0)
        largest = max(largest, held)
    return largest


def marks(trace: Trace, label: str) -> int:
    return int(((trace.op == MARK) & (trace.block == trace.labels.index(label))).sum())


def test_a_contiguous_cache_grows_by_concatenation() -> None:
    trace, counts = served(requests((0, 100, 21)), chunk=8, decode_tokens=4)
    # The prompt, then 20 tokens in 5 steps: one more chunk whenever a step would not fit.
    assert sizes(trace, "kv") == [TOKEN * tokens for tokens in (100, 108, 116, 124)]
    assert most(trace, "kv") == TOKEN * (116 + 124)  # the old one lives while it is copied
    assert counts == Counts(requests=1, seconds=counts.seconds)
    assert marks(trace, "step") == 1 + 5


def test_a_step_has_the_activations_of_its_tokens() -> None:
    trace, _ = served(requests((0, 100, 3), (0, 50, 3)), decode_tokens=1)
    assert sizes(trace, "gate_up") == [tokens * 2 * 96 * 2 for tokens in (150, 2, 2)]
    assert sizes(trace, "logits") == [2 * 1000 * 4] * 3  # two sequences get a token each time
    chunked, _ = served(
        requests((0, 100, 3), (0, 50, 3)), decode_tokens=1, token_budget=80, max_sequences=2
    )
    # 80 tokens of the first prompt; its other 20 and 50 of the second; then both decode.
    assert sizes(chunked, "gate_up") == [tokens * 2 * 96 * 2 for tokens in (80, 70, 2, 2)]
    assert sizes(chunked, "logits") == [4000 * rows for rows in (2, 2, 2)]


def test_a_pass_allocates_the_tensors_of_its_layers() -> None:
    events = Events()
    run_pass(events, TINY, tokens=10, rows=0, layers=2)
    trace = events.trace(Provenance())
    assert sizes(trace, "qkv") == [10 * 2 * (4 + 2 * 2) * 16] * 2
    assert sizes(trace, "silu_mul") == [10 * 2 * 96] * 2
    # The hidden state and its sum, both norms (one of them dead), and the largest network tensor.
    assert trace.max_load == 10 * 2 * (2 * 64 + (2 + 1) * 96)
    routed = Events()
    run_pass(
        routed,
        dataclasses.replace(TINY, experts=8, experts_per_token=2),
        tokens=10,
        rows=0,
        layers=1,
    )
    assert sizes(routed.trace(Provenance()), "gate_up") == [2 * 10 * 2 * 2 * 96]


def test_a_pass_takes_the_longer_of_reading_and_computing() -> None:
    free: Any = {"efficiency": 1, "decode_tokens": 1}
    read, multiplied = TINY.touched(1)
    _, counts = served(requests((0, 1, 2)), bandwidth=1e3, flops=1e18, **free)
    assert counts.seconds == pytest.approx(
        (2 * read + TOKEN) / 1e3
    )  # one token of the second request
    _, counts = served(requests((0, 1, 2)), bandwidth=1e18, flops=1e3, **free)
    assert counts.seconds == pytest.approx(2 * 2 * multiplied / 1e3)
    _, counts = served(requests((0, 1, 2)), bandwidth=1e18, flops=1e3, efficiency=0.25)
    assert counts.seconds == pytest.approx(4 * 2 * 2 * multiplied / 1e3)
    _, counts = served(requests((0, 1, 9)), bandwidth=1e18, flops=1e3, efficiency=1)
    assert counts.seconds == pytest.approx(9 * 2 * multiplied / 1e3)  # one step of eight passes


def test_nothing_happens_before_the_next_arrival() -> None:
    trace, counts = served(requests((0, 10, 2), (1000, 10, 2)))
    assert trace.time_ns is not None
    assert (np.diff(trace.time_ns.astype(np.int64)) >= 0).all()
    steps = trace.time_ns[(trace.op == MARK) & (trace.block == trace.step_label)]
    assert steps[0] == 0
    assert steps[2] == 1000 * 10**9
    assert 1000 < counts.seconds < 1001


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("kv", ["contiguous", "paged"])
def test_the_newest_sequence_is_preempted_when_the_budget_is_full(kv: str, preemption: str) -> None:
    budget = 400 * TOKEN
    trace, counts = served(
        requests((0, 150, 100), (0, 150, 100)), kv=kv, preemption=preemption, kv_budget=budget
    )
    assert counts.preemptions == marks(trace, "preemption") >= 1
    assert most(trace, *KV) <= budget + (250 * TOKEN if kv == "contiguous" else 0)
    prompts = [size for size in sizes(trace, "gate_up") if size > 100 * 2 * 96 * 2]
    assert len(prompts) == 1 + (counts.preemptions if preemption == "recompute" else 0)
    alone, never = served(requests((0, 150, 100), (0, 150, 100)), kv=kv)
    assert never.preemptions == 0
    assert counts.seconds > never.seconds
    assert most(alone, *KV) >= 490 * TOKEN


def test_running_sequences_come_before_waiting_ones() -> None:
    asked = requests((0, 1, 9), (0, 1, 9), (0, 5, 2))
    trace, _ = served(asked, token_budget=3, max_sequences=3, decode_tokens=1)
    tokens = [size // (2 * 96 * 2) for size in sizes(trace, "gate_up")]
    assert tokens == [3, 3, 3, 3, 3, 3, 2, 2, 2]  # one token of the third prompt at a time


def test_the_budget_is_exact_to_the_byte() -> None:
    for kv in (
        Contiguous(Events(), TINY, 100 * TOKEN, "concat", 16, 4),
        Paged(Events(), TINY, 100 * TOKEN, 4, 512),
    ):
        first, second = Held(), Held()
        assert kv.reserve(first, 60, 60)
        assert not kv.reserve(second, 41, 41)
        assert (kv.used, second.blocks) == (60 * TOKEN, [])
        assert kv.reserve(second, 40, 40)
        assert kv.used == 100 * TOKEN
        kv.release(first)
        kv.release(second)
        assert kv.used == 0


def test_the_end_of_the_least_recently_used_text_is_evicted_first() -> None:
    cache = Paged(Events(), TINY, 4 * 512 * TOKEN, 16, 512)
    for prefix in ([1, 2], [3]):
        held = Held(prefix=prefix)
        assert cache.reserve(held, 512 * len(prefix), 0)
        cache.computed(held, 512 * len(prefix))
        cache.release(held)
    assert cache.used == 3 * 512 * TOKEN
    assert cache.reserve(Held(), 600, 600)
    assert cache.begin(Held(prefix=[1, 2]), 2000) == 512
    assert cache.begin(Held(prefix=[3]), 2000) == 512


def test_the_last_idle_prefix_gives_its_pages_too() -> None:
    cache, held = Paged(Events(), TINY, 512 * TOKEN, 16, 512), Held(prefix=[1])
    assert cache.reserve(held, 512, 0)
    cache.computed(held, 512)
    cache.release(held)
    assert cache.reserve(Held(), 512, 512)


def test_a_block_completed_by_the_answer_is_not_shared() -> None:
    # The second is preempted after three blocks of 512 tokens, two of them from its prompt, and
    # recomputed as a whole; the third begins with the same prefix.
    asked = [(0.0, 300, 1500), (0.0, 1100, 600), (1e6, 1600, 5)]
    ids = [[1], [7, 8, 9], [7, 8, 9, 4]]
    hits = []
    for count in (2, 3):
        result = requests(*asked[:count], prefix=ids[:count])
        _, counts = served(result, kv="paged", kv_budget=2400 * TOKEN)
        assert counts.preemptions == 1
        hits.append(counts.prefix_tokens)
    assert hits[1] - hits[0] == 1024


def test_requests_that_can_never_fit_are_rejected() -> None:
    _, counts = served(requests((0, 1000, 100), (1, 10, 10)), kv="paged", kv_budget=500 * TOKEN)
    assert (counts.requests, counts.rejected) == (2, 1)
    message = message_of(lambda: served(requests((0, 1000, 100)), kv_budget=500 * TOKEN))
    assert message == "none of the 1 requests fits in 256,000 bytes of keys and values"


@pytest.mark.parametrize("kv", ["contiguous", "paged"])
def test_more_allocs_than_the_limit_are_refused_before_the_first_step(kv: str) -> None:
    asked = requests((0, 100, 41), (0, 100, 21))
    options = settle(server.OPTIONS, {"memory": "1GiB", "layer_group": 4, "kv": kv, "chunk": 8})
    events = Expecting()
    server.serve(events, TINY, server.ServerSettings(**options), asked)
    assert (
        events.least == events.allocs
    )  # nothing is preempted, and both decode from the first step
    few = Events()
    few.limit(events.allocs - 1, "ask for less")
    message = message_of(lambda: server.serve(few, TINY, server.ServerSettings(**options), asked))
    limit = f"{events.allocs:,} allocs, more than {events.allocs - 1:,}"
    assert message == f"needs at least {limit}: ask for less"
    assert few.allocs == len(TINY.weights())


def test_a_prefix_is_shared_and_kept_until_its_pages_are_needed() -> None:
    asked = [(0.0, 1100, 5), (10.0, 1100, 5), (20.0, 1100, 5)]
    ids = [[7, 8, 9], [7, 8, 10], [1, 2, 3]]
    trace, counts = served(requests(*asked, prefix=ids), kv="paged")
    assert counts.prefix_tokens == 1024  # of the second request; ids of partial blocks are ignored
    pages = -(-1104 // 16)
    assert len(sizes(trace, "kv_page")) == 3 * pages - 64
    assert sizes(trace, "gate_up")[2] == (1100 - 1024) * 2 * 96 * 2  # a prompt, five steps of one
    kept = (2 * 64 + pages - 64) * 16 * TOKEN
    assert most(trace, "kv_page") == kept
    tight, counts = served(requests(*asked, prefix=ids), kv="paged", kv_budget=kept - 1)
    assert counts.prefix_tokens == 1024
    assert most(tight, "kv_page") == kept - 32 * 16 * TOKEN  # the end of the first text was evicted
    _, counts = served(requests(*asked, prefix=ids))
    assert counts.prefix_tokens == 0


@settings(max_examples=60)
@given(
    asked=st.lists(
        st.tuples(st.floats(0, 0.001), st.integers(1, 1600), st.integers(1, 60), st.integers(0, 2)),
        min_size=1,
        max_size=12,
    ),
    kv=st.sampled_from(["contiguous", "paged"]),
    growth=st.sampled_from(["concat", "double"]),
    preemption=st.sampled_from(["recompute", "swap"]),
    budget=st.integers(40, 5000),
    max_sequences=st.integers(1, 12),
    token_budget=st.integers(12, 600),
    decode_tokens=st.integers(1, 40),
)
def test_every_request_is_answered_within_the_budget(
    asked: list[tuple[float, int, int, int]], kv: str, budget: int, **given: Any
) -> None:
    asked.sort()
    result = requests(
        *((arrival, prompt, output) for arrival, prompt, output, _ in asked),
        prefix=[range(10 * text, 10 * text + 1 + prompt // 512) for _, prompt, _, text in asked],
    )
    # So slow that all of them are present at the same time.
    options = given | {"kv": kv, "kv_budget": budget * TOKEN, "bandwidth": 1e6}
    pages = [-(-(prompt + output) // 16) for _, prompt, output, _ in asked]
    rejected = sum(n > budget // 16 for n in pages)
    if kv == "contiguous":
        double = given["growth"] == "double"
        total = [prompt + output for _, prompt, output, _ in asked]
        rejected = sum((2 * n if double else n + 32) > budget for n in total)
    if rejected == len(asked):
        assert "requests fits in" in message_of(lambda: served(result, **options))
        return
    trace, counts = served(result, **options)
    if kv == "paged":
        assert most(trace, "kv_page") <= budget * TOKEN
    else:
        assert most(trace, "kv") <= 2 * budget * TOKEN  # old and new while one is copied
    assert counts.rejected == rejected
    assert marks(trace, "teardown") == 1
    assert sizes(trace, "logits")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_reproduces_its_trace(name: str) -> None:
    trace = catalog.load(name)
    assert (trace.name, trace.provenance.kind, trace.provenance.seed) == (name, "serving", 0)
    assert trace.provenance.extra["model"]["layers"] > 1
    assert trace.provenance.extra["served"]["rejected"] == 0
    assert_same(trace, catalog.load(name))
    other = catalog.load(f"{name}:seed=1,count=50")
    other.validate()
    assert other.name == f"{name}:count=50,seed=1"
    assert len(other) < len(trace)


def test_the_catalog_matches_its_summaries() -> None:
    assert catalog.load("serve-preempt").provenance.extra["served"]["preemptions"] > 10
    assert catalog.load("serve-long-prefix").provenance.extra["served"]["prefix_tokens"] > 10**6
    assert "kv_page" in catalog.load("serve-paged").labels
    bursts = catalog.load("serve-bursts-70b")
    assert bursts.size[bursts.op == ALLOC].max() == 128256 // 4 * 8192 * 2


def test_a_server_that_sleeps_has_no_memory_until_the_next_request() -> None:
    asked = requests((0, 20, 2), (30, 20, 2), (100, 20, 2))
    trace, counts = served(asked, sleep=40)
    awake, _ = served(asked)
    assert counts.seconds == pytest.approx(100, abs=1)
    marks = np.flatnonzero(trace.op == MARK)
    labels = [trace.labels[number] for number in trace.block[marks]]
    phases = [label for label in labels if label != "step"]
    assert phases == ["init", "sleep", "wake", "teardown"]
    (trim,) = np.flatnonzero(trace.op == TRIM).tolist()
    assert trace.op[trim + 1] == MARK
    assert set(trace.block[:trim][trace.op[:trim] == ALLOC]) == set(
        trace.block[:trim][trace.op[:trim] == FREE]
    )
    assert trace.time_ns is not None
    asleep = marks[labels.index("sleep")]
    assert trace.time_ns[asleep] == pytest.approx(70e9, abs=1e9)
    assert trace.allocs == awake.allocs + len(TINY.weights())
    assert not (awake.op == TRIM).any()
