# SPDX-License-Identifier: Apache-2.0
"""Memory that grows from step to step, and memory that only looks as if it did."""

from dataclasses import replace
from random import Random
from typing import Any, Literal

import numpy as np
import pytest

from allocbench.questions.explain import explain, served, verdict
from allocbench.questions.failure import before
from allocbench.questions.growth import Growth, growing_reserve, leak_of, sentence
from allocbench.questions.hazards import growing
from allocbench.replays.runner import Runner
from allocbench.workloads import ALLOC, FREE, MARK, Trace, catalog
from tests.traces import Event, make

MIB = 1 << 20
BOTH = "caching:max_split_size_mb=128,expandable_segments=true"


def steps(count: int, kept: int, *, marked: bool = True, weights: int = 3) -> Trace:
    """Weights of 1 MiB each; in each step 64 MiB of work, and a block that is never freed."""
    events: list[Event] = [(ALLOC, n, MIB) for n in range(weights)]
    for step in range(count):
        block = weights + 2 * step
        events += [(MARK, 1, 0)] if marked else []
        events += [(ALLOC, block, 64 * MIB)]
        events += [(ALLOC, block + 1, kept)] if kept else []
        events += [(FREE, block, 0)]
    return make(events, labels=("", "step"))


@pytest.mark.parametrize("marked", [True, False])
def test_a_leak_has_a_rate_and_a_last_step(marked: bool) -> None:
    leak = leak_of(steps(10, 64 * MIB, marked=marked))
    assert leak is not None
    unit, size = "step" if marked else "repetition", 64 * MIB
    assert leak.growths == (Growth("step" if marked else "", (size, size), 10, 10 * size, 10),)
    assert (leak.rate, leak.steps, leak.unit) == (64 * MIB, 10, unit)
    # 10 steps need 707 MiB, so 210 steps need 12,800 MiB more.
    words = sentence(leak, 707 * MIB, 13_507 * MIB, "this card")
    assert words.startswith(f"The program grows by 64.0 MiB a {unit}: full after {unit} 210 on")


def test_the_verdict_begins_with_the_leak() -> None:
    trace = steps(20, 64 * MIB)
    failing = explain(Runner(trace, "sim:800MiB"), "naive")
    assert failing is not None
    assert failing.leak is not None
    # 3 MiB, the work of the 12th step and what 12 steps keep are 835 MiB.
    assert verdict(failing).startswith("The program grows by 64.0 MiB a step: full in step 12.")
    assert failing.kind == "full"
    passing = served(Runner(trace, "sim:2012MiB"), "naive", "it")
    # 20 steps need 1,347 MiB, and 10 more fit into the other 665 MiB.
    assert "grows by 64.0 MiB a step: full after step 30 on it" in passing


def test_steps_after_a_failure_show_what_fills_the_device_before_it() -> None:
    """On 200 MiB the 2nd step fails: too early to see growth, which the later steps show."""
    trace = replace(
        steps(8, 64 * MIB, weights=12),
        labels=("", "step", "train.py:9 <module>;train.py:3 keep"),
        stack=np.array(
            [2 * (size == 64) for size in steps(8, 64 * MIB, weights=12).size // MIB], np.uint32
        ),
    )
    failing = explain(Runner(trace, "sim:200MiB"), "naive")
    assert failing is not None
    assert failing.failure.step == 2
    assert failing.leak is not None
    (growth,) = failing.leak.growths
    assert (growth.blocks, growth.steps, failing.leak.steps) == (1, 1, 2)
    assert growth.caller == "train.py:9 <module>"
    assert "full in step 2" in verdict(failing)


def test_programs_that_do_not_grow() -> None:
    assert leak_of(steps(20, 0)) is None
    assert leak_of(steps(20, 0, marked=False)) is None
    assert leak_of(steps(3, MIB)) is None  # too few


@pytest.mark.parametrize("marked", [True, False])
def test_a_list_of_losses_is_no_leak(marked: bool) -> None:
    """A million steps that keep 4 bytes each fill no card."""
    assert leak_of(steps(20, 4, marked=marked)) is None
    assert leak_of(steps(20, 511, marked=marked)) is None
    leak = leak_of(steps(20, 512, marked=marked))
    assert leak is not None
    assert leak.rate == 512


def loaded(layers: int, temporary: int) -> Trace:
    """A model is loaded: layers of 8 MiB, each after a copy that is freed."""
    events: list[Event] = [(ALLOC, 0, 100 * MIB)]
    for layer in range(layers):
        events += [(ALLOC, 1 + 2 * layer, 8 * MIB), (ALLOC, 2 + 2 * layer, MIB)]
        if temporary:
            copy = (ALLOC, 2 * layers + 1, temporary)
            events[-2:] = [copy, *events[-2:], (FREE, 2 * layers + 1, 0)]
    return make(events)


@pytest.mark.parametrize("temporary", [0, 4 * MIB])
def test_loading_a_model_is_no_leak(temporary: int) -> None:
    trace = loaded(60, temporary)
    assert leak_of(trace) is None
    failing = explain(Runner(trace, "sim:300MiB"), "caching")
    assert failing is not None
    assert (failing.kind, failing.leak, failing.changes) == ("full", None, [])
    assert "no setting or allocator helps" in verdict(failing)


@pytest.mark.parametrize("column", ["label", "stack"])
@pytest.mark.parametrize(
    ("ends", "kept", "work", "leaks"),
    [
        ("stopped", "layer.py:8 __init__", "layer.py:5 __init__", False),
        ("failure", "layer.py:8 __init__", "layer.py:5 __init__;quantize.py:2 scale", False),
        ("exit", "layer.py:8 __init__", "layer.py:5 __init__", True),
        ("stopped", "train.py:8 forward", "layer.py:5 __init__", True),
        ("stopped", "sample.py:8 __init__", "train.py:5 <module>", True),
    ],
)
def test_layers_that_constructors_make_are_no_leak(
    column: str, ends: Literal["stopped", "failure", "exit"], kept: str, work: str, leaks: bool
) -> None:
    """Each takes 80 MiB and keeps 16; a program that is stopped there has made no step yet.

    Objects that a program makes and keeps beside other work are no layers.
    """
    trace = steps(20, 16 * MIB, marked=False)
    of_line = np.where(trace.op == ALLOC, np.where(trace.size == 16 * MIB, 1, 2), 0)
    coverage = replace(trace.coverage, ends=ends)
    lines: dict[str, Any] = {"labels": ("", kept, work), column: of_line.astype(np.uint32)}
    assert (leak_of(replace(trace, coverage=coverage, **lines)) is not None) == leaks


def test_a_program_that_is_too_large_is_not_fragmented_where_the_free_bytes_reach() -> None:
    events: list[Event] = [(ALLOC, n, MIB // 2) for n in range(2)]
    events += [(ALLOC, 2 + n, 72 * MIB) for n in range(13)]
    events += [(ALLOC, 15 + n, 64 * MIB) for n in range(20)]
    failing = explain(Runner(make(events), "sim:1001MiB"), "caching")
    assert failing is not None
    assert failing.failure.live + failing.failure.requested == failing.failure.capacity
    assert failing.kind == "full"
    assert failing.failure.load == (1 + 13 * 72 + 20 * 64) * MIB


def cycles(count: int) -> Trace:
    """Two blocks that come and go, and one of 2 MiB that stays (pytorch/pytorch#193400)."""
    events: list[Event] = []
    for n in range(count):
        events += [(ALLOC, 3 * n, 95_420_416), (ALLOC, 3 * n + 1, 47_710_208)]
        events += [(ALLOC, 3 * n + 2, 2 * MIB), (FREE, 3 * n, 0), (FREE, 3 * n + 1, 0)]
    return make(events)


def test_reserved_memory_that_grows_while_the_load_does_not() -> None:
    trace = cycles(40)
    found = growing_reserve(trace, BOTH, "sim:80GiB")
    assert found is not None
    assert (found.steps, found.load_rate, found.load) == (40, 2 * MIB, 39 * 2 * MIB)
    assert 138 * MIB <= found.rate < 139 * MIB  # as measured: 2,760 or 2,780 MiB in 20 cycles
    for spec in ("caching", "caching:max_split_size_mb=128", "caching:expandable_segments=true"):
        assert growing_reserve(trace, spec, "sim:80GiB") is None
    *_, line = growing(Runner(trace, "sim:80GiB"), ["caching", BOTH], "it")
    assert line.startswith(f"{BOTH} reserves ")
    assert "max_split_size_mb with expandable_segments does that" in line


def forward(layers: int, modules: bool, passes: int = 0, weights: int | None = None) -> Trace:
    """Weights, some passes over layers whose blocks are freed, then one that is not.

    Each layer keeps 8 MiB, and has a temporary of 12 MiB.
    """
    block = layers if weights is None else weights
    events: list[Event] = [(ALLOC, n, 20 * MIB) for n in range(block)]
    names = [""] * block
    for number in range(passes + 1):
        kept = []
        for layer in range(layers):
            events += [(ALLOC, block, 12 * MIB), (ALLOC, block + 1, 8 * MIB), (FREE, block, 0)]
            names += [f"layers.{layer}.up", f"layers.{layer}", ""]
            kept.append(block + 1)
            block += 2
        if number < passes:
            events += [(FREE, one, 0) for one in reversed(kept)]
            names += [""] * layers
    labels = [*dict.fromkeys(names)]
    column = np.array([labels.index(name) for name in names], np.uint32)
    return make(events, labels=labels, module=column if modules else None)


def test_the_layers_of_a_forward_pass_are_no_leak() -> None:
    assert leak_of(forward(12, modules=True)) is None
    assert leak_of(forward(12, modules=False, passes=1)) is None
    assert leak_of(forward(12, modules=False)) is None


def test_a_module_that_keeps_more_in_each_call_is_a_leak() -> None:
    trace = forward(12, modules=True, weights=2)
    assert trace.module is not None
    same = np.where(trace.module > 0, 1, 0).astype(np.uint32)
    leak = leak_of(replace(trace, module=same))
    assert leak is not None
    assert leak.rate == 8 * MIB


def kept_by(*sizes: list[int], freed: dict[int, int] | None = None) -> Trace:
    """A mark before each step, and then allocs of these sizes in KiB, which stay.

    freed: by the number of a block, the step in which it is freed after all.
    """
    events: list[Event] = []
    block = 0
    for step, wanted in enumerate(sizes):
        events.append((MARK, 1, 0))
        events += [(FREE, gone, 0) for gone, when in (freed or {}).items() if when == step]
        for size in wanted:
            events.append((ALLOC, block, size << 10))
            block += 1
    return make(events, labels=("", "step"))


@pytest.mark.parametrize(
    ("trace", "groups", "rate"),
    [
        (kept_by([5], [5], [5], [5], [5]), [(5, 5, 5)], 5),
        (kept_by([], [5], [5], [5], []), [(5, 3, 3)], 5),
        (kept_by([9, 9], [5], [5, 5], [5], [9]), [(5, 4, 3)], 5),
        # Largest first, and the rate is that of the step that keeps least.
        (kept_by([], [5, 7], [5, 5, 7], [7, 5], []), [(7, 3, 3), (5, 4, 3)], 12),
        (kept_by([], [5, 7], [5, 5], [7, 5], []), [(5, 4, 3)], 5),
        # One of the three steps before the last keeps nothing.
        (kept_by([5], [5], [5], [], [5]), [], 0),
        (kept_by([5], [], [5], [5], [5]), [], 0),
        (kept_by([5], [5], [], [5], [5]), [], 0),
        # What is freed later does not count, whenever that is.
        (kept_by([5], [5], [5], [5], [5], freed={2: 4}), [], 0),
        (kept_by([5], [5], [5], [5], [5], freed={0: 4}), [(5, 4, 4)], 5),
        # Five steps are needed.
        (kept_by([5], [5], [5], [5]), [], 0),
    ],
)
def test_which_blocks_count_as_grown(
    trace: Trace, groups: list[tuple[int, int, int]], rate: int
) -> None:
    """Groups as size in KiB, blocks and steps, by hand."""
    leak = leak_of(trace)
    growths = leak.growths if leak else ()
    assert [(one.sizes[1], one.blocks, one.steps) for one in growths] == [
        (size << 10, blocks, count) for size, blocks, count in groups
    ]
    assert (leak.rate if leak else 0) == rate << 10
    assert (leak.bytes if leak else 0) == sum(size * blocks << 10 for size, blocks, _ in groups)


def test_growth_until_an_event_does_not_know_what_comes_later() -> None:
    trace = kept_by([5], [5], [5], [5], [5], [9], [9], [9], [9])
    leak = leak_of(trace, 10)
    assert leak is not None
    assert [(one.sizes[0], one.blocks) for one in leak.growths] == [(5 << 10, 5)]
    assert leak.steps == 5
    # Until event 8, there are too few steps. Of all that follow, the last 6 keep 42 KiB.
    leak = leak_of(trace, 8)
    assert leak is not None
    assert (leak.rate, leak.steps) == (7 << 10, 4)


def test_a_reserve_grows_if_each_of_the_last_steps_adds_a_segment() -> None:
    """With naive, a block is a segment, so the reserve grows by what the load grows by."""
    assert growing_reserve(cycles(40), "naive", "sim:80GiB") is None
    assert growing_reserve(cycles(4), BOTH, "sim:80GiB") is None  # too few


def test_a_reserve_for_larger_and_larger_steps_is_needed() -> None:
    """Cached segments are too small for the next step: the load grows, although nothing is kept."""
    events: list[Event] = [(ALLOC, 0, 8 * MIB)]
    for n in range(5):
        events += [(MARK, 0, 0), (ALLOC, 1 + n, (32 << n) * MIB), (FREE, 1 + n, 0)]
    trace = make(events, labels=("step",))
    assert growing_reserve(trace, "caching", "sim:80GiB") is None


class Program:
    """Events of a program without marks: what it allocates and frees, in MiB."""

    def __init__(self, weights: int = 4) -> None:
        self.events: list[Event] = []
        self.live: list[int] = []
        for _ in range(weights):
            self.alloc(40)

    def alloc(self, size: float) -> int:
        block = sum(event[0] == ALLOC for event in self.events)
        self.events.append((ALLOC, block, int(size * MIB)))
        self.live.append(block)
        return block

    def free(self, *blocks: int) -> None:
        self.events += [(FREE, block, 0) for block in blocks]
        self.live = [block for block in self.live if block not in blocks]

    def step(self, scale: float, *kept: float, parts: int = 4) -> None:
        """Activations of 30 MiB times the scale, temporaries, and what is kept."""
        activations = []
        for part in range(parts):
            activations.append(self.alloc(30 * scale))
            self.free(self.alloc(20 * scale + part))
        for size in kept:
            self.alloc(size)
        self.free(*reversed(activations))

    def trace(self) -> Trace:
        return make(self.events)


def lengths(count: int, seed: int = 3) -> list[float]:
    """The lengths of the sequences of steps, as shares of the longest."""
    random = Random(seed)
    return [random.uniform(0.5, 1) for _ in range(count)]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("parts", [4, None])
def test_a_leak_in_steps_of_different_sizes(parts: int | None, ends: bool) -> None:
    """40 steps keep 8 MiB each; some also differ in their number of layers."""
    program = Program()
    for number, scale in enumerate(lengths(40)):
        program.step(scale, 8, parts=parts or 3 + number * 5 % 4)
    if ends:
        program.free(*program.live)
    leak = leak_of(program.trace())
    assert leak is not None
    assert (leak.unit, leak.rate) == ("cycle", 8 * MIB)
    assert [one.sizes for one in leak.growths] == [(8 * MIB, 8 * MIB)]
    # 320 MiB are kept by 40 steps, so that 1,600 MiB more are full 200 steps later.
    assert leak.full_after(1000 * MIB, 2600 * MIB) in range(238, 242)


def test_a_leak_of_different_sizes_has_a_mean_rate() -> None:
    """Each step keeps 6 MiB times its length, and uses 120 + 86 MiB or more that it frees."""
    program, scales = Program(), lengths(64)
    for scale in scales:
        program.step(scale, 6 * scale)
    leak = leak_of(program.trace())
    assert leak is not None
    (growth,) = leak.growths
    assert growth.sizes[0] < growth.sizes[1]
    assert leak.rate == pytest.approx(6 * MIB * np.mean(scales), rel=0.05)
    assert "MiB a cycle" in sentence(leak)


def test_marked_steps_that_keep_blocks_of_different_sizes() -> None:
    sizes = [5, 7, 9, 6, 8, 5, 9, 7, 6, 8, 7, 9]
    leak = leak_of(kept_by(*[[size * step] for step, size in enumerate(sizes, 31)]))
    assert leak is not None
    assert leak.unit == "step"
    assert leak_of(kept_by(*[[one] for one in range(100, 107)])) is None  # too few


def loading() -> Program:
    """A checkpoint of four bytes per value: each weight is cast to two, in any order of sizes."""
    program = Program(weights=1)
    for scale in lengths(60):
        whole = program.alloc(32 * scale)
        program.alloc(16 * scale)
        program.free(whole)
    return program


def warm_up() -> Program:
    program = Program()
    for number, scale in enumerate(lengths(40)):
        program.step(scale, *[8] * (number < 20))
    return program


def saturating() -> Program:
    """A cache by length: 16 of them come in 60 steps, most of them early."""
    program, seen, random = Program(), set[int](), Random(1)
    for _ in range(60):
        length = random.randrange(16)
        program.step(0.5 + length / 32, *[8] * (length not in seen))
        seen.add(length)
    return program


def one_request(pages: bool) -> Program:
    """Its cache grows by 2 MiB a token, by pages or copies, and so do scores of attention."""
    program, cache = Program(), list[int]()
    for token in range(100):
        scores = program.alloc(50 + token)
        if not pages and cache:
            cache.append(program.alloc(2 * token))
            program.free(cache.pop(0))
        else:
            cache.append(program.alloc(2))
        program.free(scores)
    return program


def requests() -> Program:
    """Pages of requests that come and go; one goes on at the end."""
    program, random = Program(), Random(5)
    for _ in range(9):
        pages = []
        for _ in range(random.randrange(10, 20)):
            program.step(random.uniform(0.5, 1))
            pages.append(program.alloc(4))
        program.free(*pages)
    for _ in range(12):
        program.step(random.uniform(0.5, 1), 4)
    return program


def larger_batches() -> Program:
    program = Program()
    for batch in range(1, 41):
        program.step(batch / 10)
    return program


def converted() -> Program:
    """Each weight is replaced by one of a quarter of the size, with much work."""
    program = Program(weights=0)
    old = [program.alloc(40) for _ in range(40)]
    for weight, scale in zip(old, lengths(40), strict=True):
        program.step(scale, 10)
        program.free(weight)
    return program


@pytest.mark.parametrize(
    "program",
    [
        loading(),
        warm_up(),
        saturating(),
        one_request(pages=True),
        one_request(pages=False),
        requests(),
        larger_batches(),
        converted(),
    ],
    ids=lambda program: f"{len(program.events)} events",
)
def test_what_grows_for_a_while_is_no_leak(program: Program) -> None:
    trace = program.trace()
    assert leak_of(trace) is None
    device = f"sim:{trace.max_load * 9 // 10}"
    failing = explain(Runner(trace, device), "naive")
    assert failing is not None
    assert failing.leak is None


@pytest.mark.parametrize("workload", ["bert-serve", "gpt2-train", "llama3-8b-lora", "llm-decode"])
def test_parts_of_real_programs_are_no_leaks(workload: str) -> None:
    """Layers, the loading of weights and caches of requests, where a recording happens to end."""
    trace = catalog.load(workload)
    kept = trace.op != MARK
    columns = {name: column[kept] for name, column in trace.columns().items()}
    for name in ("stack", "module", "kind"):  # of which a recording of others knows nothing
        columns.pop(name, None)
    plain = replace(trace, **columns, stack=None, module=None, kind=None)
    random = Random(workload)
    for _ in range(12):
        assert leak_of(before(plain, random.randrange(len(plain)))) is None
