# SPDX-License-Identifier: Apache-2.0
"""Findings in words: the verdict on a case, and the description of each figure."""

from collections.abc import Sequence
from dataclasses import dataclass

from allocbench.base import units
from allocbench.reports.advice.choosing import kind
from allocbench.reports.advice.recommending import Advice, advise
from allocbench.reports.rows import ranking
from allocbench.reports.rows.assumptions import condition
from allocbench.reports.rows.ranking import FEWEST_PASSES, Case, best, extremes, ranked, tells_apart
from allocbench.reports.rows.results import COLUMNS, SCHEMA

SPEED = ("seconds_per_event_steady", "seconds_per_event_cold", "alloc_mean_seconds")


@dataclass(frozen=True)
class Claim:
    """One finding: a claim, its allocators, the number, and what it is compared with."""

    label: str
    allocators: tuple[str, ...]
    number: str
    context: str

    @property
    def sentence(self) -> str:
        """The claim as a sentence without its capital letter and its full stop."""
        names = units.names(self.allocators) if self.allocators else ""
        context = f"({self.context})" if self.context else ""
        return f"{self.label}: {' '.join(filter(None, (names, self.number, context)))}"


def verdict(case: Case) -> tuple[Claim, ...]:
    """Least host time and device time, equal allocators, and failures, as far as measured.

    Only candidates that served every request are ranked. Allocators that do not clearly differ
    share a claim.
    """
    claims = [_fastest(case), _least_device_time(case), *_equal(case), _failed(case)]
    return tuple(claim for claim in claims if claim is not None)


def advice(case: Case) -> Advice:
    """The best setting and the best of the compared allocators, with consequences."""
    return advise(case.rows.reset_index(), device=case.device)


def answer(case: Case) -> list[tuple[str, ...]]:
    """For the best setting and the best other allocator: its name, what it needs, and its card.

    If none fits, one sentence instead.
    """
    found = advice(case)
    return [
        _choice(case, name) if name else (line.partition(": ")[2],)
        for name, line in zip((found.setting, found.allocator), found.lines, strict=True)
    ]


def _choice(case: Case, name: str) -> tuple[str, str, str]:
    shown = "keep the default" if kind(name) == "default" else name
    card = case.number(name, "card") if "card" in case.rows else None
    return shown, _value(case, name, "min_capacity"), str(card or "")


def sentence(claims: Sequence[Claim]) -> str:
    """The claims as one line."""
    if not claims:
        return "No candidate served every request."
    return " ".join(f"{claim.sentence[0].upper()}{claim.sentence[1:]}." for claim in claims)


def describe(cases: Sequence[Case], metric: str) -> str:
    """One metric in words: for each case the best, the worst and the floors, with numbers."""
    return " ".join(f"{case.title}: {_span(case, metric)}." for case in cases)


def describe_memory(case: Case) -> str:
    """Memory over time in words: the peak of the reserved bytes of every allocator."""
    bound = "" if case.max_load is None else f"Max load {units.size(case.max_load)}. "
    peaks = [
        f"{name} {_value(case, name, 'peak_reserved')} ({_value(case, name, 'overhead')})"
        for name in case.allocators
    ]
    return f"{bound}Peak reserved bytes, and their ratio to the max load: {', '.join(peaks)}."


def describe_trade(cases: Sequence[Case], latency: str) -> str:
    """Latency against memory in words: both numbers of the two allocators at the ends."""
    parts = []
    for case in cases:
        ends = [best(case.rows, SCHEMA[metric])[:1] for metric in ("peak_reserved", latency)]
        words = [
            f"{label} is {name} with {_value(case, name, 'peak_reserved')} reserved and"
            f" {_value(case, name, latency)}"
            for label, names in zip(("smallest", "fastest"), ends, strict=True)
            for name in names
        ]
        parts.append(f"{case.title}: {'; '.join(words) or 'not measured'}.")
    return f"By {SCHEMA[latency].heading}. {' '.join(parts)}"


def _fastest(case: Case) -> Claim | None:
    for metric in SPEED:
        if names := best(case.rows, SCHEMA[metric]):
            unit = "call" if metric.startswith("alloc") else "event"
            context = _no_difference(case, names) if len(names) > 1 else _runner_up(case, metric)
            fastest, slowest = (_value(case, names[n], metric) for n in (0, -1))
            to = "" if slowest == fastest else f" to {slowest}"
            label = f"fastest{_which(metric)}"
            time = f"{fastest}{to} of host time per {unit} under allocbench run"
            column = SCHEMA[metric]
            if len(names) > units.MOST_NAMES and not tells_apart(case.rows, column, names):
                many = f"{len(names)} of {len(ranked(case.rows, column))} allocators"
                return Claim(label, (), f"undecided, {many} do not clearly differ", time)
            return Claim(label, names, f"at {time}", context)
    return None


def _no_difference(case: Case, names: Sequence[str]) -> str:
    """Why these allocators share a place: the first and the last of them do not clearly differ."""
    if (case.rows["passes"] < FEWEST_PASSES).any():
        return "too few passes to tell them apart"
    ends = f" between {names[0]} and {names[-1]}" if len(names) > 2 else ""
    return f"no clear difference{ends}"


def _runner_up(case: Case, metric: str) -> str:
    order = ranked(case.rows, SCHEMA[metric])
    if len(order) < 2 or not order.iloc[0]:
        return ""
    return f"next: {order.index[1]}, {units.times(order.iloc[1] / order.iloc[0])} the time"


def _which(metric: str) -> str:
    return {"seconds_per_event_cold": " (cold)", "alloc_mean_seconds": " (alloc)"}.get(metric, "")


def _least_device_time(case: Case) -> Claim | None:
    names = best(case.rows, SCHEMA["device_seconds"])
    if not names:
        return None
    source = str(case.rows.at[names[0], "device_seconds_source"])
    if source == "estimate" and (rival := _undecided(case, names)):
        label = f"least device time ({source}, undecided within the assumed costs)"
        when = condition(ranking.estimate(case.rows, names[0]), ranking.estimate(case.rows, rival))
        return Claim(label, names, "", f"{names[0]} takes less than {rival} {when}" if when else "")
    calls = case.number(names[0], "device_calls")
    context = "" if calls is None else units.count(int(calls), "device call")
    number = f"at {_value(case, names[0], 'device_seconds')}"
    return Claim(f"least device time ({source})", names, number, context)


def _undecided(case: Case, names: Sequence[str]) -> str | None:
    """The first of these allocators whose order with the first depends on the assumed costs."""
    first = ranking.estimate(case.rows, names[0])
    others = ((name, ranking.estimate(case.rows, name)) for name in names[1:])
    return next((name for name, other in others if first.undecided(other)), None)


def _equal(case: Case) -> list[Claim]:
    """Groups of candidates that are equal in every counted metric."""
    counted = [
        column.name
        for column in COLUMNS
        if column.unit in ("bytes", "count", "ratio")
        and column.group in ("memory", "fragmentation", "device", "failures", "plan")
        and column.name in case.rows
    ]
    rows = case.rows[case.rows["candidate"] & case.rows["failures"].notna()]
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, values in rows[counted].astype(str).iterrows():
        groups.setdefault(tuple(values), []).append(str(name))
    return [
        Claim("equal in every counted metric", tuple(names), "", "")
        for names in groups.values()
        if len(names) > 1
    ]


def _failed(case: Case) -> Claim | None:
    if not case.failed:
        return None
    counts = [f"{name} {n:,}" for name, n in case.failed.items()]
    return Claim("failed requests", tuple(counts), "", f"on {case.device}")


def _span(case: Case, metric: str) -> str:
    winners, losers = extremes(case, metric)
    words = []
    if winners:
        words.append(f"best {units.names(winners)} {_value(case, winners[0], metric)}")
    elif equal := best(case.rows, SCHEMA[metric]):
        words.append(f"{units.names(equal)} {_value(case, equal[0], metric)}, no clear difference")
    if losers:
        words.append(f"worst {units.names(losers)} {_value(case, losers[0], metric)}")
    others = [name for name in case.allocators if name in case.floors or name in case.failed]
    for name in others:
        why = "floor" if name in case.floors else "failed requests"
        words.append(f"{name} ({why}) {_value(case, name, metric)}")
    return "; ".join(words) or "not measured"


def _value(case: Case, name: str, metric: str) -> str:
    return ranking.text(case.rows, name, SCHEMA[metric])
