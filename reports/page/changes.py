# SPDX-License-Identifier: Apache-2.0
"""What changed across commits: the series of each benchmark of asv, and where they jump."""

from dataclasses import dataclass
from itertools import pairwise

import pandas as pd

from allocbench.base import units
from allocbench.base.cards import cards
from allocbench.reports.rows.results import SCHEMA

_MOST = 12  # series in a table
_MOST_NEWEST = 3  # of each benchmark, above all tables
_NONE = "none"
_TIMES = 10  # from this ratio on, a change has no percentage
_NOISE = 0.001  # of the largest change of a benchmark: a smaller one is not listed
_SAME = 0.001  # a smaller change of a measured number is none


@dataclass(frozen=True)
class ChangedSeries:
    """A series of a benchmark. newest: its number; mark: whether that is better or worse.

    latest: the change to the commit before. largest: that with the largest change, and its commit.
    """

    series: str
    newest: str
    latest: str
    mark: str
    largest: str


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: the series that changed most, and the number of the others."""

    name: str
    changes: tuple[ChangedSeries, ...]
    others: int

    @property
    def title(self) -> str:
        """The name as a heading: "memory.FastMemory: peak reserved"."""
        of, _, metric = self.name.rpartition(".")
        words = metric.removeprefix("track_").removeprefix("latency_").replace("_", " ")
        return f"{of}: {words}" if of else words

    @property
    def newest(self) -> list[str]:
        """What changed most in the newest commit, in words."""
        changed = [one for one in self.changes if one.latest != _NONE][:_MOST_NEWEST]
        alone = not self.others and len(self.changes) == 1
        return [one.latest if alone else f"{one.series} {one.latest}" for one in changed]


def series(history: pd.DataFrame) -> pd.DataFrame:
    """`asv.history` with a column `series`: the allocator and the parameters, or the metric.

    What holds memory at a peak (the parameter `holder`) has 0 at commits at which it holds nothing.
    """
    of_holders = history["parameters"].str.startswith("holder=")
    parts = [history[~of_holders]]
    for _, rows in history[of_holders].groupby(["benchmark", "machine"], sort=False):
        same = [name for name in rows if name not in ("parameters", "value", "low", "high")]
        wide = rows.pivot_table("value", same, "parameters", fill_value=0.0, sort=False)
        parts.append(wide.reset_index().melt(same, var_name="parameters", value_name="value"))
    whole = pd.concat(parts, ignore_index=True).sort_values(["date", "commit"], kind="stable")
    only = whole["parameters"].str.replace(r"^\w+=([^=]*)$", r"\1", regex=True)
    names = (whole["allocator"] + " " + only).str.strip()
    cards_of = {f"null-{card.slug}": f"{card.name} (null GPU)" for card in cards()}
    return whole.assign(
        series=names.where(names != "", whole["metric"].str.replace("_", " ")),
        machine=whole["machine"].replace(cards_of),
    )


def embedded(past: pd.DataFrame) -> pd.DataFrame:
    """The columns that the page needs, with dates as text."""
    return past.assign(date=past["date"].dt.strftime("%Y-%m-%d %H:%M"))


def benchmarks(past: pd.DataFrame) -> list[Benchmark]:
    """The benchmarks of `series`, and what changed in each."""
    return [_benchmark(str(name), rows) for name, rows in past.groupby("benchmark", sort=False)]


def _benchmark(name: str, rows: pd.DataFrame) -> Benchmark:
    keys = ["series", "workload", *(["machine"] if rows["machine"].nunique() > 1 else [])]
    unit, metric = str(rows["unit"].iloc[0]), SCHEMA.get(str(rows["metric"].iloc[0]))
    lower = metric.lower_is_better if metric else unit in ("bytes", "seconds")
    commits = list(rows["commit"])
    found = list[tuple[float, float, ChangedSeries]]()
    for key, line in rows.groupby(keys, sort=False):
        values, at = line["value"].tolist(), line["commit"].tolist()
        if new := len(values) == 1 and at[0] == commits[-1] != commits[0]:
            values, at = [0.0, *values], ["", *at]
        steps = [new - old for old, new in pairwise(values)]
        largest = max(range(len(steps)), key=lambda n: abs(steps[n]), default=None)
        if largest is None or abs(steps[largest]) <= _SAME * abs(values[largest]):
            continue
        newest, latest = _text(values[-1], unit), steps[-1] if at[-1] == commits[-1] else 0.0
        if at[-1] != commits[-1]:
            newest += f" in {at[-1][:7]}"
        changed = abs(latest) > _SAME * abs(values[-2])
        judged = changed and not new and lower is not None
        mark = "" if not judged else "best" if (latest < 0) == lower else "worst"
        there = f"{_step(values[largest], values[largest + 1], unit)} in {at[largest + 1][:7]}"
        shown = "new" if new else _step(values[-2], values[-1], unit) if changed else _NONE
        label = ", ".join(str(name) for name in key if name)
        found.append(
            (-abs(latest), -abs(steps[largest]), ChangedSeries(label, newest, shown, mark, there))
        )
    found.sort(key=lambda one: one[:2])
    least = _NOISE * max((-one[1] for one in found), default=0)
    found = [one for one in found if -one[1] >= least]
    shown_of = tuple(change for *_, change in found[:_MOST])
    return Benchmark(name, shown_of, rows.groupby(keys).ngroups - len(shown_of))


def _step(old: float, new: float, unit: str) -> str:
    """A change with its sign, and in percent."""
    sign = "+" if new > old else "-"
    share = f" ({sign}{units.percent(abs(new / old - 1))})" if old and new / old < _TIMES else ""
    return f"{sign}{_text(abs(new - old), unit)}{share}"


def _text(value: float, unit: str) -> str:
    if unit == "bytes":
        return units.size(value)
    if unit == "seconds":
        return units.seconds(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
