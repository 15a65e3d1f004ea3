# SPDX-License-Identifier: Apache-2.0
"""The texts of servers of language models, of libraries, and of the system."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from allocbench.base.error_text import HOST, SHARED, Amount, ErrorText, HeldBuffer, exact
from allocbench.workloads.error_texts.amounts import (
    Found,
    amount,
    compiled,
    each,
    find,
    floor,
    messages,
    size,
)


def _told(text: str, held: Mapping[str, str], left: Mapping[str, str]) -> dict[str, Any]:
    """What the lines of a log say is held and is left, by name, as fields of an ErrorText."""
    buffers = [
        HeldBuffer(found, name) for name, line in held.items() if (found := find(line, text))
    ]
    parts = [(name, found) for name, line in left.items() if (found := find(line, text))]
    return {"buffers": buffers, "parts": parts} if buffers or parts else {}


def vllm(text: str) -> Found:
    """vLLM: its cache, and what is free at the start."""
    told = _told(
        text,
        {"weights": r"(?:Model loading|Loading model weights) took AMOUNT"},
        {"available for the KV cache": r"Available KV cache memory: AMOUNT"},
    )
    if told:
        start = max(0, text.find("Available KV cache memory:"))
        yield start, ErrorText("vLLM", message=False, **told)
    needed = (
        r"\(?AMOUNT KV cache is needed, which is larger than the available KV cache memory"
        r" \(AMOUNT\)"
    )
    for match in each(needed, text) if "KV cache is needed" in text else ():
        needs, available = amount(match[1], match[2]), amount(match[3], match[4])
        yield match.start(), ErrorText("vLLM", needed=needs, available=available, **told)
    last = max(0, text.rfind("Available KV cache memory: "))
    if less := compiled(r"Available KV cache memory: -AMOUNT").match(text, last):
        lacking = amount(less[1], less[2])
        yield last, ErrorText("vLLM", needed=lacking, available=exact(0), **told)
    for match in each("No available memory for the cache blocks", text):
        yield match.start(), ErrorText("vLLM", **told)
    too_long = (
        r"max seq len \((\d{1,12})\) is larger than the maximum number of tokens that can be stored"
        r" in KV cache \((\d{1,12})\)"
    )
    for match in each(too_long, text):
        tokens = int(match[1]), int(match[2])
        yield match.start(), ErrorText("vLLM", tokens=tokens, **told)
    free = (
        r"Free memory on device (?:\S+ )?\(([0-9.]{1,12})/([0-9.]{1,12}) GiB\) on startup is less"
        r" than desired GPU memory utilization \(([0-9.]{1,12}), ([0-9.]{1,12}) GiB\)"
    )
    for match in each(free, text):
        if not all(re.fullmatch(r"\d+(\.\d+)?", number) for number in match.groups()):
            continue
        available, total, needs = (amount(match[n], "GiB") for n in (1, 2, 4))
        found = ErrorText("vLLM", needed=needs, available=available, total=total, **told)
        yield match.start(), found


def sglang(text: str) -> Found:
    """SGLang: its weights, and what they leave."""
    told = _told(
        text,
        {
            "weights": r"Load weight end\..{0,200}?mem usage=AMOUNT",
            "keys in the cache": r"KV Cache is allocated\..{0,200}?K size: AMOUNT",
            "values in the cache": r"KV Cache is allocated\..{0,200}?V size: AMOUNT",
        },
        {
            "free after the weights": r"Load weight end\..{0,200}?avail mem=AMOUNT",
            "free after the cache": r"Memory pool end\..{0,60}?avail mem=AMOUNT",
        },
    )
    if told:
        yield 0, ErrorText("SGLang", message=False, **told)
    for words in (
        r"Not enough memory\. Please try (?:to increase|increasing) --mem-fraction-static",
        r"out of memory\. Try to lower your batch size",
    ):
        for match in each(words, text):
            yield match.start(), ErrorText("SGLang", **told)


def llama(text: str) -> Found:
    """llama.cpp and what is built on it: the buffers of each card, and the one that failed."""
    failed = list(each(r"allocating AMOUNT on device (\d{1,4}): \w+ failed: out of memory", text))
    for match in failed[:-1]:
        requested = amount(match[1], match[2])
        yield match.start(), ErrorText("llama.cpp", requested=requested, device=f"CUDA{match[3]}")
    for match in failed[-1:]:  # what stands before an error is searched only once
        before = text[text.rfind("loaded meta data", 0, match.start()) + 1 : match.start()]
        device = f"CUDA{match[3]}"
        buffers, requested = _buffers(before, device), amount(match[1], match[2])
        free = re.search(rf"using device {device} .{{0,200}}? - (\d{{1,12}}) (MiB) free", before)
        # Lines before the free bytes belong to another model.
        alone = free is not None and len(buffers) == len(_buffers(before[free.end() :], device))
        found = ErrorText(
            "llama.cpp",
            requested=requested,
            needed=sum((one.size for one in _kept(before, device)), requested),
            available=floor(free[1], free[2]) if free and alone else None,
            buffers=buffers,
            device=device,
        )
        yield match.start(), found
    if buffers := _buffers(text, "CUDA0"):
        yield 0, ErrorText("llama.cpp", message=False, buffers=buffers, device="CUDA0")


def _buffers(text: str, device: str) -> list[HeldBuffer]:
    """The buffers of a card, each kind as it was last listed."""
    kinds = r"((?:(?:model|KV|compute|output|RS) )?buffer) size *= *AMOUNT"
    found = {match[1]: match for match in each(rf"{device} {kinds}", text)}
    return [HeldBuffer(amount(match[2], match[3]), name) for name, match in found.items()]


def _kept(text: str, device: str) -> list[HeldBuffer]:
    """The buffers that a card certainly holds: the weights, and the cache of the last context.

    Another context may take the place of one that is gone, and another compute buffer that of a
    smaller one.
    """
    context = max(text.rfind("n_ctx "), text.rfind("n_ctx="), 0)
    weights = [one for one in _buffers(text, device) if one.name in ("buffer", "model buffer")]
    return weights + [one for one in _buffers(text[context:], device) if one.name == "KV buffer"]


_WHOLE = r"(\d{1,25}(?:,\d{3}){0,8})"


def cupy(text: str) -> Found:
    """CuPy's pool."""
    pattern = (
        rf"Out of memory allocating {_WHOLE} bytes(?: \(allocated so far: {_WHOLE} bytes"
        rf"(?:, limit set to: {_WHOLE} bytes)?\))?"
    )
    for match in each(pattern, text):
        if text.startswith("RESOURCE_EXHAUSTED: ", max(0, match.start() - 20)):
            continue
        requested, held, limit = (amount(one, "B") if one else None for one in match.groups())
        yield match.start(), _of_pool("CuPy", requested, held, limit)
    old = (
        r"out of memory to allocate (\d{1,19}) bytes \(total (\d{1,19}) bytes"
        r"(?:, limit set to (\d{1,19}) bytes)?\)"
    )
    for match in each(old, text):  # the total is what it would be with the request
        requested, total = exact(int(match[1])), exact(int(match[2]))
        held = (total - requested).at_least_0
        limit = exact(int(match[3])) if match[3] else None
        yield match.start(), _of_pool("CuPy", requested, held, limit)


def _of_pool(
    program: str, requested: Amount | None, held: Amount | None, limit: Amount | None
) -> ErrorText:
    """The error of a pool, which counts its free blocks as held."""
    return ErrorText(
        program,
        requested=requested,
        allowed=limit,
        free=(limit - held).at_least_0 if limit and held else None,
        limit_leaves=True,
        parts=[("held by the pool, with free blocks", held)] if held else [],
    )


def rmm(text: str) -> Found:
    """RMM's pools."""
    pattern = r"[Mm]aximum pool size exceeded(?: \(failed to allocate AMOUNT\))?"
    for match, message in messages(pattern, text):
        sizes = compiled("current/max/try size = AMOUNT, AMOUNT, AMOUNT").search(message)
        held = amount(sizes[1], sizes[2]) if sizes else None
        most = amount(sizes[3], sizes[4]) if sizes else None
        requested = amount(match[1], match[2]) if match[1] else None
        yield match.start(), _of_pool("RMM", requested, held, most)


_SENTENCES = {
    r"model requires more system memory \(SIZE_needed\) than is available"
    r" \(SIZE_available\)": ("llama.cpp", HOST),
    # Ollama, where the cards do not hold all layers
    r"layers\.model=(\d{1,5}) layers\.offload=(?!\1 )\d.{0,200}?"
    r'memory\.available="\[SIZE_available\]".{0,200}?'
    r'memory\.required\.full="SIZE_needed"': ("llama.cpp", ""),
    r"failed to allocate SIZE_requested of pinned memory": ("llama.cpp", HOST),
    r"ggml_vulkan: Device memory allocation of size SIZE_requested failed": ("llama.cpp", "Vulkan"),
    r"allocate SIZE_needed which is greater than the maximum allowed buffer size of"
    r" SIZE_available": ("MLX", ""),
    r"out_of_memory: (?:CUDA|RMM) (?:error|failure) (?:\(failed to allocate SIZE_requested\) )?at"
    r"(?!.{0,200}aximum pool size)": ("RMM", ""),
    r"- Free memory: SIZE_free - Requested memory: SIZE_requested": ("XGBoost", ""),
    r"alloc fail type \w{1,40} dev (?P<gpu>\d{1,4}) space \w{1,40} stream \w{1,40} size"
    r" SIZE_requested": ("Faiss", ""),
    r"Requested amount of (?:GPU )?memory \(SIZE_requested\) could not be": ("TensorRT", ""),
    r"user allocator error allocating SIZE_requested-byte buffer": ("TensorRT", ""),
    r"(?:OutOf|out of )Memory \(Requested size was SIZE_requested": ("TensorRT", ""),
    r"Cannot allocate SIZE_requested memory on GPU (?P<gpu>\d{1,4}), SIZE_held memory has been"
    r" allocated and available memory is only SIZE_free": ("Paddle", ""),
    r"out of resource: shared memory, Required: SIZE_needed, Hardware limit:"
    r" SIZE_available": ("Triton", SHARED),
    r"Out of memory: Kill|\boom[_-]kill\b|\bOOM ?Killed\b"
    r"|killed due to (?:the node running low on memory|memory pressure)": ("the host", HOST),
    r"DataLoader worker .{0,99}Bus error|workers are out of shared memory": ("a DataLoader", HOST),
}
"""Errors that are one sentence, whose sizes are fields of an ErrorText: the program, the device."""
_OF_PYTHON = {
    r"\bMemoryError\b(?!: std)|\[Errno 12\]"
    r"|Unable to allocate SIZE_requested for an array": ("Python", HOST)
}
_ENDED = {
    r"\bSIGKILL\b|killed by signal: Killed|exitcode *: -9\b|exit(?:ed with)? (?:status|code):?"
    r" 137\b|line \d+: +\d+ Killed\b|zsh: killed\b|^ *Killed *$": ("a launcher", HOST)
}
"""What shells and launchers say of a process that was ended."""


def _sentences(known: Mapping[str, tuple[str, str]], text: str) -> Found:
    for sentence, (program, device) in known.items():
        for match in each(sentence, text):
            yield match.start(), _worded(program, device, match)


def _worded(program: str, device: str, match: re.Match[str]) -> ErrorText:
    found = {name: text for name, text in match.groupdict().items() if text}
    device = f"GPU {found.pop('gpu')}" if "gpu" in found else device
    sizes: dict[str, Any] = {name: size(text) for name, text in found.items()}
    held = sizes.pop("held", None)
    parts = [(f"held by {program}, with free blocks", held)] if held else []
    pool = exact(0) if "free" in sizes and not held else None
    return ErrorText(program, device=device, parts=parts, unallocated=pool, **sizes)


_RAN_OUT = (
    r"(?i:\bout of (?:\w{1,9} )?(?:memory|VRAM)\b"
    r"|\b(?:not enough|insufficient) (?:\w{1,9} ){0,3}(?:memory|VRAM)\b"
    r"|\b(?:could not|cannot|can't|failed to|unable to) (?:be )?allocated?\b"
    r"|\ballocation (?:of .{1,40} )?failed\b|std::bad_alloc)"
)
_ASKED_FOR = r"(?i:\ballocat\w{1,5}(?: \w{1,9}){0,4}) AMOUNT"


def another(text: str) -> Found:
    """Programs that are not known: that memory ran out, and how large the last request was."""
    said = list(each(_RAN_OUT, text))
    nearby = (text[max(0, match.start() - 200) : match.end() + 200] for match in reversed(said))
    requested = next(filter(None, (find(_ASKED_FOR, words) for words in nearby)), None)
    for match in said[-1:]:
        yield match.start(), ErrorText("another program", requested=requested)


READERS = (cupy, rmm, vllm, sglang, llama, partial(_sentences, _SENTENCES))
OF_OTHERS = (partial(_sentences, _OF_PYTHON), another, partial(_sentences, _ENDED))
"""What a text may say if it has nothing that `READERS` know, the most certain first."""
