# SPDX-License-Identifier: Apache-2.0
"""The texts of XLA and JAX on GPUs and TPUs: failed requests, and programs that are too large."""

import re
from collections.abc import Sequence

from allocbench.base.error_text import Amount, ErrorText, HeldBuffer, exact
from allocbench.workloads.error_texts.amounts import Found, compiled, each, messages, twice_rounded

_PARTS = (
    *("parameter allocation", "constant allocation", "maybe_live_out allocation"),
    *("preallocated temp allocation", "total allocation", "total fragmentation"),
)
_TPU_PARTS = "reserved", "heap allocations", "program", "arguments"
_MOST_LETTERS = 200_000  # of a message with its list of buffers
_MOST_NAME = 400  # letters
_BUFFER = r"(?:Buffer \d+:|\d+\.) Size: AMOUNT((?:(?! Size: AMOUNT| Buffer \d+:| ={9}).){1,3000})"


def xla(text: str) -> Found:
    """Each error of XLA, with the buffers that it lists."""
    yield from _too_large(text)
    yield from _reservations(text)
    pattern = (
        r"(?:RESOURCE_EXHAUSTED|Resource exhausted): (?:Out of memory (?:while trying to allocate"
        r"|allocating)|Failed to allocate request for) AMOUNT(?: \((\d{1,19})B\))?"
    )
    limits = [int(match[1]) for match in _LIMIT.finditer(text)]  # of one or more cards
    share = 0.0 if limits or _OTHER_POOL.search(text) else _share(text)
    for match, message in messages(pattern, text, _MOST_LETTERS):
        listed = [(name, _find(rf"\b{name}: AMOUNT", message)) for name in _PARTS]
        parts = [(name, size) for name, size in listed if size is not None]
        found = ErrorText(
            "XLA",
            requested=exact(int(match[3])) if match[3] else twice_rounded(match[1], match[2]),
            needed=dict(parts).get("total allocation"),
            gaps=None,  # buffers may also be in host memory
            allowed=Amount(min(limits), max(limits)) if limits else None,
            limit_leaves=bool(limits),
            share=share,
            parts=parts,
            buffers=_buffers(message),
        )
        yield match.start(), found


_LIMIT = re.compile(
    r"XLA backend (?:allocating|will use up to) (\d{1,19}) bytes on device \d{1,4} for BFCAllocator"
)
_OTHER_POOL = re.compile(r"XLA_PYTHON_CLIENT_ALLOCATOR\W{1,4}(?:platform|cuda_async)")
_FRACTION = re.compile(r"XLA_(?:PYTHON_)?CLIENT_MEM_FRACTION\W{1,4}?(0?\.\d{1,6}|1\.0{0,6})(?!\d)")
_JAX = re.compile(r"jax|XlaRuntimeError(?!.{0,200}TPU)")


def _share(text: str) -> float:
    """The part of the card that JAX takes: 75 % if the text sets no other; 0 without JAX."""
    set_to = _FRACTION.search(text)
    return float(set_to[1]) if set_to else 0.75 * (_JAX.search(text) is not None)


def _too_large(text: str) -> Found:
    """TPUs: a program whose plan exceeds the memory, which may have gaps."""
    pattern = r"Ran out of memory in memory space (\w+)\.? Used AMOUNT of AMOUNT"
    for match, message in messages(pattern, text, _MOST_LETTERS):
        gaps = re.search(r"% fragmentation \(([0-9.]{1,12}) ?([KMGT]?i?B?)\)", message)
        parts = [(name, _find(rf" {name} AMOUNT", message[:1500])) for name in _TPU_PARTS]
        found = ErrorText(
            "XLA",
            needed=twice_rounded(match[2], match[3]),
            available=twice_rounded(match[4], match[5]),
            gaps=_gaps(gaps),
            parts=[(name, size) for name, size in parts if size is not None],
            device=match[1],
            buffers=_buffers(message),
        )
        yield match.start(), found


def _gaps(match: re.Match[str] | None) -> Amount | None:
    if match is None or not re.fullmatch(r"\d+(\.\d+)?", match[1]):
        return None
    return twice_rounded(match[1], match[2] or "B")


def _reservations(text: str) -> Found:
    """TPUs: a program for which no place is left."""
    pattern = (
        r"Attempting to (?:reserve|allocate) AMOUNT(?: at the bottom of memory)?\. That was not"
        r" possible\.(?: There are AMOUNT free(?:, AMOUNT reserved,? and AMOUNT reservable)?)?"
    )
    for match in each(pattern, text):
        free = twice_rounded(match[3], match[4]) if match[3] else None
        found = ErrorText(
            "XLA",
            requested=twice_rounded(match[1], match[2]),
            free=free and exact(0),
            unallocated=free,
            largest_free=twice_rounded(match[7], match[8]) if match[7] else None,
            device="hbm",
        )
        yield match.start(), found


def _find(pattern: str, text: str) -> Amount | None:
    match = compiled(pattern).search(text)
    return twice_rounded(match[1], match[2]) if match else None


def _buffers(message: str) -> Sequence[HeldBuffer]:
    """The largest buffers of a program, as XLA lists them."""
    found = []
    for match in each(_BUFFER, message):
        name = re.search(r'op_name="([^"]*)', match[3]) or re.search(
            r"(?:XLA [Ll]abel|Entry Parameter Subshape): (\S+)", match[3]
        )
        shape = re.search(r"Shape: (\S+)", match[3])
        file = re.search(r'source_file="([^"]*)"(?: source_line=(\d{1,9}))?', match[3])
        words = [one[1][:_MOST_NAME] for one in (name, shape) if one]
        line = "" if file is None else ":".join(filter(None, file.groups()))
        found.append(HeldBuffer(twice_rounded(match[1], match[2]), " ".join(words), line))
    return sorted(found, key=lambda one: one.size.middle, reverse=True)
