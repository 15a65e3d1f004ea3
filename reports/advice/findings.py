# SPDX-License-Identifier: Apache-2.0
"""Findings in words: the verdict on a case, why its peaks differ, what failed and held memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from allocbench.base import cards, units
from allocbench.base.text import upper
from allocbench.reports.advice.choosing import KEEP
from allocbench.reports.rows import ranking
from allocbench.reports.rows.assumptions import condition
from allocbench.reports.rows.details import Details, of_run
from allocbench.reports.rows.ranking import FEWEST_PASSES, Case, best, ranked, tells_apart
from allocbench.reports.rows.results import COLUMNS, SCHEMA

SPEED = {
    "seconds_per_event_steady": "",
    "seconds_per_event_cold": " (cold)",
    "alloc_mean_seconds": " (alloc)",
}
"""The metrics of speed, the first that was measured counts, and what a claim calls them."""
_MOST_HELD = 3  # kinds or lines


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


@dataclass(frozen=True)
class Told:
    """The advice that the rows of a case keep: specs, and sentences. Empty for rows without it."""

    setting: str | None = None
    allocator: str | None = None
    lines: tuple[str, ...] = ()


def advice(case: Case) -> Told:
    """The best setting and the best allocator, as `questions.best` found them."""
    row = case.rows.iloc[0]
    setting, allocator = (
        None if pd.isna(row[name]) else str(row[name])
        for name in ("best_setting", "best_allocator")
    )
    lines = tuple(row[["setting_advice", "allocator_advice", "orders_advice"]].dropna())
    return Told(setting, allocator, lines)


def answer(case: Case) -> list[tuple[str, ...]]:
    """For the best setting and the best allocator: its name, what it needs, and its card.

    One sentence instead if none fits, and for PyTorch's own allocator, which has the best setting.
    """
    found = advice(case)
    names = found.setting, None if found.allocator == KEEP else found.allocator
    choices: list[tuple[str, ...]] = []
    for name, line in zip(names, found.lines[:2], strict=bool(found.lines)):
        told = line.partition(": ")[2]
        if name and name in case.rows.index:
            shown = told.partition(".")[0] if name == KEEP else name  # keep the default
            card = str(case.number(name, "card") or "")
            choices.append((shown, _value(case, name, "min_capacity"), card))
        else:
            choices.append((told,))
    return choices


def sentence(claims: Sequence[Claim]) -> str:
    """The claims as one line."""
    if not claims:
        return "No candidate served every request."
    return " ".join(f"{upper(claim.sentence)}." for claim in claims)


def failed_request(row: Mapping[Any, Any]) -> str:
    """The first failed request in a few sentences, from a row of `failures`."""
    text = (
        f"Event {row['event']:,} requested {units.size(row['requested'])}. The allocator held"
        f" {units.size(row['reserved'])} of {units.size(row['capacity'])}, of which"
        f" {units.size(row['reserved'] - row['allocated'])} were free; the largest gap was"
        f" {units.size(row['largest_gap'])}."
    )
    blocks = f"{row['pins']:,} block{'s' if row['pins'] != 1 else ''}"
    if row["pins"]:
        where = "in the range" if row["place"] == "stretch" else "in the segments to release"
        return (
            f"{text} {blocks} of {units.size(row['pinned_bytes'])} were in the way, {where}"
            " with the fewest allocated bytes."
        )
    if row["largest_gap"] >= row["requested"]:
        return f"{text} A gap was large enough, but the strategy does not use it for this request."
    return f"{text} No block was in the way: free memory was not released or merged."


def verdict_why(case: Case) -> str:
    """The peaks of the smallest and the largest candidate, and what they lose."""
    order = ranked(case.rows, SCHEMA["peak_reserved"])
    if len(order) < 2 or case.max_load is None:
        return ""
    first, *_, last = order.items()
    return " ".join(
        f"{name} holds {units.size(int(peak))} at its peak, {_losses(case, name)}"
        for name, peak in (first, last)
    )


def _losses(case: Case, name: str) -> str:
    """What a peak contains in addition to the requested bytes."""
    internal = case.number(name, "internal_fragmentation")
    stranded = case.number(name, "stranded")
    bound = case.max_load
    peak = case.number(name, "peak_reserved")
    if not bound or peak is None:
        return "n/a."
    if internal is None or stranded is None:
        return f"{units.times(peak / bound)} the max load."
    return (
        f"{units.times(peak / bound)} the max load. Of these, {units.size(stranded)} are not"
        f" allocated; rounding takes {units.percent(internal)} of the allocated bytes."
    )


def _fastest(case: Case) -> Claim | None:
    for metric, which in SPEED.items():
        if names := best(case.rows, SCHEMA[metric]):
            unit = "call" if metric.startswith("alloc") else "event"
            context = _no_difference(case, names) if len(names) > 1 else _runner_up(case, metric)
            fastest, slowest = (_value(case, names[n], metric) for n in (0, -1))
            to = "" if slowest == fastest else f" to {slowest}"
            label = f"fastest{which}"
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
    if len(order) < 2:
        return ""
    (_, first), (name, second), *_ = order.items()
    return f"next: {name}, {units.times(second / first)} the time" if first else ""


def _least_device_time(case: Case) -> Claim | None:
    names = best(case.rows, SCHEMA["device_seconds"])
    if not names:
        return None
    source = str(case.rows.at[names[0], "device_seconds_source"])
    first, *others = (ranking.estimate(case.rows, name) for name in names)
    rivals = [n for n, other in enumerate(others, 1) if first.undecided(other)]
    if source == "estimate" and rivals:
        label = f"least device time ({source}; it depends on the costs of device calls)"
        when = condition(first, others[rivals[0] - 1])
        less = f"{names[0]} takes less than {names[rivals[0]]} {when}"
        return Claim(label, names, "", less if when else "")
    calls = case.number(names[0], "device_calls")
    context = "" if calls is None else units.count(int(calls), "device call")
    number = f"at {_value(case, names[0], 'device_seconds')}"
    return Claim(f"least device time ({source})", names, number, context)


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
    return Claim("failed requests", tuple(counts), "", f"on {cards.label(case.device)}")


def _value(case: Case, name: str, metric: str) -> str:
    return ranking.text(case.rows, name, SCHEMA[metric])


def held(details: Details, workload: str, device: str, allocator: str) -> str:
    """What holds memory when a request fails, or at the peak: its bytes, kinds and lines.

    allocator: whose first failed request counts. Empty without the tables `program` and `sites`.
    """
    blocks = of_run(details, "program", workload=workload)
    if blocks.empty:
        return ""
    failure = of_run(details, "failures", workload=workload, device=device, allocator=allocator)
    if failure.empty:
        event = peak(blocks)
        when = f"At the peak of the program (event {event:,}"
    else:
        event = int(failure["event"].iloc[0]) - 1
        when = f"When a request for {units.size(failure['requested'].iloc[0])} fails (event"
        when += f" {event + 1:,}"
    alive = blocks[(blocks["first"] <= event) & (blocks["last"] > event)]
    if alive.empty:
        return ""
    sites = of_run(details, "sites", workload=workload).reset_index(drop=True)
    named = alive[["size", "site", "step"]].join(sites, on="site")
    total = int(named["size"].sum())
    step = f", step {named['step'].max()}" if named["step"].any() else ""
    words = f"{when}{step}), {units.size(total)} are in use"
    by = next((name for name in ("kind", "operator") if named[name].any()), "")
    parts = [units.names(_largest(named, name, total)) for name in (by, "line") if name]
    known = [part for part in parts if part != units.names([])]
    if not known:
        return f"{words}."
    lines = f" By line: {known[1]}." if len(known) > 1 else ""
    return f"{words}: {known[0]}.{lines}"


def peak(blocks: pd.DataFrame) -> int:
    """The first event after which the most bytes of a table `program` are alive."""
    first, last = blocks["first"].to_numpy(), blocks["last"].to_numpy()
    change = np.zeros(int(last.max()) + 1, np.int64)
    np.add.at(change, first, blocks["size"].to_numpy())
    np.subtract.at(change, last, blocks["size"].to_numpy())
    return int(change.cumsum().argmax())


def _largest(named: pd.DataFrame, column: str, total: int) -> list[str]:
    """The values of a column with the most bytes, and their shares of all bytes."""
    known = named[named[column] != ""]
    sums = known.groupby(column)["size"].sum().sort_values(ascending=False, kind="stable")
    return [
        f"{units.size(size)} ({units.percent(size / total)}) {name}"
        for name, size in sums.head(_MOST_HELD).items()
    ]
