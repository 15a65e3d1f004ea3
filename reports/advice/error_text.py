# SPDX-License-Identifier: Apache-2.0
"""What the numbers in the text of an out-of-memory error mean, in sentences."""

from dataclasses import dataclass
from typing import Literal

from allocbench.base import units
from allocbench.base.cards import cards
from allocbench.base.error_text import HOST, SHARED, Amount, ErrorText, MemoryDump
from allocbench.base.text import upper

Kind = Literal["full", "pieces", "others", "enough", "short", "unknown"]
_SETTINGS = {
    "expandable_segments": "expandable_segments:True",
    "max_split_size_mb": "max_split_size_mb",
}


_WITHOUT_NUMBERS = {
    "the host": "The memory of the host ran out, not that of a GPU; the system ended a process.",
    "a DataLoader": (
        "Workers of a DataLoader ran out of shared memory of the host (/dev/shm), not of memory of"
        " a GPU."
    ),
    "Python": "The memory of the host ran out, not that of a GPU.",
    "another program": "Memory ran out. What this text says of free memory is not known.",
    "a launcher": (
        "Signal 9 ended a process. The usual reason is that the memory of the host ran out, not"
        " that of a GPU; the text does not prove it."
    ),
    "a convolution": (
        "PyTorch could use none of cuDNN's algorithms for a convolution. The usual reason is that"
        " there was no memory for any of them; the text does not prove it."
    ),
}


@dataclass(frozen=True)
class ErrorVerdict:
    """What the numbers of an error mean.

    kind: full: the memory cannot hold the request, however it is arranged. pieces: enough is free,
    but only together with free blocks of the allocator. others: most of the card is in use outside
    of this allocator, and its own blocks are not. enough: the card alone had enough. short:
    the card alone has too little; what else is free is not known. unknown: the text does not say.
    certain: whether arithmetic proves it. missing: bytes that the card lacks, for full also with
    the allocator's free blocks. of_all: for full, whether it is about all that the program needs.
    held: what the allocator holds in free blocks, for pieces. likely: for pieces, how likely it is
    that another arrangement of them is enough. limited: whether a limit, not the card, is reached.
    beyond_card: whether the allocator holds more than the card has. others: in use by other
    processes. outside: of this process, outside of its allocator. together: the sum of both, if
    only that is known.
    """

    kind: Kind
    certain: bool = False
    missing: Amount | None = None
    of_all: bool = False
    held: Amount | None = None
    likely: str = ""
    limited: bool = False
    beyond_card: bool = False
    others: Amount | None = None
    outside: Amount | None = None
    together: Amount | None = None


def sentences(error: ErrorText, found: ErrorVerdict, instead: str) -> list[str]:
    """The answer: the verdict, who else uses the card, what the message recommends, what to do.

    instead: how to learn more than the text says, or "".
    """
    lines = [_headline(error, found), *_least(error, found), *_users(found)]
    if advice := _advice(error, found):
        lines.append(advice)
    if error.unlisted:
        lines.append(f"The dump does not list the blocks of {units.size(error.unlisted)}.")
    if error.errors > 1:
        lines.append(f"The text has {error.errors} such errors; this is about the last one.")
    return [*lines, f"To know more: {instead}."] if instead else lines


def shown(dump: MemoryDump) -> str:
    """What a dump shows, and what it cannot."""
    return (
        f"{upper(dump.name)}: {units.size(dump.total)} are in use {dump.when}. It has no requests,"
        " so what else is in use, and what is free, is not known."
    )


def xla_plan(height: int, own: int) -> str:
    """A plan compared with that of XLA. Bytes."""
    if height == own:
        return f"XLA's own plan has the same height, {units.size(own)}."
    words = "lower" if height < own else "higher"
    by = units.size(abs(own - height))
    return f"XLA's own plan has {units.size(own)}; this one is {by} {words}."


def size_or_bound(amount: Amount) -> str:
    """A difference of rounded numbers."""
    if amount.low <= 0:
        return f"at most {units.size(amount.high)}"
    return units.size(amount.middle)


def exactly(amount: Amount) -> str:
    """A size, with its bytes if they are known."""
    whole = f" ({amount.low:,} bytes)" if amount.low == amount.high else ""
    return f"{units.size(amount.middle)}{whole}"


def _headline(error: ErrorText, found: ErrorVerdict) -> str:
    if found.kind == "full":
        return _too_little(error, found) if found.of_all else _full(error, found)
    if found.kind == "pieces":
        return _pieces(error, found)
    if found.kind == "others":
        return _others(error, found)
    if found.kind == "enough":
        return _enough(error, found)
    asked = _asked(error)
    if found.kind == "short":
        return (
            f"{asked} is {_size(found.missing)} more than the {_size(error.free)} that"
            f" {_free(error, found)}. What the allocator holds in free blocks is not in the text,"
            " so fragmentation is possible."
        )
    if not error.message and error.requested is not None:
        return f"{asked} was refused. The text says that the program goes on without it."
    if not error.message:
        left = error.unallocated
        free = "" if left is None else f": {_size(left)} are reserved but not allocated"
        failed = f"counts {units.count(error.failures, 'request')} that failed, and"
        none = "has no error, but"
        return (
            f"The text of {error.program} {failed if error.failures else none} shows what is in"
            f" use{free}."
        )
    if error.requested is None:
        without = (
            f"{error.program} ran out of memory. The message has no numbers: nothing is certain."
        )
        return _WITHOUT_NUMBERS.get(error.program, without)
    if error.free is not None:
        alone = f"the {_size(error.free)} that {_free(error, found)}"
        room = alone if error.unallocated is None else f"all that can be free: {_sum(error)}"
        return f"{asked} is about as large as {room}. The printed digits do not decide it."
    return f"{asked} failed. The text does not say enough about what was free to prove why."


def _too_little(error: ErrorText, found: ErrorVerdict) -> str:
    """All that the program needs is more than what is left for it."""
    if error.tokens:
        tokens, left = error.tokens
        return (
            f"Too little, certain: a request of {tokens:,} tokens does not fit the cache, which has"
            f" {left:,}: {tokens - left:,} too few. It is not fragmentation."
        )
    needed, missing = _size(error.needed), _size(found.missing)
    if error.device == SHARED:
        return (
            f"Not memory of the card, certain: a kernel needs {needed} of {SHARED} for each block,"
            f" {missing} more than the GPU has. Smaller blocks or fewer stages need less."
        )
    if found.limited:
        room = f"and {_allowed(error)}"
    elif error.available is None:
        room = f"and the card has {_size(error.total)}"
    elif error.requested is not None:
        room = f"and {_size(error.available)} were free at the start"
    else:
        room = f"and {_size(error.available)} are available"
    if not found.certain:
        why = (
            "The plan of the compiler may leave gaps between its buffers"
            if error.available is not None
            else "Some of it may be in the memory of the host"
        )
        return f"Too little, or nearly: {needed} are needed, {room}: {missing} too little. {why}."
    if error.requested is not None:
        asked = _lower(_asked(error))
        return f"Full, certain. With {asked}, {needed} are needed, {room}: {missing} too little."
    return (
        f"Too little, certain: {needed} are needed, {room}: {missing} too little. It is not"
        " fragmentation."
    )


def _full(error: ErrorText, found: ErrorVerdict) -> str:
    asked, missing = _asked(error), _size(found.missing)
    if found.beyond_card:
        return (
            f"Full, or nearly. {asked} is {missing} more than all that can be free: {_sum(error)}."
            " The allocator holds more than the card has, so the driver also uses memory of the"
            " host, and its limit is not in the text."
        )
    if not found.certain and found.limited:
        return f"Full, or nearly. {upper(_allowed(error))}, and {_lower(asked)} is {missing} more."
    if not found.certain:
        return (
            f"Full, or nearly. PyTorch asked for a segment of {_size(error.requested)}, {missing}"
            f" more than all that can be free: {_sum(error)}. The request itself may be smaller,"
            f" from {units.size(error.least)} on."
        )
    if error.requested and error.total and error.requested.low > error.total.high:
        return (
            f"Too big, certain. {asked} alone is {_size(error.requested - error.total)} more than"
            f" the whole card, {_size(error.total)}."
        )
    what = "The limit of the program is reached" if found.limited else "The memory is full"
    return (
        f"Full, certain. {what}: {_lower(asked)} is {missing} more than all that can be free:"
        f" {_sum(error)}. No cure for fragmentation helps."
    )


def _allowed(error: ErrorText) -> str:
    """The limit, and where it comes from if that is a rule of the program."""
    if not error.share:
        return f"{_size(error.allowed)} are allowed"
    return (
        f"JAX takes {_size(error.allowed)}, {units.percent(error.share)} of the card, unless"
        " XLA_PYTHON_CLIENT_MEM_FRACTION or XLA_PYTHON_CLIENT_ALLOCATOR says otherwise"
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


def _others(error: ErrorText, found: ErrorVerdict) -> str:
    theirs, by = found.others, "by other processes"
    if theirs is None:
        theirs, by = found.together, "by other processes or other libraries of this one"
    own = f" This program has {_size(error.allocated)} allocated." if error.allocated else ""
    return (
        f"Others use the card. {_size(theirs)} of its {_size(error.total)} are in use outside of"
        f" this allocator, {by}.{own} End them, or take a free card: nvidia-smi lists the"
        " processes. What the program needs later is not known."
    )


def _enough(error: ErrorText, found: ErrorVerdict) -> str:
    asked, free = _asked(error), f"{_size(error.free)} {_free(error, found)}"
    if error.limit_leaves:
        return (
            f"Below its limit, certain: {free}, and {_lower(asked)} is less. The driver refused it:"
            " other processes or the CUDA context use the card."
        )
    return (
        f"The card had enough, certain: {free}, and {_lower(asked)} is less. Either another"
        " process gave memory back before the message was written, or the driver refused for"
        " another reason: a limit of this process, a part of a GPU (MIG), the largest block that"
        " the driver gives, or addresses."
    )


def _asked(error: ErrorText) -> str:
    by = f" by {error.operator}" if error.operator else ""
    where = f" of {HOST}" if error.device == HOST else ""
    return f"The request of {_size(error.requested)}{where}{by}"


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _sum(error: ErrorText) -> str:
    """The free bytes that are known, or what bounds them."""
    free = "below its limit" if error.limit_leaves else "on the card"
    parts = [
        f"{_size(amount)} {words}"
        for amount, words in (
            (error.free, free),
            (error.unallocated, "reserved but not allocated"),
            (error.private, "free in private pools"),
        )
        if amount is not None and amount.high
    ]
    if error.free is None or error.unallocated is None:
        bounds = ((error.allowed, "allowed"), (error.total, "of the card"))
        most = next((f"{_size(size)} {words}" for size, words in bounds if size is not None), "")
        held = "" if error.allocated is None else f", less {_size(error.allocated)} allocated"
        return f"{most}{held}"
    return " and ".join(parts) or "nothing"


def _free(error: ErrorText, found: ErrorVerdict) -> str:
    return "the limit leaves" if found.limited or error.limit_leaves else "are free on the card"


def _least(error: ErrorText, found: ErrorVerdict) -> list[str]:
    """How much the program needs where the text does not prove that it is too much."""
    if error.needed is None or found.of_all or error.device == HOST or not error.message:
        return []
    share, least = error.share or 1, error.needed.low
    card = next((one.name for one in cards() if one.usable * share >= least), "none in the list")
    host = ", unless some of it is in the memory of the host" * (error.gaps is None)
    jax = f" JAX takes {units.percent(share)} of a card by default." * bool(error.share)
    return [
        f"The program needs at least {_size(error.needed)} of the card{host}.{jax} The smallest"
        f" card that can be enough: {card}."
    ]


def _users(found: ErrorVerdict) -> list[str]:
    lines = []
    if found.others is not None:
        lines.append(f"Other processes and the driver use {size_or_bound(found.others)}.")
    if found.outside is not None:
        lines.append(
            f"This process uses {size_or_bound(found.outside)} outside of PyTorch's allocator: the"
            " CUDA context, NCCL, cuBLAS."
        )
    if found.together is not None and found.kind != "others":
        lines.append(
            f"{size_or_bound(found.together)} of the card are used outside of this allocator: by"
            " its CUDA context, by libraries and by other processes."
        )
    return [upper(line) for line in lines]


def _advice(error: ErrorText, found: ErrorVerdict) -> str:
    """What the message recommends, and whether it can help."""
    setting = _SETTINGS.get(error.hint)
    if setting is None:
        return ""
    if found.kind == "full" and found.certain:
        return f"The message recommends {setting}, which cannot help here."
    if found.kind == "pieces" and error.hint == "expandable_segments":
        return f"The message recommends {setting}: try it first."
    if found.kind == "pieces":
        return (
            f"The message recommends {setting}; expandable_segments:True is the better first try."
        )
    return ""


def _size(amount: Amount | None) -> str:
    return "an unknown number of bytes" if amount is None else units.size(amount.middle)
