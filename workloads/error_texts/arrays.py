# SPDX-License-Identifier: Apache-2.0
"""The texts of CuPy, RMM and TensorRT."""

from __future__ import annotations

from allocbench.base.error_text import ErrorText, exact
from allocbench.workloads.error_texts.amounts import Found, amount, compiled, each, messages

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
        parts = [("held by the pool, with free blocks", held)] if held else []
        found = ErrorText("CuPy", requested=requested, allowed=limit, parts=parts)
        yield match.start(), found
    old = (
        r"out of memory to allocate (\d{1,19}) bytes \(total (\d{1,19}) bytes"
        r"(?:, limit set to (\d{1,19}) bytes)?\)"
    )
    for match in each(old, text):  # the total is what it would be with the request
        requested, total = exact(int(match[1])), exact(int(match[2]))
        held = (total - requested).at_least_0
        found = ErrorText(
            "CuPy",
            requested=requested,
            allowed=exact(int(match[3])) if match[3] else None,
            parts=[("held by the pool, with free blocks", held)],
        )
        yield match.start(), found


def rmm(text: str) -> Found:
    """RMM's pools, and its calls of the driver."""
    pattern = r"[Mm]aximum pool size exceeded(?: \(failed to allocate AMOUNT\))?"
    for match, message in messages(pattern, text):
        sizes = compiled("current/max/try size = AMOUNT, AMOUNT, AMOUNT").search(message)
        held = amount(sizes[1], sizes[2]) if sizes else None
        most = amount(sizes[3], sizes[4]) if sizes else None
        found = ErrorText(
            "RMM",
            requested=amount(match[1], match[2]) if match[1] else None,
            allowed=most,
            free=(most - held).at_least_0 if most and held else None,
            limit_leaves=True,
            parts=[("held by the pool, with free blocks", held)] if held else [],
        )
        yield match.start(), found
    failed = r"out_of_memory: (?:CUDA|RMM) (?:error|failure) (?:\(failed to allocate AMOUNT\) )?at"
    for match in each(failed, text):
        requested = amount(match[1], match[2]) if match[1] else None
        yield match.start(), ErrorText("RMM", requested=requested)


def tensorrt(text: str) -> Found:
    """TensorRT, which has no pool of its own."""
    patterns = (
        r"Requested amount of (?:GPU )?memory \((\d{1,19}) bytes\) could not be allocated",
        r"user allocator error allocating (\d{1,19})-byte buffer",
        r"(?:OutOf|out of )Memory \(Requested size was (\d{1,19}) bytes",
    )
    for pattern in patterns:
        for match in each(pattern, text):
            yield match.start(), ErrorText("TensorRT", requested=amount(match[1], "B"))
