# SPDX-License-Identifier: Apache-2.0
"""What the text of an out-of-memory error says, as numbers.

The text may be a whole log with tracebacks; of several errors, the last one counts. Programs round
the numbers that they print, so each is a range. The wordings are those of PyTorch 1.0 to 2.13
(CUDA, ROCm, XPU, MPS and Ascend), of its `memory_summary()`, JAX and XLA, TensorFlow's BFC
allocator, ONNX Runtime's arena, CuPy, RMM, vLLM, SGLang and llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_MOST_LETTERS = 20_000
"""Of a message, from its first words on."""
_AMOUNT = r"([0-9][0-9,]{0,24}(?:\.[0-9]{1,9})?) ?(bytes?|[KMGTPE]?i?B|[KMGT])\b"
_MIB = 1 << 20
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@dataclass(frozen=True)
class Amount:
    """A number of bytes from `low` to `high`, as exact as it was printed."""

    low: int
    high: int

    @property
    def middle(self) -> int:
        """The number as it was printed."""
        return (self.low + self.high) // 2

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.low - other.high, self.high - other.low)


@dataclass(frozen=True)
class ErrorText:
    """What a text says. None: it does not say.

    program: that printed it. message: whether the text has an error, not only a report of use.
    requested: by the request that failed; in PyTorch's own message, the segment for it, so that the
    request may be as small as `least`. free: on the card, which the allocator could still get.
    total: of the card. allowed: the most that the allocator may hold. process: in use by this
    process. allocated: to live blocks. unallocated: held by the allocator, but free. private: the
    same in private pools, which PyTorch counts as allocated. largest_free: the largest free block,
    if the text lists the blocks. others: in use by other processes, by number. needed, available:
    what a server needs for its cache, and what is left for it. parts: other lines worth showing.
    hint: the setting that the message recommends. device, operator: as the message names them.
    errors: how many errors the text has.
    """

    program: str
    message: bool = True
    requested: Amount | None = None
    least: int = 0
    free: Amount | None = None
    total: Amount | None = None
    allowed: Amount | None = None
    process: Amount | None = None
    allocated: Amount | None = None
    unallocated: Amount | None = None
    private: Amount | None = None
    largest_free: Amount | None = None
    others: Sequence[tuple[str, Amount]] = ()
    needed: Amount | None = None
    available: Amount | None = None
    parts: Sequence[tuple[str, Amount]] = ()
    hint: str = ""
    device: str = ""
    operator: str = ""
    errors: int = 1


def parse(text: str) -> ErrorText | None:
    """The last error in a text, or the last report of memory in use; None if it has neither."""
    plain = " ".join(_ESCAPES.sub("", text).split())
    found = [item for reader in _READERS for item in reader(plain)]
    errors = [item for item in found if item[1].message]
    if errors:
        last = max(errors, key=_substance)[1]
        return replace(last, errors=sum(one.program == last.program for _, one in errors))
    return max(found, key=_substance)[1] if found else None


def _substance(found: tuple[int, ErrorText]) -> tuple[int, int]:
    """The order of errors: one that says what was free counts most, then the last one."""
    position, error = found
    room = error.free or error.total or error.allowed or error.needed
    return (2 if room else 1 if error.requested or error.parts else 0), position


_Found = Iterator[tuple[int, ErrorText]]
"""Each error of one program: where it begins, and what it says."""


def _amount(number: str, unit: str) -> Amount:
    """The range of a printed number: half a unit of its last digit to both sides."""
    scale = Decimal(1024) ** _UNITS[unit[0].lower() if unit[0].lower() in "kmgtpe" else ""]
    value = Decimal(number.replace(",", ""))
    places = -int(value.as_tuple().exponent)
    if scale == 1:
        return Amount(int(value), int(value))
    half = Decimal(1).scaleb(-places) / 2
    low, high = (value - half) * scale, (value + half) * scale
    return Amount(
        max(0, int(low.to_integral_value(ROUND_CEILING))),
        int(high.to_integral_value(ROUND_FLOOR)),
    )


def _find(pattern: str, text: str) -> Amount | None:
    """The first amount in a text where AMOUNT stands in a pattern."""
    match = _compiled(pattern).search(text)
    return _amount(match[1], match[2]) if match else None


def _all(pattern: str, text: str) -> Iterator[re.Match[str]]:
    return _compiled(pattern).finditer(text)


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace("AMOUNT", _AMOUNT))


def _messages(
    pattern: str, text: str, most: int = _MOST_LETTERS
) -> Iterator[tuple[re.Match[str], str]]:
    """Each match, with the text from there to the next one."""
    matches = list(_all(pattern, text))
    ends = [match.start() for match in matches[1:]] + [len(text)]
    for match, end in zip(matches, ends, strict=False):
        yield match, text[match.start() : min(end, match.start() + most)]


def _pytorch(text: str) -> _Found:
    """PyTorch's OutOfMemoryError, in the words of all versions and devices."""
    for match, message in _messages(r"out of memory\. Tried to allocate AMOUNT", text):
        message = message[: 1500 + 80 * message.count(" memory in use. ")]
        requested = _amount(match[1], match[2])
        allocated = _find(r"allocated memory AMOUNT is allocated by", message)
        allocated = allocated or _find(r"AMOUNT already allocated", message)
        unallocated = _find(r"AMOUNT is reserved by PyTorch but unallocated", message)
        unallocated = unallocated or _find(r"AMOUNT cached\)", message)
        reserved = _find(r"AMOUNT reserved in total by PyTorch", message)
        if unallocated is None and reserved and allocated:
            unallocated = _at_least_0(reserved - allocated)
        total = _find(r"total capaci?ty of AMOUNT", message) or _find(
            r"AMOUNT total capacity", message
        )
        process = _find(r"this process has AMOUNT memory in use", message)
        hint = re.search(r"try setting (?:\w+=)?(\w+)", message)
        device = re.search(r"\b[GNX]PU \d+\b", message)
        yield (
            match.start(),
            ErrorText(
                "PyTorch",
                requested=requested,
                least=_least(requested),
                free=_find(r"of which AMOUNT is free", message)
                or _find(r"; AMOUNT free[;)]", message),
                total=total,
                allowed=_find(r"AMOUNT allowed[;.]", message),
                # NVML reports nonsense for processes in some containers
                process=None if process and total and process.low > total.high else process,
                allocated=allocated,
                unallocated=unallocated,
                others=[
                    (number[1], _amount(number[2], number[3]))
                    for number in _all(r"Process (\d+) has AMOUNT memory in use", message)
                    if not total or _amount(number[2], number[3]).low <= total.high
                ],
                private=_find(r"with AMOUNT allocated in private pools", message),
                hint=hint[1] if hint else "",
                device=device[0] if device else "",
            ),
        )


def _least(segment: Amount) -> int:
    """The smallest request for which PyTorch takes a segment.

    It takes 2 MiB for requests up to 1 MiB, 20 MiB for those below 10 MiB, and otherwise the next
    multiple of 2 MiB.
    """
    if segment.low <= 2 * _MIB:
        return 1
    return max(1, segment.low - 2 * _MIB + 1) if segment.low > 20 * _MIB else _MIB + 1


def _mps(text: str) -> _Found:
    pattern = (
        r"MPS backend out of memory \(MPS allocated: AMOUNT, other allocations: AMOUNT,"
        r" max allowed: (?:AMOUNT|unlimited)\)\. Tried to allocate AMOUNT"
    )
    for match in _all(pattern, text):
        parts = [
            ("held by PyTorch", _amount(match[1], match[2])),
            ("other allocations", _amount(match[3], match[4])),
        ]
        yield (
            match.start(),
            ErrorText(
                "PyTorch",
                requested=_amount(match[7], match[8]),
                allowed=_amount(match[5], match[6]) if match[5] else None,
                parts=parts,
                device="MPS",
            ),
        )


def _pool_of_driver(text: str) -> _Found:
    """PyTorch with backend:cudaMallocAsync."""
    pattern = (
        r"Allocation on device (\d+) would exceed allowed memory\. \(out of memory\) Currently"
        r" allocated : AMOUNT Requested : AMOUNT Device limit : AMOUNT Free \(according to CUDA\):"
        r" AMOUNT"
    )
    for match in _all(pattern, text):
        amounts = [_amount(match[n], match[n + 1]) for n in (2, 4, 6, 8)]
        allocated, requested, total, free = amounts
        yield (
            match.start(),
            ErrorText(
                "PyTorch",
                requested=requested,
                free=free,
                total=total,
                allocated=allocated,
                device=f"GPU {match[1]}",
            ),
        )


_OF_DRIVER = (
    *("CUDA error: out of memory", "CUDA driver error: out of memory", "HIP error: out of memory"),
    *("CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation"),
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),
)


def _driver(text: str) -> _Found:
    """Errors that name no number: of the driver, and of libraries that ask it themselves."""
    for words in _OF_DRIVER:
        for match in _all(words, text):
            yield match.start(), ErrorText("the driver")


def _summary(text: str) -> _Found:
    """`torch.cuda.memory_summary()`. It rounds down."""
    row = r"\| ?{} ?\| *(\d+) ([KMGTP]?i?B) ?\| *(\d+) ([KMGTP]?i?B)"
    for match, table in _messages(r"PyTorch CUDA memory summary, device ID (\d+)", text):
        found = {}
        for name in ("Allocated memory", "GPU reserved memory", "Non-releasable memory"):
            cells = re.search(row.format(name), table)
            if cells:
                found[name] = _floor(cells[1], cells[2]), _floor(cells[3], cells[4])
        allocated, reserved = found.get("Allocated memory"), found.get("GPU reserved memory")
        if allocated and reserved:
            yield (
                match.start(),
                ErrorText(
                    "PyTorch",
                    message=False,
                    allocated=allocated[0],
                    unallocated=_at_least_0(reserved[0] - allocated[0]),
                    parts=[
                        ("allocated at the peak", allocated[1]),
                        ("reserved at the peak", reserved[1]),
                        *(
                            [("non-releasable", found[name][0])]
                            if (name := "Non-releasable memory") in found
                            else []
                        ),
                    ],
                    device=f"GPU {match[1]}",
                ),
            )


def _floor(number: str, unit: str) -> Amount:
    scale = 1024 ** _UNITS[unit[0].lower() if unit[0] != "B" else ""]
    return Amount(int(number) * scale, (int(number) + 1) * scale - 1)


def _at_least_0(amount: Amount) -> Amount:
    return Amount(max(0, amount.low), max(0, amount.high))


def _xla(text: str) -> _Found:
    """JAX and XLA on GPUs, where a request failed, and on TPUs, where a program was too large."""
    tpu = r"Ran out of memory in memory space (\w+)\. Used AMOUNT of AMOUNT"
    for match in _all(tpu, text):
        needed, total = _amount(match[2], match[3]), _amount(match[4], match[5])
        yield match.start(), ErrorText("XLA", needed=needed, available=total, device=match[1])
    pattern = (
        r"(?:RESOURCE_EXHAUSTED: )Out of memory (?:while trying to allocate|allocating) AMOUNT"
    )
    parts = (
        *("parameter allocation", "constant allocation", "maybe_live_out allocation"),
        *("preallocated temp allocation", "total allocation", "total fragmentation"),
    )
    for match, message in _messages(pattern, text):
        listed = [(name, _find(rf"\b{name}: AMOUNT", message)) for name in parts]
        shown = [(name, amount) for name, amount in listed if amount is not None]
        yield (
            match.start(),
            ErrorText("XLA", requested=_amount(match[1], match[2]), parts=shown),
        )


def _bfc(text: str) -> _Found:
    """TensorFlow's allocator, which JAX has, too; with a dump of all of its chunks."""
    pattern = (
        r"Allocator \((\w+)\) ran out of memory trying to allocate AMOUNT"
        r"(?: ?\(rounded to (\d+)\))?"
    )
    for match, message in _messages(pattern, text, len(text)):
        operator = re.search(r"requested by op ([\w/.:\-\[\]]+)", message)
        numbers = {
            name: int(value)
            for name, value in re.findall(r"\b(Limit|InUse|MaxInUse): +(\d{1,19})\b", message)
        }
        chunks = [
            (state, int(size))
            for state, size in re.findall(r"\b(InUse|Free) +at \w+ of size (\d{1,19})\b", message)
        ]
        free = [size for state, size in chunks if state == "Free"]
        regions = sum(map(int, re.findall(r"\bNext region of size (\d{1,19})", message)))
        limit, in_use = numbers.get("Limit"), numbers.get("InUse")
        held = regions or (in_use or 0) + sum(free)
        room = None if limit is None or not chunks or limit < held else limit - held
        idle = None if in_use is None or not chunks or held < in_use else held - in_use
        peak = numbers.get("MaxInUse")
        yield (
            match.start(),
            ErrorText(
                "BFC",
                requested=_exact(int(match[4])) if match[4] else _amount(match[2], match[3]),
                allowed=None if limit is None else _exact(limit),
                free=None if room is None else _exact(room),
                allocated=None if in_use is None else _exact(in_use),
                unallocated=None if idle is None else _exact(idle),
                largest_free=_largest(free, held - sum(size for _, size in chunks))
                if chunks
                else None,
                parts=[] if peak is None else [("in use at the peak", _exact(peak))],
                device=match[1],
                operator=operator[1] if operator else "",
            ),
        )


def _largest(free: Sequence[int], unlisted: int) -> Amount:
    """The largest free chunk, where so many bytes of the regions are not in the list of chunks."""
    listed = max(free, default=0)
    return Amount(listed, max(listed, unlisted))


_TYPES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "bool": 1, "complex64": 8} | {
    f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def _tensor(text: str) -> _Found:
    """TensorFlow's error for a tensor, which has its shape."""
    pattern = (
        r"OOM when allocating tensor with shape ?\[([0-9,]{0,200})\] and type (\w+) on \S+ by"
        r" allocator (\w+)"
    )
    for match in _all(pattern, text):
        if size := _TYPES.get(match[2]):
            for length in filter(None, match[1].split(",")):
                size *= int(length)
            yield match.start(), ErrorText("BFC", requested=_exact(size), device=match[3])


def _exact(size: int) -> Amount:
    return Amount(size, size)


def _onnx(text: str) -> _Found:
    for match in _all(r"Failed to allocate memory for requested buffer of size (\d+)", text):
        yield match.start(), ErrorText("ONNX Runtime", requested=_exact(int(match[1])))
    pattern = r"Available memory of (\d+) is smaller than requested bytes of (\d+)"
    for match in _all(pattern, text):
        free, requested = _exact(int(match[1])), _exact(int(match[2]))
        yield match.start(), ErrorText("ONNX Runtime", requested=requested, free=free)
    extended = list(_all(r"bfc_arena\.cc:\d+ Extend\w*\] Extended allocation by (\d+) bytes", text))
    if extended:
        total = _exact(sum(int(match[1]) for match in extended))
        yield extended[0].start(), ErrorText("ONNX Runtime", False, parts=[("arena", total)])


def _cupy(text: str) -> _Found:
    pattern = (
        r"Out of memory allocating ([0-9,]+) bytes(?: \(allocated so far: ([0-9,]+) bytes"
        r"(?:, limit set to: ([0-9,]+) bytes)?\))?"
    )
    for match in _all(pattern, text):
        if text.startswith("RESOURCE_EXHAUSTED: ", max(0, match.start() - 20)):
            continue
        amounts = [_amount(number, "B") if number else None for number in match.groups()]
        requested, held, limit = amounts
        parts = [("held by the pool, with free blocks", held)] if held else []
        yield (
            match.start(),
            ErrorText("CuPy", requested=requested, allowed=limit, parts=parts),
        )


def _rmm(text: str) -> _Found:
    pattern = r"[Mm]aximum pool size exceeded(?: \(failed to allocate AMOUNT\))?"
    for match, message in _messages(pattern, text):
        sizes = re.search(
            r"current/max/try size = AMOUNT, AMOUNT, AMOUNT".replace("AMOUNT", _AMOUNT), message
        )
        yield (
            match.start(),
            ErrorText(
                "RMM",
                requested=_amount(match[1], match[2]) if match[1] else None,
                allowed=_amount(sizes[3], sizes[4]) if sizes else None,
                parts=[("held by the pool", _amount(sizes[1], sizes[2]))] if sizes else [],
            ),
        )
    for match in _all(
        r"out_of_memory: (?:CUDA|RMM) (?:error|failure) (?:\(failed to allocate AMOUNT\) )?at", text
    ):
        requested = _amount(match[1], match[2]) if match[1] else None
        yield match.start(), ErrorText("RMM", requested=requested)


def _vllm(text: str) -> _Found:
    lines = (
        ("weights", r"Model loading took AMOUNT"),
        ("available for the KV cache", r"Available KV cache memory: AMOUNT"),
    )
    parts = [(name, found) for name, line in lines if (found := _find(line, text))]
    start = text.find("Available KV cache memory:")
    if parts:
        yield max(0, start), ErrorText("vLLM", message=False, parts=parts)
    needed = (
        r"\(AMOUNT KV cache is needed, which is larger than the available KV cache memory"
        r" \(AMOUNT\)"
    )
    for match in _all(needed, text):
        needs, available = _amount(match[1], match[2]), _amount(match[3], match[4])
        yield match.start(), ErrorText("vLLM", needed=needs, available=available, parts=parts)
    for match in _all(r"No available memory for the cache blocks", text):
        yield match.start(), ErrorText("vLLM", parts=parts)
    free = (
        r"Free memory on device (?:\S+ )?\(([0-9.]{1,12})/([0-9.]{1,12}) GiB\) on startup is less"
        r" than desired GPU memory utilization \(([0-9.]{1,12}), ([0-9.]{1,12}) GiB\)"
    )
    for match in _all(free, text):
        if not all(re.fullmatch(r"\d+(\.\d+)?", number) for number in match.groups()):
            continue
        available, total, needs = (_amount(match[n], "GiB") for n in (1, 2, 4))
        yield (
            match.start(),
            ErrorText("vLLM", needed=needs, available=available, total=total, parts=parts),
        )


def _sglang(text: str) -> _Found:
    lines = (
        ("weights", r"Load weight end\..{0,200}?mem usage=AMOUNT"),
        ("free after the weights", r"Load weight end\..{0,200}?avail mem=AMOUNT"),
    )
    parts = [(name, found) for name, line in lines if (found := _find(line, text))]
    if parts:
        yield 0, ErrorText("SGLang", message=False, parts=parts)
    for match in _all(r"Not enough memory\. Please try to increase --mem-fraction-static", text):
        yield match.start(), ErrorText("SGLang", parts=parts)


def _llama(text: str) -> _Found:
    """llama.cpp and what is built on it: the buffers of each card, and the one that failed."""
    failed = r"allocating AMOUNT on device (\d+): \w+ failed: out of memory"
    for match in _all(failed, text):
        before = text[text.rfind("loaded meta data", 0, match.start()) + 1 : match.start()]
        device = f"CUDA{match[3]}"
        parts, requested = _buffers(before, device), _amount(match[1], match[2])
        free = re.search(rf"using device {device} .{{0,200}}? - (\d{{1,12}}) (MiB) free", before)
        # Lines before the free bytes belong to another model.
        alone = free is not None and len(parts) == len(_buffers(before[free.end() :], device))
        yield (
            match.start(),
            ErrorText(
                "llama.cpp",
                requested=requested,
                needed=sum((amount for _, amount in parts), requested),
                available=_floor(free[1], free[2]) if free and alone else None,
                parts=parts,
                device=device,
            ),
        )
    if parts := _buffers(text, "CUDA0"):
        yield 0, ErrorText("llama.cpp", message=False, parts=parts, device="CUDA0")


def _buffers(text: str, device: str) -> list[tuple[str, Amount]]:
    """The buffers of a card, each kind as it was last listed."""
    kinds = r"((?:model|KV|compute|output|RS) buffer) size *= *AMOUNT"
    lines = _all(rf"{device} {kinds}", text)
    return list({match[1]: _amount(match[2], match[3]) for match in lines}.items())


_READERS: Sequence[Callable[[str], _Found]] = (
    _driver,
    _pytorch,
    _mps,
    _pool_of_driver,
    _summary,
    _xla,
    _bfc,
    _tensor,
    _onnx,
    _cupy,
    _rmm,
    _vllm,
    _sglang,
    _llama,
)
