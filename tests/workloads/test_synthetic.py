# SPDX-License-Identifier: Apache-2.0
"""allocbench.workloads.synthetic: every bomb hurts its target, every pattern has its effect."""

from collections import Counter

import numpy as np
import pytest

from allocbench import allocators
from allocbench.allocators import ReplayResult
from allocbench.workloads import ALLOC, FREE, Trace, catalog, events, synthetic
from tests.commands import QUICK, error, folder, output, run
from tests.traces import assert_same, message_of

__all__ = ["folder"]  # a fixture, used by importing it

NAMES = [generator.name for generator in synthetic.GENERATORS]
CANDIDATES = [name for name in allocators.names() if allocators.info(name).candidate]
MIB = 1 << 20


def replayed(trace: Trace, allocator: str) -> ReplayResult:
    """Overhead on a device with room for everything that a bomb can waste."""
    result = allocators.replay(
        trace, allocators.make(allocator, allocators.SimulatedDevice("1024GiB"))
    )
    assert result.stats.failures == 0
    return result


def overhead(trace: Trace, allocator: str) -> float:
    result = replayed(trace, allocator)
    return result.stats.peak_reserved / result.max_load


@pytest.mark.parametrize("name", NAMES)
def test_a_name_gives_a_complete_trace_with_provenance(name: str) -> None:
    trace = catalog.load(name)
    trace.validate()
    assert (trace.op == FREE).sum() == trace.allocs > 0
    assert (trace.provenance.name, trace.provenance.kind) == (name, "synthetic")
    assert trace.provenance.source
    options = {option.name: option.default for option in catalog.info(name).options}  # type: ignore[union-attr]
    assert trace.provenance.extra == {"options": options}
    assert trace.provenance.seed == options.get("seed")
    assert_same(trace, catalog.load(name))


# Bomb -> its targets, the minimum overhead that it must cause there, and the maximum that it may
# cause in an allocator that places blocks in another way.
TARGETS = {
    "bomb-buddy": ("buddy", 9.9, {"bfc": 2.5, "tlsf": 2.5, "naive": 1.0}),
    "bomb-pages": ("expandable planned rmm_pool:initial_pool_size=0 xla_vmm", 6.4, {"naive": 1.0}),
    "bomb-best-fit": ("caching cupy_pool", 20.0, {"bfc": 3.0, "buddy": 6.0, "expandable": 1.1}),
    "bomb-bfc": ("bfc", 1.5, {"caching": 1.1, "tlsf": 1.1, "buddy": 1.1}),
    "bomb-tlsf": ("tlsf", 2.0, {"caching": 1.1, "bfc": 1.1, "slab": 1.1}),
    "bomb-free-lists": ("free_lists mlx_cache", 500.0, {"caching": 1.1, "bfc": 1.1, "tlsf": 1.1}),
    "bomb-slab": ("slab", 18.0, {"caching": 1.2, "bfc": 2.5, "tlsf": 2.5}),
    "bomb-arena": ("arena", 1.9, {"tlsf": 1.1, "planned": 1.1, "naive": 1.0}),
}


def names_of(targets: str) -> list[str]:
    return [target.partition(":")[0] for target in targets.split()]


def test_every_strategy_has_a_bomb() -> None:
    assert set(TARGETS) == {name for name in NAMES if name.startswith("bomb-")}
    hit = [names_of(targets) for targets, _, _ in TARGETS.values()]
    # naive holds exactly the live bytes, rmm_arena the same bytes whatever is requested; the bomb
    # of best fit also costs ggml_pool nine times its load
    without = {"naive", "rmm_arena", "ggml_pool"}
    assert {name for names in hit for name in names} == set(CANDIDATES) - without
    for name, (targets, _, _) in TARGETS.items():
        assert f": {', '.join(names_of(targets))})" in catalog.info(name).summary


@pytest.mark.parametrize("name", TARGETS)
def test_a_bomb_hurts_its_targets_and_spares_others(name: str) -> None:
    targets, least, spared = TARGETS[name]
    trace = catalog.load(name)
    for target in targets.split():
        assert overhead(trace, target) >= least, target
    for allocator, most in spared.items():
        assert overhead(trace, allocator) <= most < least, allocator


def test_wholly_free_pages_can_move() -> None:
    more = catalog.load("bomb-pages:doublings=15")  # from 1 KiB to 16 pages of 2 MiB
    assert overhead(more, "expandable") == overhead(catalog.load("bomb-pages"), "expandable") == 6.5
    assert overhead(more, "expandable:page=4MiB") == 7
    assert overhead(more, "buddy:region=32MiB") == pytest.approx(8.5, abs=0.6)


def test_robson_costs_half_of_the_load_for_each_doubling() -> None:
    for doublings in (2, 5, 8):
        trace = catalog.load(f"robson:load=1024MiB,doublings={doublings}")
        assert trace.max_load == 1024 * MIB
        bound = 1 + doublings / 2
        assert overhead(trace, "buddy") == pytest.approx(
            bound, abs=0.5
        )  # it grows by 1 GiB at a time
        assert overhead(trace, "tlsf") >= 0.8 * bound
        assert overhead(trace, "naive") == 1


def test_the_buddy_bomb_costs_a_buddy_twice_as_much_as_robson() -> None:
    options = "load=1024MiB,doublings=6"
    assert overhead(catalog.load(f"bomb-buddy:{options}"), "buddy") == pytest.approx(
        2 * overhead(catalog.load(f"robson:{options}"), "buddy"), rel=0.1
    )


def test_best_fit_wastes_every_hole() -> None:
    for rounds in (16, 32):
        trace = catalog.load(f"bomb-best-fit:rounds={rounds}")
        holes = sum(10 * MIB + MIB // 2 + 2 * MIB * n for n in range(rounds))
        result = replayed(trace, "caching")
        assert holes < result.stats.peak_reserved < 1.2 * holes


def test_random_follows_the_rules_of_rmm() -> None:
    trace = catalog.load("random:allocs=5000,max_size=4MiB,max_live=500MiB,seed=3")
    assert (trace.allocs, len(trace)) == (5000, 10_000)
    sizes = trace.size[trace.op == ALLOC]
    assert 1 <= sizes.min() < 40_000
    assert 4 * MIB - 40_000 < sizes.max() <= 4 * MIB
    assert 480 * MIB < trace.max_load < 500 * MIB
    early = trace.op[:500]  # before the limit on live bytes takes effect
    assert 0.67 < np.mean(early == ALLOC) < 0.79


def test_a_ramp_goes_up_and_down_in_the_order_asked_for() -> None:
    for order, expected in {"fifo": [0, 1, 2], "lifo": [2, 1, 0]}.items():
        trace = catalog.load(f"ramp:blocks=3,size=7,repeats=1,order={order}")
        assert trace.block[trace.op == FREE].tolist() == expected
        assert (trace.max_load, trace.steps) == (21, 1)
    shuffled = catalog.load("ramp:blocks=100,repeats=1,order=shuffled")
    freed = shuffled.block[shuffled.op == FREE].tolist()
    assert sorted(freed) == list(range(100)) != freed


def test_each_tooth_has_its_own_size_and_reaches_the_peak() -> None:
    trace = catalog.load("sawtooth:teeth=6,peak=256MiB,kept=0")
    assert len(set(trace.size[trace.op == ALLOC].tolist())) == trace.steps == 6
    assert 0.85 * 256 * MIB < trace.max_load <= 256 * MIB
    lists = overhead(trace, "free_lists:buffer=2MiB")
    assert lists > 4  # no tooth can reuse the memory of another
    assert overhead(trace, "tlsf") < 1.5


def test_one_byte_above_the_bounds_costs_memory() -> None:
    above = replayed(catalog.load("straddler"), "buddy")
    exact = replayed(catalog.load("straddler:over=0"), "buddy")
    assert above.internal_fragmentation_mean > exact.internal_fragmentation_mean + 0.15
    powers = Counter(catalog.load("straddler:copies=1,repeats=1").size.tolist())
    assert {2**k + 1 for k in range(9, 27)} <= set(powers)
    assert 10 * MIB + 1 in powers


def test_buffers_freed_on_another_stream_cannot_be_reused_at_once() -> None:
    trace = catalog.load("ping-pong")
    assert set(trace.stream.tolist()) == {0, 1, 2, 3}
    rows = list(zip(*(trace.columns()[c].tolist() for c in ("block", "stream", "op")), strict=True))
    own = {block: stream for block, stream, op in rows if op == ALLOC}
    for block, stream, op in rows:
        if op == FREE:
            assert stream == (own[block] + 1) % 4
    alone = catalog.load("ping-pong:streams=1")
    assert overhead(trace, "caching") > 2 * overhead(alone, "caching")


def test_a_trace_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_ALLOCS", 100)
    catalog.load("ramp:blocks=100,repeats=1")
    message = message_of(lambda: catalog.load("ramp:blocks=101,repeats=1"))
    assert message == "ramp: needs more than 100 allocs: reduce its options"


@pytest.mark.parametrize("spec", ["ramp:blocks=8192,size=1024TiB", "bomb-free-lists:step=1024TiB"])
def test_sizes_that_add_up_to_2_to_the_63_are_refused(spec: str) -> None:
    assert message_of(lambda: catalog.load(spec)) == (
        f"{spec.partition(':')[0]}: its allocs add up to more than 9,223,372,036,854,775,807 bytes"
    )
    catalog.load("ramp:blocks=8191,size=1024TiB,repeats=1")


def test_commands_take_specs() -> None:
    spec = "ramp:blocks=10,size=3MiB,repeats=1"
    assert "30.0 MiB (31,457,280 bytes)" in output(f"inspect {spec}")
    shown = output(f"compare {spec} ramp:blocks=11 {QUICK} --allocators naive,buddy")
    assert spec in shown
    assert "ramp:blocks=11" in shown
    assert run(f"convert {spec} -o -").stdout.count("a,") == 10
    assert "height" in output(f"plan {spec} --planner greedy_by_size")
    assert "error: random: no option 'x'" in error("inspect random:x=1")
