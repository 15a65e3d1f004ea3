# SPDX-License-Identifier: Apache-2.0
"""The answer of `explain` to the text of an error: sentences, a table of its numbers, JSON."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from json import dumps

from rich.text import Text

from allocbench.base import units
from allocbench.base.text import one_line
from allocbench.output.files import STDOUT, open_output, written
from allocbench.output.terminal import console, plain_table
from allocbench.questions.error_text import (
    ENOUGH,
    FULL,
    PIECES,
    SHORT,
    ErrorVerdict,
    verdict,
)
from allocbench.reports.advice.check import Answer, Verdict, by_text
from allocbench.workloads.error_texts import Amount, ErrorText
from allocbench.workloads.formats import text_of

_SETTINGS = {
    "expandable_segments": "expandable_segments:True",
    "max_split_size_mb": "max_split_size_mb",
}
_FIELDS = {
    "requested": "requested",
    "needed": "needed",
    "available": "available for it",
    "free": "free",
    "allowed": "allowed at most",
    "total": "capacity of the card",
    "process": "in use by this process",
    "allocated": "allocated",
    "unallocated": "reserved but not allocated",
    "private": "in private pools",
    "largest_free": "largest free block",
}


def answer(name: str, error: ErrorText, json: str | None) -> None:
    """Print the answer, and write the numbers as JSON if a path is given."""
    found = verdict(error)
    write = partial(_write, error, found)
    with written({json: write} if json else {}, ".json", write):
        if json != STDOUT:
            _show(name, error, found)


def _write(error: ErrorText, found: ErrorVerdict, path: str) -> None:
    """Write the numbers, each a range of bytes, and what they prove; - is standard output."""
    with open_output(path) as sink:
        told = {"error": asdict(error), "verdict": asdict(found)}
        sink.write(dumps(told, indent=1).encode() + b"\n")


def _show(name: str, error: ErrorText, found: ErrorVerdict) -> None:
    out = console()
    for sentence in sentences(error, found):
        out.print(Text(sentence))
    table = plain_table(f"{name}: what the text of {error.program} says", "", "")
    for field, words in _FIELDS.items():
        if (amount := getattr(error, field)) is not None:
            table.add_row(words, Text(_exactly(amount)))
    for words, amount in [*error.parts, *((f"process {n}", used) for n, used in error.others)]:
        table.add_row(Text(words), Text(_exactly(amount)))
    if table.row_count:
        out.print()
        out.print(table)


def as_check(name: str, error: ErrorText) -> Answer:
    """The answer of `check`: what the numbers prove, and what the text leaves open."""
    found = verdict(error)
    headline, *rest = sentences(error, found)
    kind: Verdict = "unknown"
    if found.kind == FULL:
        kind = "too_big"
    elif found.kind == PIECES and (found.certain or found.likely == "likely"):
        kind = "fragmented"
    need, size = error.needed, error.allowed or error.total
    if need is None and error.requested is not None and error.allocated is not None:
        need = error.requested + error.allocated
    return Answer(
        one_line(name),
        "",
        kind,
        by_text(kind, bool(error.message), headline),
        need.low if need else None,
        bound=True,
        capacity=size.low if size else None,
        unknown=tuple(rest),
    )


def sentences(error: ErrorText, found: ErrorVerdict) -> list[str]:
    """The answer: the verdict, who else uses the card, what the message recommends, what to do."""
    lines = [_headline(error, found), *_users(error, found)]
    if advice := _advice(error, found):
        lines.append(advice)
    if error.errors > 1:
        lines.append(f"The text has {error.errors} such errors; this is about the last one.")
    return [*lines, f"To know more: {text_of(error.program).instead}."]


def _headline(error: ErrorText, found: ErrorVerdict) -> str:
    """What failed, and whether the memory was full."""
    if found.kind == FULL:
        return _full(error, found)
    if found.kind == PIECES:
        return _pieces(error, found)
    if found.kind == ENOUGH:
        return _enough(error, found)
    asked = _asked(error)
    if found.kind == SHORT:
        return (
            f"{asked} is {_size(found.missing)} more than the {_size(error.free)} that"
            f" {_free(error, found)}. What the allocator holds in free blocks is not in the text,"
            " so fragmentation is possible."
        )
    if not error.message:
        free = (
            ""
            if error.unallocated is None
            else f": {_size(error.unallocated)} are reserved but not allocated"
        )
        return f"The text of {error.program} has no error, but shows what is in use{free}."
    if error.requested is None:
        return f"{error.program} ran out of memory. The message has no numbers: nothing is certain."
    return f"{asked} failed. The text does not say enough about what was free to prove why."


def _full(error: ErrorText, found: ErrorVerdict) -> str:
    asked, missing = _asked(error), _size(found.missing)
    if error.needed is not None and error.requested is not None:
        return (
            f"Full, certain. With {_lower(asked)}, {_size(error.needed)} are needed, and"
            f" {_size(error.available)} were free at the start: {missing} too little."
        )
    if error.needed is not None:
        return (
            f"Too little, certain: {_size(error.needed)} are needed, and {_size(error.available)}"
            f" are available: {missing} too little. It is no fragmentation."
        )
    if not found.certain:
        return (
            f"Full, or nearly. PyTorch asked for a segment of {_size(error.requested)}, {missing}"
            f" more than all that can be free: {_sum(error)}. The request itself may be smaller,"
            f" from {units.size(error.least)} on."
        )
    what = "The limit of the program is reached" if found.limited else "The memory is full"
    return (
        f"Full, certain. {what}: {_lower(asked)} is {missing} more than all that can be free:"
        f" {_sum(error)}. No cure for fragmentation helps."
    )


def _pieces(error: ErrorText, found: ErrorVerdict) -> str:
    asked, hole = _asked(error), error.largest_free
    if found.certain and hole is not None and error.requested is not None:
        return (
            f"Fragmented, certain. {_sum(error)} would be enough for {_lower(asked)}, but the"
            f" largest free block is {_size(error.requested - hole)} too small."
        )
    private = "" if error.private is None else f" ({_size(error.private)} of it in private pools)"
    return (
        f"Fragmentation is {found.likely}, not certain. {asked} needs {_size(found.missing)} more"
        f" than the {_size(error.free)} that {_free(error, found)}; {_size(found.held)} are"
        f" reserved but not allocated{private}, in blocks of unknown sizes."
    )


def _enough(error: ErrorText, found: ErrorVerdict) -> str:
    asked, free = _asked(error), f"{_size(error.free)} {_free(error, found)}"
    if error.program == "BFC":
        return (
            f"Below its limit, certain: {free}, and {_lower(asked)} is less. The driver refused it:"
            " other processes or the CUDA context use the card."
        )
    return (
        f"The card had enough, certain: {free}, and {_lower(asked)} is less. Either another"
        " process gave memory back before the message was written, or the driver refused for"
        " another reason: a limit of this process, a part of a GPU (MIG), or addresses."
    )


def _asked(error: ErrorText) -> str:
    by = f" by {error.operator}" if error.operator else ""
    return f"The request of {_size(error.requested)}{by}"


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _sum(error: ErrorText) -> str:
    """The free bytes that are known, or what bounds them."""
    free = "below its limit" if error.program == "BFC" else "on the card"
    parts = [
        f"{_size(amount)} {words}"
        for amount, words in (
            (error.free, free),
            (error.unallocated, "reserved but not allocated"),
            (error.private, "free in private pools"),
        )
        if amount is not None
    ]
    if error.free is None or error.unallocated is None:
        bounds = ((error.allowed, "allowed"), (error.total, "of the card"))
        most = next((f"{_size(size)} {words}" for size, words in bounds if size is not None), "")
        held = "" if error.allocated is None else f", less {_size(error.allocated)} allocated"
        return f"{most}{held}"
    return " and ".join(parts)


def _free(error: ErrorText, found: ErrorVerdict) -> str:
    if found.limited or error.program == "BFC":
        return "the limit leaves"
    return "are free on the card"


def _users(error: ErrorText, found: ErrorVerdict) -> list[str]:
    """Sentences on memory that the allocator does not hold."""
    lines = []
    if found.others is not None:
        lines.append(f"Other processes use {_about(found.others)}.")
    if found.outside is not None:
        lines.append(
            f"This process uses {_about(found.outside)} outside of PyTorch's allocator: the CUDA"
            " context, NCCL, cuBLAS."
        )
    if found.together is not None:
        lines.append(
            f"{_about(found.together)} of the card are used outside of this allocator: by its CUDA"
            " context, by libraries and by other processes."
        )
    return [line[0].upper() + line[1:] for line in lines]


def _advice(error: ErrorText, found: ErrorVerdict) -> str:
    """What the message recommends, and whether it can help."""
    setting = _SETTINGS.get(error.hint)
    if setting is None:
        return ""
    if found.kind == FULL:
        return f"The message recommends {setting}, which cannot help here."
    if found.kind == PIECES and error.hint == "expandable_segments":
        return f"The message recommends {setting}: try it first."
    if found.kind == PIECES:
        return (
            f"The message recommends {setting}; expandable_segments:True is the better first try."
        )
    return ""


def _size(amount: Amount | None) -> str:
    return "an unknown number of bytes" if amount is None else units.size(amount.middle)


def _about(amount: Amount) -> str:
    """A difference of rounded numbers."""
    if amount.low <= 0:
        return f"at most {units.size(amount.high)}"
    return units.size(amount.middle)


def _exactly(amount: Amount) -> str:
    exact = f" ({amount.low:,} bytes)" if amount.low == amount.high else ""
    return f"{units.size(amount.middle)}{exact}"
