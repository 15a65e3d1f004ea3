# SPDX-License-Identifier: Apache-2.0
"""Texts of errors as people have them: quoted, in logs of clusters, in JSON, cut, interleaved."""

import json
import random
import textwrap
from collections.abc import Callable

import pytest

from allocbench.questions.error_text import on_card, verdict
from allocbench.workloads.error_texts import parse
from tests.questions.test_error_text import (
    KNOWN,
    LLAMA,
    TORCH_1_0,
    TORCH_1_4,
    TORCH_1_11,
    TORCH_2_1,
    TORCH_2_13,
    parsed,
)

GIB, MIB = 1 << 30, 1 << 20
FULL_CARD = TORCH_2_13.format(x="3.00 GiB", f="1.00 GiB", r="1.50 GiB", a="7.00 GiB", p="9.00 GiB")


def _lines(begin: str) -> Callable[[str], str]:
    """Each line of a text after some words."""
    return lambda text: "\n".join(begin + line for line in text.split("\n"))


def _wrapped(text: str) -> str:
    return "\n".join(part for line in text.split("\n") for part in textwrap.wrap(line, 60))


AROUND: dict[str, Callable[[str], str]] = {
    "quoted": _lines("> "),
    "quoted twice": _lines("> > "),
    "Docker Compose": _lines("trainer-1  | "),
    "Kubernetes": _lines("2026-01-02T03:04:05.678901234Z stderr F "),
    "torchrun": _lines("[rank3]: "),
    "a launcher": _lines("[default0]:"),
    "Ray": _lines("\x1b[36m(Worker pid=489, ip=10.0.0.1)\x1b[0m "),
    "Ray without escapes": _lines("[36m(Worker pid=489)[0m "),
    "vLLM": _lines("(EngineCore_DP0 pid=1094) "),
    "Open MPI": _lines("[1,3]<stderr>:"),
    "the journal": _lines("Apr 17 23:09:42 host python[2840147]: "),
    "colors": lambda text: "\x1b[31m" + text.replace("memory", "\x1b[1mmemory\x1b[0m", 1),
    "lines of a terminal": _wrapped,
    "quoted lines of a terminal": lambda text: _lines("> ")(_wrapped(text)),
    "JSON": lambda text: json.dumps({"log": text + "\n", "stream": "stderr"}),
    "JSON in JSON": lambda text: json.dumps({"message": json.dumps({"log": text})}),
    "Windows": lambda text: text.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (FULL_CARD, "full"),
        (KNOWN["BFC in pieces"][0], "pieces"),
        (KNOWN["vLLM"][0], "full"),
        (LLAMA.format(free=7000), "full"),
        (KNOWN["the pool of the driver, full"][0], "full"),
    ],
    ids=["PyTorch", "BFC", "vLLM", "llama.cpp", "cudaMallocAsync"],
)
def test_what_is_around_a_text_does_not_matter(text: str, kind: str, around: str) -> None:
    found = verdict(parsed(AROUND[around](text)))
    assert (found.kind, found.certain) == (kind, True)


_TWO = {"PyTorch 1.8 in a log of two ranks, the second is full", "vLLM that was started again"}
"""Texts that begin with an answer of their own."""


@pytest.mark.parametrize(
    "text", [text for name, (text, *_) in KNOWN.items() if name not in _TWO] + [FULL_CARD]
)
def test_a_text_that_is_cut_proves_nothing_else(text: str) -> None:
    """Each beginning of a text is answered like the whole text, or with less certainty."""
    whole = verdict(parsed(text))
    for end in range(20, len(text), 7):
        error = parse(text[:end])
        if error is not None and (found := verdict(error)).certain:
            assert whole.certain
            assert found.kind == whole.kind


def test_messages_of_several_ranks_are_not_mixed() -> None:
    """A message that another one interrupts takes no number of the other."""
    full = TORCH_2_13.format(x="3.00 GiB", f="1.00 GiB", r="0.50 GiB", a="7.0 GiB", p="9.00 GiB")
    room = TORCH_2_13.format(x="1.00 GiB", f="2.00 GiB", r="3.00 GiB", a="4.0 GiB", p="8.00 GiB")
    for cut in range(30, len(full), 11):
        for text in (full[:cut] + room, room + full[:cut], full[:cut] + room + full[cut:]):
            found = verdict(parsed(text))
            asked = parsed(text).requested
            assert asked is not None
            if found.certain:
                assert found.kind == ("full" if asked.low > 2 * GIB else "enough")


def test_free_blocks_of_private_pools_count_only_where_the_text_says_so() -> None:
    """A message that ends before its clause on private pools proves nothing with what it has."""
    text = TORCH_2_13.format(x="3.00 GiB", f="0 bytes", r="0.10 GiB", a="9.5 GiB", p="9.70 GiB")
    text = text.replace("PyTorch, and", "PyTorch, with 4.00 GiB allocated in private pools, and")
    assert verdict(parsed(text)).kind == "pieces"
    assert not verdict(parsed(text.partition(", with")[0])).certain


def test_settings_that_round_requests_up_make_the_request_uncertain() -> None:
    conf = "PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:4\n"
    assert verdict(parsed(FULL_CARD)).certain
    found = verdict(parsed(conf + FULL_CARD))
    assert (found.kind, found.certain) == ("full", False)


def test_an_allocator_that_holds_more_than_the_card_also_uses_the_host() -> None:
    text = TORCH_2_13.format(x="3.00 GiB", f="0 bytes", r="0.10 GiB", a="14.0 GiB", p="14.2 GiB")
    found = verdict(parsed(text))
    assert (found.kind, found.certain, found.beyond_card) == ("full", False, True)


@pytest.mark.parametrize(
    ("name", "card", "kind", "certain"),
    [
        ("JAX", 4 * GIB, "full", True),
        ("JAX", 16 * GIB, "unknown", False),
        ("TensorRT", 4 * GIB, "full", True),
        ("CuPy", GIB // 2, "full", True),
        ("a tensor of TensorFlow", GIB, "unknown", False),
        ("ONNX Runtime", MIB, "full", True),
        ("ONNX Runtime", GIB, "short", False),
        ("Ollama", 80 * GIB, "full", True),
        ("MPS", GIB, "full", True),
    ],
)
def test_the_size_of_the_card(name: str, card: int, kind: str, certain: bool) -> None:
    found = verdict(on_card(parsed(KNOWN[name][0]), card))
    assert (found.kind, found.certain) == (kind, certain)


def test_the_buffers_of_a_server_and_the_size_of_its_card() -> None:
    text = LLAMA.partition("\n")[2]  # 4403.49 + 1024 + 2048 MiB
    for card, kind in ((7475 * MIB, "full"), (7476 * MIB, "unknown")):
        assert verdict(on_card(parsed(text), card)).kind == kind


def test_the_size_in_the_text_counts_more() -> None:
    assert on_card(parsed(FULL_CARD), GIB) == parsed(FULL_CARD)


def test_a_program_that_may_use_the_host() -> None:
    text = (
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.\n"
        "BufferAssignment stats:\n total allocation: 14.44GiB\n total fragmentation: 1.0MiB\n"
    )
    found = verdict(on_card(parsed(text), 12 * GIB))
    assert (found.kind, found.certain, found.of_all) == ("full", False, True)


_IN_BRACKETS = (TORCH_1_0, TORCH_1_4, TORCH_1_11)


@pytest.mark.parametrize("wording", [*_IN_BRACKETS, TORCH_2_1, TORCH_2_13], ids=range(5))
def test_what_is_certain_holds_for_the_true_state(wording: str) -> None:
    """A model of the allocator states true numbers; the text has them rounded, as PyTorch does."""
    rng = random.Random(7)
    certain = 0
    for _ in range(1500):
        free, held, used, pool = (
            rng.choice((0, rng.randrange(30 * MIB), rng.randrange(3 * GIB))) for _ in range(4)
        )
        card = free + held + used + pool + rng.randrange(600 * MIB)
        allowed = rng.choice((None, held + used + pool + rng.randrange(500 * MIB)))
        room = free if allowed is None else min(free, allowed - held - used - pool)
        request = max(1, room + held + pool + rng.randrange(-20 * MIB, 20 * MIB))
        if rng.random() < 0.3:
            request = max(1, room - rng.randrange(3 * MIB))
        segment = _segment(request)
        in_brackets = wording in _IN_BRACKETS
        text = wording.format(
            x=_printed(segment),
            f=_printed(free),
            r=_printed(held if not in_brackets or wording is not TORCH_1_0 else held + pool),
            a=_printed(used if in_brackets else used + pool),
            p=_printed(card - free),
            total=_printed(used + held + pool),
        ).replace("10.00 GiB", _printed(card))
        if pool and not in_brackets:
            words = f"with {_printed(pool)} allocated in private pools (e.g., CUDA Graphs), and"
            text = text.replace("by PyTorch, and", f"by PyTorch, {words}")
        if allowed is not None and wording is not TORCH_1_0 and wording is not TORCH_1_4:
            limit = f"{_printed(allowed)} allowed; "
            text = (
                text.replace("free;", f"free; {limit.strip()}")
                if in_brackets
                else text.replace("Including", f"{limit}Including")
            )
        found = verdict(parsed(text))
        if found.certain:
            certain += 1
            most = room if "allowed" in text else free
            truth = {"full": request > most + held + pool, "enough": segment <= free}
            assert truth[found.kind], text
    assert certain > 100


def _segment(request: int) -> int:
    if request <= MIB:
        return 2 * MIB
    return 20 * MIB if request < 10 * MIB else -(-request // (2 * MIB)) * 2 * MIB


def _printed(size: int) -> str:
    for unit, scale in (("GiB", GIB), ("MiB", MIB), ("KiB", 1 << 10)):
        if size > scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size} bytes"


def test_sizes_that_were_rounded_twice() -> None:
    """XLA prints 1.004 GiB less a byte as 1.00GiB, after it has dropped what is below a MiB."""
    size = int(1.0055 * GIB)
    printed = f"{size // MIB / 1024:.2f}GiB"
    error = parsed(f"RESOURCE_EXHAUSTED: Out of memory allocating {printed}.")
    assert error.requested is not None
    assert error.requested.low <= size <= error.requested.high


def test_a_dump_with_a_gap_does_not_say_what_is_free() -> None:
    """Where somebody has left out lines, only what the statistics say is certain."""
    whole = KNOWN["BFC below its limit"][0]
    assert verdict(parsed(whole)).kind == "enough"
    lines = whole.splitlines(keepends=True)
    for n in (2, 4):  # a block that is in use
        cut = "".join([*lines[:n], "[...]\n", *lines[n + 1 :]])
        assert verdict(parsed(cut)).kind == "unknown"
    held = "total_region_allocated_bytes_: 2147483648 memory_limit_: 9663676416\n"
    assert verdict(parsed(cut + held)).kind == "enough"


def test_a_dump_that_is_listed_twice_counts_once() -> None:
    """Two ranks may write the same addresses; then only one is shown, and the rest is not known."""
    text = KNOWN["BFC in pieces"][0]
    lines = text.splitlines(keepends=True)
    error = parsed("".join([*lines[:5], *lines[1:5], *lines[5:]]))
    assert len(error.segments) == 1
    assert not verdict(error).certain or error.segments == parsed(text).segments
