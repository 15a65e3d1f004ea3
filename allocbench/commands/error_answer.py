# SPDX-License-Identifier: Apache-2.0
"""The answer of `explain` to files that are not traces: texts of errors, dumps, profiles."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from allocbench import allocators
from allocbench.base import units
from allocbench.base.cards import cards, label
from allocbench.base.error_text import HOST, SHARED, Amount, ErrorText, HeldBuffer, MemoryDump
from allocbench.base.text import one_line
from allocbench.inputs import Unchosen
from allocbench.inputs.devices import bytes_of_card
from allocbench.output.files import STDOUT, write_json, written
from allocbench.output.terminal import console, plain_table, say
from allocbench.output.terminal import show as show_parts
from allocbench.questions.error_text import by_operator, explained, on_card, verdict
from allocbench.questions.explain import Explanation, frame
from allocbench.questions.explain import verdict as verdict_of_replay
from allocbench.reports.advice import check as words
from allocbench.reports.advice.check import Answer, Holder, Verdict
from allocbench.reports.advice.error_text import ErrorVerdict, exactly, sentences, shown
from allocbench.reports.rows.results import records
from allocbench.workloads.formats import text_of

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
_MOST = 8  # rows of a table


def answer(
    name: str,
    content: ErrorText | MemoryDump,
    json: str | None,
    device: str,
    failure_parts: Callable[[Explanation], list[Table | Group | None]],
) -> None:
    """Print the answer, and write the numbers as JSON if a path is given.

    device: a card that somebody chose has the size that the text does not say. failure_parts: what
    shows the memory of a dump.
    """
    explanation = None
    if isinstance(content, MemoryDump):
        told: dict[str, Any] = {"dump": asdict(content)}
        show = partial(_show_held, name, content)
    else:
        error = _on(device, content)
        found, explanation = verdict(error), explained(error)
        told = {"error": asdict(error), "verdict": asdict(found)}
        if explanation is not None:
            told["replay"] = records(frame(explanation))[0]
        show = partial(_show, name, error, found)
    write = partial(write_json, told)
    with written({json: write}, ".json", write):
        if json != STDOUT:
            show()
            if explanation is not None:
                _show_replay(explanation)
                show_parts(failure_parts(explanation))


def as_check(name: str, content: ErrorText | MemoryDump, device: str) -> Answer:
    """The answer of `check`: what the numbers prove, and what the text leaves open."""
    if isinstance(content, MemoryDump):
        kinds = sorted(content.kinds, key=lambda row: -row.size.low)
        held = tuple(Holder(row.name, row.size.low) for row in kinds)
        told = words.cannot_tell("", shown(content).removesuffix("."))
        return Answer(
            one_line(name), "", "unknown", told, bound=True, when=content.when, holders=held
        )
    if content.peak is not None and not content.failures:
        return _by_peak(name, content, *content.peak, device)
    error = _on(device, content)
    found = verdict(error)
    headline, *rest = sentences(error, found, _instead(error))
    kind: Verdict = "unknown"
    if found.kind == "full" and found.certain:
        kind = "too_big"
    elif found.kind == "pieces" and (found.certain or found.likely == "likely"):
        kind = "fragmented"
    need, size = error.needed, error.allowed or error.total
    if need is None and error.requested is not None and error.allocated is not None:
        need = error.requested + error.allocated
    return Answer(
        one_line(name),
        "",
        kind,
        words.by_text(kind != "unknown" or found.kind == "others", bool(error.message), headline),
        need.low if need else None,
        bound=True,
        capacity=size.low if size else None,
        unknown=tuple(rest),
        when="when the request failed" if error.message else "as the text says",
        holders=tuple(Holder(row.name, row.size.middle) for row in by_operator(error)[:_MOST]),
    )


def _by_peak(
    name: str, error: ErrorText, allocated: Amount, reserved: Amount, device: str
) -> Answer:
    """The answer of `check` to a report of use.

    What was reserved was enough, and what was allocated was needed.
    """
    smallest = isinstance(device, Unchosen)
    enough = [card for card in cards() if card.free >= reserved.high]
    if smallest:
        device = (enough or cards()[-1:])[0].device
    capacity, where = allocators.make_device(device).capacity, label(device)
    verdict: Verdict = "unknown"
    told = words.between_peaks(where, allocated.middle, reserved.middle)
    if reserved.high <= capacity:
        verdict, told = "fits", words.fits(where, reserved.high, True, capacity, smallest)
    elif allocated.low > capacity:
        verdict, told = "too_big", words.too_big(where, allocated.low, True, capacity)
    return Answer(
        one_line(name),
        where,
        verdict,
        told,
        reserved.high,
        bound=True,
        capacity=capacity,
        card=enough[0].name if enough else None,
        unknown=(words.LATER, f"To know more: {_instead(error)}."),
    )


def _instead(error: ErrorText) -> str:
    """How to learn more than a text says; "" where it says all, or is not about a GPU."""
    says_all = error.segments and not error.unlisted
    if says_all or error.device in (HOST, SHARED):
        return ""
    return text_of(error.program, error.backend).instead


def _on(device: str, error: ErrorText) -> ErrorText:
    """The error with the size of a card that somebody chose."""
    return error if isinstance(device, Unchosen) else on_card(error, bytes_of_card(device))


def _show_held(name: str, dump: MemoryDump) -> None:
    out = console()
    out.print(Text(shown(dump)))
    out.print()
    table = plain_table(f"{name}: {dump.name}", "bytes", "share", "kind", right=("bytes", "share"))
    for row in sorted(dump.kinds, key=lambda row: -row.size.low):
        share = units.percent(row.size.low / dump.total)
        table.add_row(units.size(row.size.low), share, Text(one_line(row.name)))
    out.print(table)
    if dump.buffers:
        out.print()
        out.print(buffers_table("the largest parts", dump.buffers))


def _show(name: str, error: ErrorText, found: ErrorVerdict) -> None:
    out = console()
    say(sentences(error, found, _instead(error)))
    table = plain_table(f"{name}: what the text of {error.program} says", "", "")
    for field, what in _FIELDS.items():
        if (amount := getattr(error, field)) is not None:
            table.add_row(what, Text(exactly(amount)))
    for what, amount in [*error.parts, *((f"process {n}", used) for n, used in error.others)]:
        table.add_row(Text(what), Text(exactly(amount)))
    if table.row_count:
        out.print()
        out.print(table)
    if rows := by_operator(error):
        out.print()
        out.print(buffers_table("what holds memory", rows))


def _show_replay(explanation: Explanation) -> None:
    """What a replay of a dump adds to what its statistics prove."""
    out = console()
    out.print()
    if explanation.kind != "full":
        out.print(Text(f"Replayed from the dump: {verdict_of_replay(explanation)}"))
        out.print()


def buffers_table(title: str, rows: Sequence[HeldBuffer]) -> Table:
    """What holds memory, the largest first."""
    if len(rows) > _MOST:
        title += f": {_MOST} of {len(rows):,}"
    lines = any(row.line for row in rows)
    table = plain_table(title, "bytes", "name", *(["line"] if lines else []), right=("bytes",))
    for row in rows[:_MOST]:
        cells = [Text(one_line(row.name) or "not named")] + ([Text(one_line(row.line))] * lines)
        table.add_row(units.size(row.size.middle), *cells)
    return table
