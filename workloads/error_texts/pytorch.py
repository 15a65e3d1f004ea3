# SPDX-License-Identifier: Apache-2.0
"""The texts of PyTorch, in the words of all of its versions and devices."""

import re
from collections.abc import Sequence
from dataclasses import replace

from allocbench.base.error_text import HOST, Amount, ErrorText, exact
from allocbench.workloads.error_texts.amounts import MIB, Found, amount, compiled, each, floor

_HINT = re.compile(r"try setting (?:\w+=)?(\w+)")
_MOST_TO_HINT = 400  # letters
_BEGIN = re.compile(r"(?:\b(\w{2,12}) )?out of memory\. $")
_MOST_BEFORE = 40  # letters
_ROUNDED_UP = re.compile(r"roundup_power2_divisions|large_segment_size_mb")
"""Settings with which a segment may be far larger than the request for it."""


class _Clauses:
    """The clauses of a message, which follow each other; foreign text between them ends it."""

    def __init__(self, text: str, at: int) -> None:
        self.text, self.at = text, at

    def take(self, pattern: str) -> re.Match[str] | None:
        """The next clause, if it is this one."""
        match = compiled(r"[ .;,]{0,3}" + pattern).match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def size(self, pattern: str) -> Amount | None:
        """The only amount of the next clause, if it is this one."""
        match = self.take(pattern)
        return amount(match[1], match[2]) if match else None


def out_of_memory(text: str) -> Found:
    """OutOfMemoryError of CUDA, ROCm, XPU, Ascend and other devices."""
    rounded_up = _ROUNDED_UP.search(text) is not None
    for match in each(r"Tried to allocate AMOUNT(?! on (?:private|shared) pool)", text):
        clauses = _Clauses(text, match.end())
        requested = amount(match[1], match[2])
        error = ErrorText(
            "PyTorch", requested=requested, least=1 if rounded_up else _least(requested)
        )
        if begin := clauses.take(r"\((\w+ \d+)"):
            error = _in_brackets(replace(error, device=begin[1]), clauses)
        else:
            error = _in_sentences(error, clauses)
        begin = _BEGIN.search(text, max(0, match.start() - _MOST_BEFORE), match.start())
        if not error.device and not begin:
            continue
        hint = _HINT.search(text, clauses.at, clauses.at + _MOST_TO_HINT)
        backend = (begin and begin[1]) or ""
        yield match.start(), replace(error, hint=hint[1] if hint else "", backend=backend)


def _in_brackets(error: ErrorText, clauses: _Clauses) -> ErrorText:
    """Up to 2.0, and Ascend: (GPU 0; 10.00 GiB total capacity; ...)."""
    error = replace(
        error,
        total=clauses.size("AMOUNT total capacity"),
        allocated=clauses.size("AMOUNT already allocated"),
    )
    clauses.take("AMOUNT current active")
    error = replace(
        error,
        free=clauses.size(r"AMOUNT free(?=[;)])"),
        allowed=clauses.size("AMOUNT allowed"),
        unallocated=clauses.size(r"AMOUNT cached\)"),
    )
    reserved = clauses.size("AMOUNT reserved in total by PyTorch")
    if reserved and error.allocated:
        return replace(error, unallocated=(reserved - error.allocated).at_least_0)
    return error


def _in_sentences(error: ErrorText, clauses: _Clauses) -> ErrorText:
    """Since 2.1, and XPU: GPU 0 has a total capacity of 10.00 GiB of which ..."""
    # PyTorch 2.2 prints the number of the device as a character
    begin = clauses.take(r"(\w{2,5}(?: \d+)?)[\x00-\x20]{0,3}has a total capaci?ty of AMOUNT")
    if begin is None:
        return error
    total = amount(begin[2], begin[3])
    free = clauses.size("of which AMOUNT is free")
    process = allowed = None
    others = []
    while True:
        if used := clauses.take(r"Process (\d+) has AMOUNT memory in use"):
            others.append((used[1], amount(used[2], used[3])))
        elif size := clauses.size(
            r"(?:Including non-PyTorch memory, )?this process has AMOUNT memory in use"
        ):
            process = size
        elif size := clauses.size("AMOUNT allowed"):
            allowed = size
        else:
            break
    allocated = clauses.size("Of the allocated memory AMOUNT is allocated by PyTorch")
    private = clauses.size(r"with AMOUNT allocated in private pools(?: \([^)]{0,40}\))?")
    unallocated = clauses.size("and AMOUNT is reserved by PyTorch but unallocated")
    # What is free in private pools counts as allocated: without the clauses on them, that is open.
    complete = unallocated is not None
    return replace(
        error,
        device=begin[1],
        total=total,
        free=free,
        allowed=allowed,
        # NVML reports nonsense for processes in some containers
        process=None if process and process.low > total.high else process,
        others=[(number, used) for number, used in others if used.low <= total.high],
        allocated=allocated if complete else None,
        private=private if complete else None,
        unallocated=unallocated,
    )


def _least(segment: Amount) -> int:
    """The smallest request for which PyTorch takes a segment.

    It takes 2 MiB for requests up to 1 MiB, 20 MiB for those below 10 MiB, and otherwise the next
    multiple of 2 MiB.
    """
    if segment.low <= 2 * MIB:
        return 1
    return max(1, segment.low - 2 * MIB + 1) if segment.low > 20 * MIB else MIB + 1


def mps(text: str) -> Found:
    """PyTorch on Apple's GPUs."""
    pattern = (
        r"MPS backend out of memory \(MPS allocated: AMOUNT, other allocations: AMOUNT,"
        r" max allowed: (?:AMOUNT|unlimited|other)\)\. Tried to allocate AMOUNT"
    )
    for match in each(pattern, text):
        held, other = amount(match[1], match[2]), amount(match[3], match[4])
        allowed = amount(match[5], match[6]) if match[5] else None
        found = ErrorText(
            "PyTorch",
            requested=amount(match[7], match[8]),
            free=None if allowed is None else (allowed - held - other).at_least_0,
            limit_leaves=True,
            allowed=allowed,
            parts=[("held by PyTorch, with free blocks", held), ("other allocations", other)],
            backend="MPS",
            device="MPS",
        )
        yield match.start(), found


def host(text: str) -> Found:
    """PyTorch's allocator for the CPU."""
    pattern = r"DefaultCPUAllocator: [^:]{1,60}: you tried to allocate (\d{1,19}) bytes"
    for match in each(pattern, text):
        requested = exact(int(match[1]))
        yield match.start(), ErrorText("PyTorch", requested=requested, device=HOST)


def pool_of_driver(text: str) -> Found:
    """PyTorch with backend:cudaMallocAsync, as ComfyUI starts it, which may show no numbers."""
    numbers = compiled(
        r" (\d+) would exceed allowed memory\. \(out of memory\) Currently allocated : AMOUNT"
        r" Requested : AMOUNT Device limit : AMOUNT Free \(according to CUDA\): AMOUNT"
    )
    for begin in each(r"Allocation on device\b", text):
        error = ErrorText("PyTorch")
        if match := numbers.match(text, begin.end()):
            allocated, requested, total, free = (
                amount(match[n], match[n + 1]) for n in (2, 4, 6, 8)
            )
            error = replace(
                error,
                requested=requested,
                free=free,
                total=total,
                allocated=allocated,
                device=f"GPU {match[1]}",
            )
        yield begin.start(), error


def summary(text: str) -> Found:
    """`torch.cuda.memory_summary()`, which rounds down."""
    row = r"\| ?{} ?\| *(\d+) ([KMGTP]?i?B) ?\| *(\d+) ([KMGTP]?i?B)"
    begins = list(each(r"PyTorch CUDA memory summary, device ID (\d+)", text))
    for match, end in zip(begins, [*(one.start() for one in begins[1:]), None], strict=False):
        table = text[match.start() : end][:20_000]
        rows = {}
        for name in ("Allocated memory", "GPU reserved memory", "Non-releasable memory"):
            if cells := re.search(row.format(name), table):
                rows[name] = floor(cells[1], cells[2]), floor(cells[3], cells[4])
        allocated, reserved = rows.get("Allocated memory"), rows.get("GPU reserved memory")
        if allocated is None or reserved is None:
            continue
        found = _report([allocated], [reserved])
        if pieces := rows.get("Non-releasable memory"):
            more = ("free in segments that are partly allocated", pieces[0])
            found = replace(found, parts=[*found.parts, more])
        failures = re.search(r"\b(?:CUDA|HIP|XPU) OOMs: (\d{1,9})", table)
        failed = int(failures[1]) if failures else 0
        yield match.start(), replace(found, failures=failed, device=f"GPU {match[1]}")


def _report(
    allocated: Sequence[tuple[Amount, Amount]], reserved: Sequence[tuple[Amount, Amount]]
) -> ErrorText:
    """Use at one or several moments, each with the peak until then. The last moment counts."""
    most, most_reserved = (
        max((peak for _, peak in moments), key=lambda peak: peak.high)
        for moments in (allocated, reserved)
    )
    now = allocated[-1][0]
    return ErrorText(
        "PyTorch",
        message=False,
        allocated=now,
        unallocated=(reserved[-1][0] - now).at_least_0,
        parts=[("allocated at the peak", most), ("reserved at the peak", most_reserved)],
        peak=(most, most_reserved),
    )


_NUMBER = r"(\d{1,19}(?:\.\d{1,9})?)"
_PRINTED_USE = {  # by unit: of DeepSpeed, and of Megatron
    "GB": rf"\bMA {_NUMBER} GB Max_MA {_NUMBER} GB CA {_NUMBER} GB Max_CA {_NUMBER} GB",
    "MB": rf"memory \(MB\) \| allocated: {_NUMBER} \| max allocated: {_NUMBER}"
    rf" \| reserved: {_NUMBER} \| max reserved: {_NUMBER}",
}


def printed_use(text: str) -> Found:
    """`torch.cuda.memory_stats()`, and what DeepSpeed and Megatron print of it in each step."""
    stats = {
        (match[1], match[2]): exact(int(match[3]))
        for match in each(
            r"\b(allocated|reserved)_bytes\.all\.(current|peak)\W{1,4}(\d{1,19})\b", text
        )
    }
    if len(stats) == 4:
        allocated, reserved = (
            (stats[name, "current"], stats[name, "peak"]) for name in ("allocated", "reserved")
        )
        yield 0, _report([allocated], [reserved])
    for unit, pattern in _PRINTED_USE.items():
        moments = []
        for match in each(pattern, text):
            now, most, held, most_held = (amount(number, unit) for number in match.groups())
            moments.append(((now, most), (held, most_held)))
        if moments:
            yield 0, _report(*zip(*moments, strict=True))


_DRIVER = (
    *("CUDA error: out of memory", "CUDA driver error: out of memory", "HIP error: out of memory"),
    *("CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation", "hipErrorOutOfMemory"),
    *(r"cuda runtime error \(2\) ?: out of memory", "UR_RESULT_ERROR_OUT_OF_"),
    *(r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_ALLOC_FAILED", "CUFFT_ALLOC_FAILED"),
    *(r"Cuda failure (?:2 )?'out of memory'", "CUDA failure 2: out of memory"),
)


def driver(text: str) -> Found:
    """Errors that name no number: of the driver, and of libraries that ask it themselves."""
    numba = "numba" in text and "torch" not in text
    for words in _DRIVER:
        for match in each(words, text):
            yield match.start(), ErrorText("Numba" if numba else "the driver")
    for match in each("nable to find an engine to execute this computation", text):
        yield match.start(), ErrorText("a convolution")


READERS = (driver, out_of_memory, mps, host, pool_of_driver, summary, printed_use)
