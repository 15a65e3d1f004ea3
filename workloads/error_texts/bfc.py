# SPDX-License-Identifier: Apache-2.0
"""The texts of TensorFlow's BFC allocator, which JAX and ONNX Runtime have, too, with its dump."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from allocbench.base.error_text import Amount, DumpedBlock, DumpedSegment, ErrorText, exact
from allocbench.base.trace import Layout
from allocbench.workloads.coverage import Coverage
from allocbench.workloads.error_texts.amounts import Found, each, messages, twice_rounded
from allocbench.workloads.trace import Trace
from allocbench.workloads.vocabulary import Provenance

_FAILED = (
    r"(?:Allocator \((\w+)\) ran out|Ran out) of memory trying to allocate AMOUNT"
    r"(?: ?\(rounded to (\d{1,19})\))?"
)
_NO_FAILURE = re.compile(r"[^()]{0,60}The caller indicates that this is not a failure")
_OPERATOR = re.compile(r" ?requested by op (?!\d{4}-)([\w/.:\-\[\]]+)")
_STATISTIC = re.compile(
    r"\b(Limit|InUse|MaxInUse|total_region_allocated_bytes_): +(\d{1,19})(?=\D)"
)
_DUMP = re.compile(
    r"\bNext region of size (\d{1,19})(?=\D)"
    r"|\b(InUse|Chunk|Free) +at (?:0x)?([0-9a-fA-F]{1,16}) of size (\d{1,19})(?=\D)"
    r"(?: by op (.{1,200}?) action_count \d+ step \d+)?"
)
_LAST = 1 << 63  # no address is above


def bfc(text: str) -> Found:
    """Each failed request, with the blocks of the dump that follows it."""
    for match, message in messages(_FAILED, text, len(text)):
        after = match.end() - match.start()
        operator = _OPERATOR.match(message, after)
        requested = exact(int(match[4])) if match[4] else twice_rounded(match[2], match[3])
        error = ErrorText(
            "BFC",
            requested=requested,
            device=match[1] or "",
            operator=operator[1] if operator else "",
            limit_leaves=True,
        )
        if _NO_FAILURE.match(message, after):
            yield match.start(), replace(error, message=False)
        else:
            yield match.start(), _with_dump(error, message)


def _with_dump(error: ErrorText, message: str) -> ErrorText:
    """The error with what its dump proves, which is less if somebody has cut the dump."""
    numbers = {name: int(value) for name, value in _STATISTIC.findall(message)}
    limit, in_use = numbers.get("Limit") or None, numbers.get("InUse")
    regions, segments = _segments(message)
    blocks = [block for segment in segments for block in segment.blocks]
    live = sum(block.size for block in blocks if block.allocated)
    free = [block.size for block in blocks if not block.allocated]
    held = numbers.get("total_region_allocated_bytes_")
    if held is None and blocks and live == in_use:  # nothing was cut
        held = regions or live + sum(free)
    peak = numbers.get("MaxInUse")
    error = replace(
        error,
        allowed=None if limit is None else exact(limit),
        allocated=None if in_use is None else exact(in_use),
        parts=[] if peak is None else [("in use at the peak", exact(peak))],
        segments=segments,
    )
    if held is None:
        return replace(error, unlisted=max(0, (in_use or 0) - live) if blocks else 0)
    unlisted = max(0, held - live - sum(free))
    return replace(
        error,
        free=None if limit is None or limit < held else exact(limit - held),
        unallocated=None if in_use is None or held < in_use else exact(held - in_use),
        largest_free=_largest(free, unlisted) if blocks else None,
        unlisted=unlisted if blocks else 0,
    )


def _largest(free: Sequence[int], unlisted: int) -> Amount:
    """The largest free block, where so many bytes of the segments are not in the list of blocks."""
    listed = max(free, default=0)
    return Amount(listed, max(listed, unlisted))


def _segments(message: str) -> tuple[int, Sequence[DumpedSegment]]:
    """The bytes of all regions, if they are listed, and the segments with their blocks.

    Old dumps have no regions; there, and after a gap, a block begins a segment.
    """
    total, region = 0, 0
    runs = list[tuple[int, list[DumpedBlock]]]()
    for match in _DUMP.finditer(message):
        if match[1]:
            region = int(match[1])
            total += region
            runs.append((region, []))
            continue
        address = int(match[3], 16)
        block = DumpedBlock(address, int(match[4]), match[2] != "Free", (match[5] or "").strip())
        if not block.size or address + block.size > _LAST:
            continue
        before = runs[-1][1][-1] if runs and runs[-1][1] else None
        if not runs or (before and before.address + before.size != address):
            runs.append((0, []))
        runs[-1][1].append(block)
    segments = [
        DumpedSegment(run[0].address, max(size, sum(block.size for block in run)), run)
        for size, run in runs
        if run
    ]
    kept = list[DumpedSegment]()
    for segment in sorted(segments, key=lambda one: one.address):
        if not kept or kept[-1].address + kept[-1].size <= segment.address:  # not listed twice
            kept.append(segment)
    return total, kept


def state(error: ErrorText) -> Trace | None:
    """The memory that a dump lists, as the beginning of a trace, and then the failed request.

    The end of a segment that the dump does not list is a block. None if the dump does not list a
    hundredth of the segments, or lacks a segment, the limit of all of them together or the request,
    or if it contradicts itself.
    """
    requested, limit, held = error.requested, error.allowed, error.segments
    ends = [_unlisted_end(segment) for segment in held]
    unlisted = sum(block.size for block in ends)
    reserved = sum(segment.size for segment in held)
    if requested is None or limit is None or error.unlisted > unlisted or 100 * unlisted > reserved:
        return None
    used = [
        block
        for segment, end in zip(held, ends, strict=True)
        for block in [*segment.blocks, end]
        if block.allocated and block.size
    ]
    sizes = np.array([*(block.size for block in used), requested.low], np.uint64)
    labels, label = np.unique([*(b.operator for b in used), error.operator], return_inverse=True)
    none = np.zeros(len(held), np.uint16)
    place = [_column(of, name) for of in (held, used) for name in ("address", "size")]
    live = sum(block.size for block in used)
    trace = Trace(
        op=np.zeros(len(sizes), np.uint8),
        block=np.arange(len(sizes), dtype=np.uint32),
        size=sizes,
        stream=np.zeros(len(sizes), np.uint16),
        label=label.astype(np.uint32),
        labels=tuple(map(str, labels)),
        provenance=Provenance(kind="imported", live_at_start=len(used)),
        layout=Layout(
            address=place[0],
            size=place[1],
            stream=none,
            small=none.astype(np.bool_),
            reservation=none.astype(np.uint64),
            rank=none.astype(np.uint32),
            block_address=place[2],
            block_size=place[3],
            of_bfc=True,
        ),
        coverage=Coverage(
            begins="later",
            ends="failure",
            held=reserved,
            live=live,
            reserved=reserved,
            request=requested.low,
            device_free=max(0, limit.low - reserved),
        ),
    )
    return None if trace.first_broken() else trace


def _column(rows: Sequence[DumpedBlock] | Sequence[DumpedSegment], name: str) -> NDArray[np.uint64]:
    return np.array([getattr(row, name) for row in rows], np.uint64)


def _unlisted_end(segment: DumpedSegment) -> DumpedBlock:
    size = sum(block.size for block in segment.blocks)
    return DumpedBlock(segment.address + size, segment.size - size, True, "not listed by the dump")


_ASYNC = r"\b(\w+) cuMemAllocAsync failed to allocate (\d{1,19}) bytes"
_FREE = re.compile(r"Free memory/Total memory: (\d{1,19})/(\d{1,19})(?=\D)")


def pool_of_driver(text: str) -> Found:
    """TensorFlow and JAX with the pool of the driver, TF_GPU_ALLOCATOR=cuda_malloc_async."""
    for match, message in messages(_ASYNC, text):
        reported = _FREE.search(message)
        numbers = {name: int(value) for name, value in _STATISTIC.findall(message)}
        free, total = (exact(int(n)) for n in reported.groups()) if reported else (None, None)
        found = ErrorText(
            "BFC",
            requested=exact(int(match[2])),
            free=free,
            total=total,
            allocated=exact(numbers["InUse"]) if "InUse" in numbers else None,
            device=match[1],
        )
        yield match.start(), found


_TYPES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "bool": 1, "complex64": 8} | {
    f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def tensor(text: str) -> Found:
    """TensorFlow's error for a tensor, which has its shape."""
    pattern = (
        r"OOM when allocating tensor with shape ?\[([0-9,]{0,200})\] and type (\w+) on \S+ by"
        r" allocator (\w+)"
    )
    for match in each(pattern, text):
        if size := _TYPES.get(match[2]):
            for length in filter(None, match[1].split(",")):
                size *= int(length)
            yield match.start(), ErrorText("BFC", requested=exact(size), device=match[3])


def onnx(text: str) -> Found:
    """ONNX Runtime's arena."""
    for match in each(r"Failed to allocate memory for requested buffer of size (\d{1,19})", text):
        yield match.start(), ErrorText("ONNX Runtime", requested=exact(int(match[1])))
    pattern = r"Available memory of (\d{1,19}) is smaller than requested bytes of (\d{1,19})"
    for match in each(pattern, text):
        free, requested = exact(int(match[1])), exact(int(match[2]))
        if requested.low <= free.high:  # its number is cut
            continue
        found = ErrorText("ONNX Runtime", requested=requested, free=free, limit_leaves=True)
        yield match.start(), found
    extended = list(
        each(r"bfc_arena\.cc:\d+ Extend\w*\] Extended allocation by (\d{1,19}) bytes", text)
    )
    if extended:
        total = exact(sum(int(match[1]) for match in extended))
        yield extended[0].start(), ErrorText("ONNX Runtime", False, parts=[("arena", total)])


READERS = (bfc, pool_of_driver, tensor, onnx)
