# SPDX-License-Identifier: Apache-2.0
"""The answer to "does it fit?": the verdict, what helps, who holds the memory, what is not known.

Here are its parts and its sentences; `allocbench.questions.check` computes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from allocbench.base import units
from allocbench.base.text import upper
from allocbench.reports.advice.choosing import KEEP
from allocbench.reports.advice.coverage import hidden, needs

Verdict: TypeAlias = Literal[
    "fits", "fits_with_setting", "fragmented", "too_big", "grows", "unknown"
]
Tried: TypeAlias = Literal["replay", "run", "estimate"]

EXIT_CODES: dict[Verdict, int] = {
    "fits": 0,
    "fits_with_setting": 1,
    "fragmented": 1,
    "too_big": 1,
    "grows": 1,
    "unknown": 2,
}
RemedyKind: TypeAlias = Literal["setting", "edit", "batch", "card", "allocator"]
ORDER = get_args(RemedyKind)
"""What a change asks of the user, the least first."""
MOST_REMEDIES = 5
RECORDED = "the GPU of the recording"
"""The device on which the last request of a recording failed, in sentences."""
WORDS: dict[Verdict, str] = {
    "fits": "fits",
    "fits_with_setting": "with a setting",
    "fragmented": "fragmented",
    "too_big": "too big",
    "grows": "grows",
    "unknown": "cannot tell",
}
"""Each verdict in a table."""


@dataclass(frozen=True)
class Remedy:
    """One change with which the program fits, as a replay, a run or an estimate shows.

    kind: what changes; an edit is one of the program. change: the spec of an allocator, the name of
    a card, an option of the program with its value, or what is edited. need: bytes of the smallest
    device that is then enough, or what a run reserved; None if that is not known. setting: the
    value of PyTorch's variable that the change needs too, or "". how: the lines to add to the shell
    or to the program, "" if nothing is to be added. costs: what is lost, or "".
    """

    kind: RemedyKind
    change: str
    tried: Tried
    need: int | None = None
    setting: str = ""
    how: str = ""
    costs: str = ""
    bound: bool = False

    @property
    def words(self) -> str:
        """The change as a user makes it."""
        if self.kind == "setting":
            return self.how.splitlines()[0]
        return f"{self.change}, with {self.setting}" if self.setting else self.change

    @property
    def outcome(self) -> str:
        """What a replay or a run needed, and what is lost."""
        verb = {"run": "reserves", "replay": "needs", "estimate": "needs about"}[self.tried]
        if self.bound:
            verb = verb.replace("needs", "needs at least")
        size = "" if self.need is None else f"{verb} {units.size(self.need)} "
        costs = f"; costs: {self.costs}" if self.costs else ""
        return f"{size}({self.tried}){costs}"


@dataclass(frozen=True)
class Holder:
    """Live bytes of one kind, and the places in the program with the most of them."""

    kind: str
    bytes: int
    places: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class TriedChange:
    """A change that was tried, whether it is enough or not.

    kind, change, tried: as in `Remedy`. need: bytes of the smallest device that is then enough,
    None if that is not known. fits: whether the program then fits the device, or the card. note:
    what is lost, or what fails.
    """

    kind: RemedyKind
    change: str
    tried: Tried
    need: int | None
    fits: bool
    note: str = ""

    @property
    def words(self) -> str:
        """The change, without what all settings have in common."""
        return self.change.removeprefix(f"{KEEP}:conf=")


@dataclass(frozen=True)
class Rest:
    """What a short answer leaves out. trials: by kind, by need. assumed: sentences."""

    trials: tuple[TriedChange, ...]
    assumed: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """The answer for one input on one device. Bytes.

    device: its name in sentences, "" if no device was named and no card is large enough. sentence:
    the verdict in one line. need: the smallest device that is enough as the program is, None if
    that is not known. bound: whether the program may need more. capacity: what the device leaves
    for the program. when: of what instant the holders are. card: the smallest common card that is
    enough. unknown: sentences. rest: None in a short answer, and where nothing can be tried.
    """

    workload: str
    device: str
    verdict: Verdict
    sentence: str
    need: int | None = None
    bound: bool = False
    capacity: int | None = None
    card: str | None = None
    remedies: tuple[Remedy, ...] = ()
    when: str = ""
    holders: tuple[Holder, ...] = ()
    unknown: tuple[str, ...] = ()
    rest: Rest | None = None

    @property
    def exit_code(self) -> int:
        """0: fits as it is, 1: does not, 2: cannot tell."""
        return EXIT_CODES[self.verdict]


def exit_code(answers: Sequence[Answer]) -> int:
    """The exit code for several answers: 0 if all fit, 1 if one does not, else 2."""
    codes = {answer.exit_code for answer in answers}
    return next(code for code in (1, 2, 0) if code in codes)


def fits(device: str, need: int, bound: bool, capacity: int, smallest: bool) -> str:
    """The program fits. smallest: whether the device is the smallest card, and nobody named it."""
    which = ", the smallest card that is enough" if smallest else ""
    return (
        f"FITS {device}{which}: it {needs(need, bound)} of {units.size(capacity)}, with"
        f" {units.size(capacity - need)} to spare."
    )


MORE_ROOM = " That is little. This leaves more room:"
"""After `fits`, if a change leaves more room."""


def needs_setting(device: str, fails: str, load: int, capacity: int, part: bool) -> str:
    """It fits only with a setting. part: whether the recording is too small a part to be sure."""
    why = _in_pieces(fails, load, capacity)
    if part:
        return (
            f"DOES NOT FIT {device} AS IT IS: {why}. What was recorded fits with a setting, but it"
            " is a part of the program."
        )
    return f"FITS {device} ONLY WITH A SETTING: without it, {why}."


def pools(count: int, need: int, alone: int) -> str:
    """Private pools keep memory. Bytes that the program needs with them, and without."""
    are = "A private pool keeps" if count == 1 else f"{count} private pools keep"
    return (
        f"{are} {units.size(need - alone)} that other requests cannot use: without private pools,"
        f" the program needs {units.size(alone)}."
    )


def failed_there(device: str, requested: int, operator: str, card: int) -> str:
    """The recorded request failed on the GPU of the recording, but not in the replay."""
    return (
        f"DOES NOT FIT {device}: a request for {units.size(requested)}"
        f"{f' by {operator}' if operator else ''} failed when {units.size(card)} were reserved or"
        " free, although a replay of the recording serves it. What made it fail is not recorded."
    )


def fragmented(device: str, fails: str, load: int, capacity: int) -> str:
    """It fails although the load is below the capacity, and no setting is enough."""
    return (
        f"DOES NOT FIT {device}: fragmented. {upper(_in_pieces(fails, load, capacity))}. No"
        " setting that was tried is enough."
    )


def _in_pieces(fails: str, load: int, capacity: int) -> str:
    return (
        f"{fails}, although no more than {units.size(load)} of {units.size(capacity)}"
        " are in use at once"
    )


def too_big(device: str, load: int, bound: bool, capacity: int, fails: str = "") -> str:
    """The load alone exceeds the capacity."""
    least = "at least " * bound
    first = f"; {fails}" if fails else ""
    has = f"and the device has {units.size(capacity)}"
    if units.size(capacity) == units.size(load):
        has = f"{units.size(load - capacity)} more than the device has"
    return (
        f"DOES NOT FIT {device}: too big. The program has {least}{units.size(load)} in use at once,"
        f" {has}{first}."
    )


def no_card(need: int, bound: bool) -> str:
    """No common card is large enough."""
    least = "at least " * bound
    return f"DOES NOT FIT any card in the list: it needs {least}{units.size(need)}."


def grows(device: str, fails: bool, how: str, request: str = "") -> str:
    """It takes more from step to step. how: sentences. fails: whether the trace fails there.

    request: which request fails, if the device is not full of what accumulates by then.
    """
    head = f"DOES NOT FIT {device}" if fails else f"FITS {device} ONLY AT FIRST"
    first = f"{upper(request)}. " if request else ""
    return f"{head}: it grows. {first}{how}"


def cannot_tell(device: str, why: str) -> str:
    """The recording does not show enough."""
    on = f" whether it fits {device}" if device else ""
    return f"CANNOT TELL{on}: {why}."


def part_fits(device: str, need: int, smallest: bool) -> str:
    """What was recorded fits, but it is a part of the program."""
    if smallest:
        return (
            f"NEEDS AT LEAST {units.size(need)}: the smallest card that can be enough is the"
            f" {device}, but the recording has only a part of the program."
        )
    why = f"what was recorded needs {units.size(need)} and would fit, but it is a part"
    return cannot_tell(device, f"{why} of the program")


def held(device: str, size: int, load: int) -> str:
    """More than the device has was reserved when the recording began."""
    return cannot_tell(
        device, f"{hidden(size)}. The largest load that was recorded is {units.size(load)}"
    )


def by_text(known: bool, failed: bool, headline: str) -> str:
    """What a text proves. known: the reason. failed: whether it says that memory ran out."""
    if not known:
        return f"CANNOT TELL{' why it did not fit' * failed}: {headline}"
    return f"DID NOT FIT: {headline}"


LATER = "The text counts what was in use until it was printed; later, the program may need more."
"""What the peaks that a program printed leave open."""


def between_peaks(device: str, allocated: int, reserved: int) -> str:
    """The device has more than the program had allocated at its peak, and less than it reserved."""
    return cannot_tell(
        device,
        f"at its peaks until then, the program had {units.size(allocated)} allocated and"
        f" {units.size(reserved)} reserved",
    )


def request_fails(request: int, operator: str, step: int) -> str:
    """Where the program runs out of memory."""
    by = f" by {operator}" if operator else ""
    where = f" in step {step:,}" if step else ""
    return f"a request for {units.size(request)}{by} fails{where}"
