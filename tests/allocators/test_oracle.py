# SPDX-License-Identifier: Apache-2.0
"""The judge itself: every rule, broken on purpose, is detected and named."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from tests.oracle import Judge, Rule

BASE = 1 << 21


@dataclass(frozen=True)
class Block:
    address: int
    size: int
    requested: int


@dataclass(frozen=True)
class Segment:
    address: int
    size: int
    blocks: list[Block]


@dataclass(frozen=True)
class Stats:
    requested: int = 800
    allocated: int = 1024
    reserved: int = 4096
    peak_requested: int = 800
    peak_allocated: int = 1024
    peak_reserved: int = 4096
    allocations: int = 2
    frees: int = 0
    failures: int = 0


@dataclass
class World:
    """Two live blocks in a segment of 4096 bytes: 300 in 512, 500 in 512, the rest free."""

    judge: Judge = field(default_factory=lambda: Judge(capacity=1 << 20))
    stats: Stats = field(default_factory=Stats)
    largest_free: int = 3072
    segments: list[Segment] = field(
        default_factory=lambda: [
            Segment(
                BASE,
                4096,
                [Block(BASE, 512, 300), Block(BASE + 512, 512, 500), Block(BASE + 1024, 3072, 0)],
            )
        ]
    )

    def __post_init__(self) -> None:
        self.judge.alloc(0, 300, BASE)
        self.judge.alloc(1, 500, BASE + 512)

    def move(self, address: int, size: int = 500) -> None:
        del self.judge.live[1]
        self.judge.alloc(1, 500, address, size)
        self.judge.allocations -= 1

    def show(self, index: int, **changes: int) -> None:
        blocks = self.segments[0].blocks
        blocks[index] = replace(blocks[index], **changes)

    def count(self, **changes: int) -> None:
        self.stats = replace(self.stats, **changes)

    def broken(self) -> list[Rule]:
        return self.judge.broken(self.segments, self.stats, self.largest_free)


def test_a_correct_allocator_breaks_no_rule() -> None:
    assert World().broken() == []


BREAKS: list[tuple[Rule, Callable[[World], object]]] = [
    (Rule.NOT_NULL, lambda w: w.move(0)),
    (Rule.ALIGNED, lambda w: w.move(BASE + 513)),
    (Rule.LARGE_ENOUGH, lambda w: w.move(BASE + 512, 499)),
    (Rule.LARGE_ENOUGH, lambda w: w.show(1, requested=513)),
    (Rule.APART, lambda w: w.move(BASE + 256)),
    (Rule.APART, lambda w: w.move(BASE)),
    (Rule.APART, lambda w: w.move(BASE - 256)),
    (Rule.INSIDE, lambda w: w.move(BASE + 4096)),
    (Rule.INSIDE, lambda w: w.move(BASE + 3840)),
    (Rule.INSIDE, lambda w: w.segments.clear()),
    (Rule.SEGMENTS_APART, lambda w: w.segments.append(Segment(BASE + 4095, 1, []))),
    (Rule.TILED, lambda w: w.show(2, size=3071)),
    (Rule.TILED, lambda w: w.show(1, address=BASE + 513)),
    (Rule.TILED, lambda w: w.segments[0].blocks.insert(1, Block(BASE + 512, 0, 0))),
    (Rule.LIVE_SHOWN, lambda w: w.show(2, requested=1)),
    (Rule.LIVE_SHOWN, lambda w: w.show(1, requested=0)),
    (Rule.LIVE_SHOWN, lambda w: w.show(1, requested=499)),
    (Rule.REQUESTED, lambda w: w.count(requested=801)),
    (Rule.ALLOCATED, lambda w: w.count(allocated=1025)),
    (Rule.RESERVED, lambda w: w.count(reserved=4097)),
    (Rule.ORDERED, lambda w: w.count(requested=1025)),
    (Rule.ORDERED, lambda w: w.count(allocated=4097)),
    (Rule.ORDERED, lambda w: w.count(reserved=(1 << 20) + 1)),
    (Rule.PEAKS, lambda w: w.count(peak_requested=801)),
    (Rule.PEAKS, lambda w: w.count(peak_allocated=1023)),
    (Rule.PEAKS, lambda w: w.count(peak_reserved=4095)),
    (Rule.PEAKS, lambda w: w.count(peak_reserved=(1 << 20) + 1)),
    (Rule.COUNTS, lambda w: w.count(allocations=1)),
    (Rule.COUNTS, lambda w: w.count(frees=1)),
    (Rule.COUNTS, lambda w: w.judge.fail()),
    (Rule.LARGEST_FREE, lambda w: setattr(w, "largest_free", 3073)),
]


@pytest.mark.parametrize(("rule", "break_it"), BREAKS)
def test_a_broken_rule_is_named(rule: Rule, break_it: Callable[[World], object]) -> None:
    world = World()
    break_it(world)
    assert rule in world.broken()


def test_every_rule_can_be_broken() -> None:
    assert {rule for rule, _ in BREAKS} == set(Rule)


def test_a_peak_is_remembered() -> None:
    world = World()
    assert world.broken() == []
    world.judge.free(1)
    world.show(1, requested=0)
    world.count(requested=300, allocated=512, frees=1)
    assert world.broken() == []
    world.count(peak_requested=300)
    assert world.broken() == [Rule.PEAKS]
