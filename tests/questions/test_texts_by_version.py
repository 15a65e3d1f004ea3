# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501  lines of logs are as long as programs print them
"""Texts of JAX and of servers, and dumps of TensorFlow, whose state goes on in a replay."""

import random

import pytest

from allocbench.allocators import OutOfMemory, Segment, make, make_device, replay
from allocbench.base.cards import find
from allocbench.questions.error_text import explained, on_card, verdict
from allocbench.reports.advice.error_text import sentences
from allocbench.workloads.error_texts import state
from tests.questions.test_error_text import KNOWN, parsed

GIB, MIB = 1 << 30, 1 << 20


JAX = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate {} bytes."


@pytest.mark.parametrize(
    ("text", "card", "kind", "certain", "limit"),
    [
        (JAX.format(13 * GIB), 16 * GIB, "full", False, 12 * GIB),  # JAX takes 12 GiB
        (JAX.format(17 * GIB), 16 * GIB, "full", True, 12 * GIB),
        (JAX.format(11 * GIB), 16 * GIB, "unknown", False, 12 * GIB),
        (
            "export XLA_PYTHON_CLIENT_MEM_FRACTION=.90\n" + JAX.format(13 * GIB),
            *(16 * GIB, "unknown", False, int(14.4 * GIB)),
        ),
        (
            "XLA_PYTHON_CLIENT_ALLOCATOR=platform\n" + JAX.format(13 * GIB),
            *(16 * GIB, "unknown", False, None),
        ),
    ],
)
def test_jax_takes_a_share_of_the_card(
    text: str, card: int, kind: str, certain: bool, limit: int | None
) -> None:
    error = on_card(parsed(text), card)
    found = verdict(error)
    assert (found.kind, found.certain) == (kind, certain)
    assert (None if error.allowed is None else error.allowed.low) == limit


def test_all_that_a_program_needs_and_the_smallest_card() -> None:
    """14.00 GiB need 18.7 GiB where 75 % are taken; the cards with 16 GiB have too little."""
    stats = "\nBufferAssignment stats:\n total allocation: 14.00GiB\n"
    error = parsed(JAX.format(4 * GIB) + stats)
    (_, least, *_) = sentences(error, verdict(error), "")
    assert "at least 14.0 GiB" in least
    (card,) = find(least.rpartition(": ")[2].removesuffix("."))
    assert 14 / 0.75 * GIB <= card.usable < 24 * GIB
    found = verdict(on_card(error, 16 * GIB))
    assert (found.kind, found.certain, found.limited) == ("full", False, True)


def test_what_logs_of_servers_hold() -> None:
    error = parsed(KNOWN["SGLang while it captures graphs"][0].partition("[2026-01-01 10:00:09")[0])
    assert [(one.name, round(one.size.middle / GIB, 2)) for one in error.buffers] == [
        ("weights", 16.1),
        ("keys in the cache", 24.4),
        ("values in the cache", 24.4),
    ]
    assert [name for name, _ in error.parts] == ["free after the weights", "free after the cache"]


def test_a_summary_counts_failed_requests() -> None:
    text = (
        "| PyTorch CUDA memory summary, device ID 1 |\n| CUDA OOMs: 3 | cudaMalloc retries: 4 |\n"
        "| Allocated memory | 6.50 GiB | 7 GiB |\n| Allocated memory | 6656 MiB | 7168 MiB |\n"
        "| GPU reserved memory | 8192 MiB | 8192 MiB |\n"
    )
    error = parsed(text)
    assert (error.message, error.failures) == (False, 3)
    (headline, *_) = sentences(error, verdict(error), "")
    assert "3 requests that failed" in headline


def printed_by_bfc(segments: list[Segment], limit: int, requested: int) -> str:
    """What TensorFlow prints of such a state when a request fails."""
    lines = [
        f"W bfc_allocator.cc:485] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.0MiB"
        f" (rounded to {requested})requested by op last"
    ]
    for segment in segments:
        lines.append(f"I bfc_allocator.cc:1075] Next region of size {segment.size}")
        for block in segment.blocks:
            kind = "InUse" if block.requested else "Free "
            by = f" by op op{block.address} action_count 1 step 0" if block.requested else ""
            lines.append(
                f"I bfc_allocator.cc:1095] {kind} at {block.address:x} of size {block.size}{by} next 1"
            )
    used = sum(b.size for segment in segments for b in segment.blocks if b.requested)
    return "\n".join([*lines, "I cc] Stats:", f"Limit: {limit}", f"InUse: {used}", ""])


@pytest.mark.parametrize("seed", range(4))
def test_a_dump_is_taken_over_block_by_block(seed: int) -> None:
    """`bfc` fails in a random program; from the text of its state it continues as from itself."""
    rng, limit = random.Random(seed), 64 * MIB
    original = make("bfc", make_device(f"sim:{limit}"))
    live: list[int] = []
    requested = 0
    while not requested:
        size = rng.choice((rng.randrange(1, 4000), rng.randrange(1, 3 * MIB)))
        try:
            live.append(original.allocate(size))
        except OutOfMemory:
            requested = -(-size // 256) * 256
        if live and not requested and rng.random() < 0.4:
            original.deallocate(live.pop(rng.randrange(len(live))))
    error = parsed(printed_by_bfc(original.snapshot(), limit, requested))
    trace = state(error)
    assert trace is not None
    copy = make("bfc", make_device(f"sim:{limit}"))
    result = replay(trace, copy, keep=True)
    assert result.device.malloc_calls == 0
    assert result.stats.failures == 1
    copy.check()
    shape = [(s.address, s.size, [(b.address, b.size) for b in s.blocks]) for s in copy.snapshot()]
    assert shape == [
        (s.address, s.size, [(b.address, b.size) for b in s.blocks]) for s in original.snapshot()
    ]
    for size in (256, MIB // 2):
        places = []
        for allocator in (original, copy):
            try:
                places.append(allocator.allocate(size))
            except OutOfMemory:
                places.append(0)
        assert places[0] == places[1]
    found = explained(error)
    assert found is not None
    assert found.failure.largest_free < requested <= limit == found.failure.capacity


def test_segments_of_one_allocator_are_not_taken_over_by_another() -> None:
    error = parsed(KNOWN["TensorFlow 1.8 on Windows, holes of 192 and 320 MiB"][0])
    trace = state(error)
    assert trace is not None
    for spec, takes in (("bfc", True), ("limit:bytes=1GiB,of=bfc", True), ("caching", False)):
        made = make(spec, make_device("sim:1GiB"))
        assert (replay(trace, made, keep=True).device.malloc_calls == 0) == takes


def test_what_would_serve_the_request_of_aprinted_by_bfc() -> None:
    """384 MiB fit where the 256 MiB between the holes are not, or in pieces of virtual memory."""
    found = explained(parsed(KNOWN["TensorFlow 1.8 on Windows, holes of 192 and 320 MiB"][0]))
    assert found is not None
    assert (found.kind, found.failure.largest_free) == ("fragmentation", 320 * MIB)
    assert [int(found.failure.workload.size[pin]) for pin in found.failure.pins] == [256 * MIB]
    assert "expandable" in [change.spec for change in found.saved_by]
