# SPDX-License-Identifier: Apache-2.0
"""A sequence of allocs and frees for each report, written from the sizes that it describes."""

from collections.abc import Iterable

from allocbench.workloads.events import Events

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def keep_between(events: Events, cycles: int, large: Iterable[int], small: int) -> None:
    """64 MiB; then cycles of large blocks and a small one: the large ones are freed, it stays."""
    events.alloc(64 * MIB)
    sizes = tuple(large)
    for _ in range(cycles):
        blocks = [events.alloc(size) for size in sizes]
        events.alloc(small)
        for block in blocks:
            events.free(block)


def convert(events: Events, layers: int, temporary: int, kept: int) -> None:
    """For each layer a temporary block, and after it a block that stays."""
    for _ in range(layers):
        events.free(events.alloc(temporary))
        events.alloc(kept)


def again(events: Events, kept: int, large: int, between: Iterable[int]) -> None:
    """A large block, small ones that stay where it was, and the large one again."""
    events.alloc(kept)
    events.free(events.alloc(large))
    for size in between:
        events.alloc(size)
    events.alloc(large)


def one_after_another(events: Events, sizes: Iterable[int], kept: int = 0) -> None:
    """Each block is freed before the next; `kept` bytes stay from the beginning."""
    if kept:
        events.alloc(kept)
    for size in sizes:
        events.free(events.alloc(size))


def grown_copies(events: Events, first: int, step: int, count: int) -> None:
    """A block that grows: a larger one is allocated before the former one is freed."""
    block = events.alloc(first)
    for number in range(1, count):
        larger = events.alloc(first + number * step)
        events.free(block)
        block = larger


def all_at_once(events: Events, sizes: Iterable[int]) -> None:
    """Blocks that stay."""
    for size in sizes:
        events.alloc(size)


def join(events: Events, parts: Iterable[int], whole: int, kept: int = 0) -> None:
    """Blocks are freed, and one block is requested that they could hold together."""
    if kept:
        events.alloc(kept)
    for block in [events.alloc(size) for size in parts]:
        events.free(block)
    events.alloc(whole)


def free_one_then(events: Events, sizes: Iterable[int], freed: int, then: int) -> None:
    """Blocks of which one is freed before the last request."""
    blocks = [events.alloc(size) for size in sizes]
    events.free(blocks[freed])
    events.alloc(then)


def freed_elsewhere(events: Events, size: int) -> None:
    """A block that another stream used is freed, and one of its size is requested."""
    events.free(events.alloc(size), stream=1)
    events.alloc(size)


def part_freed_elsewhere(events: Events, whole: int, part: int, rest: int) -> None:
    """The same, while the block is a part of a segment whose rest is in use."""
    events.free(events.alloc(whole))
    block = events.alloc(part)
    events.alloc(rest)
    events.free(block, stream=1)
    events.alloc(part)


def steps(events: Events, each: Iterable[tuple[int, ...]]) -> None:
    """Blocks of one step after another; those of a step are alive together."""
    for step in each:
        for block in [events.alloc(size) for size in step]:
            events.free(block)
