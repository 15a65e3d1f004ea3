# SPDX-License-Identifier: Apache-2.0
"""Two commits compared: counts must be equal and instructions not grow, unless that is stated.

Time is only informative.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from allocbench.base import units
from allocbench.reports.rows.asv import FAILED, INSTRUCTIONS, NUMBER, STALE, AsvResult
from allocbench.reports.rows.results import SCHEMA

Outcome: TypeAlias = Literal["same", "changed", "failed", "nothing ran"]
_Key: TypeAlias = tuple[str, str, str, str, str]
_MOST_ROWS = 60
MORE_INSTRUCTIONS = 0.02
"""Instructions may grow by this share: many times the spread of repeated counts."""


@dataclass(frozen=True)
class Statement:
    """A change that a commit message states: patterns with `*` and `?`."""

    metric: str
    allocator: str = "*"
    workload: str = "*"

    def covers(self, cell: AsvResult) -> bool:
        """Whether the statement covers the cell."""
        pairs = (
            (cell.metric, self.metric),
            (cell.allocator, self.allocator),
            (cell.case, self.workload),
        )
        return all(fnmatchcase(value, pattern) for value, pattern in pairs)


@dataclass(frozen=True)
class ChangedResult:
    """A cell whose value changed; `stated` if a commit message says so."""

    base: AsvResult
    head: AsvResult
    stated: bool


@dataclass(frozen=True)
class Comparison:
    """The result of comparing every cell of two commits.

    compared: counted cells in which the base has a number, and instructions of which both have
    one. failed: of the head. stale: measured by another version of a benchmark, and so not
    compared. times, instructions: of both, base first.
    """

    compared: int
    differences: tuple[ChangedResult, ...]
    failed: tuple[AsvResult, ...]
    stale: int
    times: tuple[tuple[AsvResult, AsvResult], ...]
    instructions: tuple[tuple[AsvResult, AsvResult], ...] = ()

    @property
    def unstated(self) -> tuple[ChangedResult, ...]:
        """The differences that no commit message states."""
        return tuple(difference for difference in self.differences if not difference.stated)

    @property
    def outcome(self) -> Outcome:
        """One word for all cells; failed takes priority, as failed cells may have changed too."""
        if self.failed:
            return "failed"
        if not self.compared:
            return "nothing ran"
        return "changed" if self.unstated else "same"


def compare(
    base: Iterable[AsvResult], head: Iterable[AsvResult], statements: Sequence[Statement] = ()
) -> Comparison:
    """Compare the cells of two commits, one by one, within each machine and environment.

    A number that becomes n/a is a change; a new number is not. If the base measured a cell and the
    head does not have it at all, the cell has failed: its process gave no result. Instructions are
    compared where both commits have a number: where nothing can count them, they are n/a. They
    differ if they grew by more than MORE_INSTRUCTIONS.
    """

    def stated(cell: AsvResult) -> bool:
        return any(statement.covers(cell) for statement in statements)

    before = {_key(cell): cell for cell in base}
    after = {_key(cell): cell for cell in head}
    where = {key[:2] for key in before} & {key[:2] for key in after}
    differences: list[ChangedResult] = []
    failed: list[AsvResult] = []
    times: list[tuple[AsvResult, AsvResult]] = []
    instructions: list[tuple[AsvResult, AsvResult]] = []
    compared = stale = 0
    for key in sorted(key for key in before | after if key[:2] in where):
        old, new = before.get(key), after.get(key)
        if new is None:
            failed += [old] if old and old.deterministic and old.state == NUMBER else []
        elif new.state == FAILED:
            failed.append(new)
        elif old is None or old.state == FAILED:
            continue
        elif STALE in (old.state, new.state):
            stale += 1
        elif old.deterministic:
            compared += old.state == NUMBER
            if old.state == NUMBER and not _equal(old, new):
                differences.append(ChangedResult(old, new, stated(new)))
        elif (old.state, new.state) != (NUMBER, NUMBER):
            continue
        elif old.unit == INSTRUCTIONS:
            compared += 1
            instructions.append((old, new))
            if new.value > (1 + MORE_INSTRUCTIONS) * old.value:
                differences.append(ChangedResult(old, new, stated(new)))
        elif old.unit == "seconds":
            times.append((old, new))
    return Comparison(
        compared, tuple(differences), tuple(failed), stale, tuple(times), tuple(instructions)
    )


def markdown(comparison: Comparison, base: str, head: str) -> str:
    """The comparison for a pull request, its outcome first."""
    parts = [
        f"## Benchmarks: {comparison.outcome}",
        "",
        f"`{base}` → `{head}`: {_sentence(comparison)}",
    ]
    if comparison.differences:
        parts += ["", "| metric | allocator | workload | base | head | head / base | stated |"]
        parts += ["|---|---|---|--:|--:|--:|---|"]
        parts += _cut(
            [_difference(difference) for difference in (*comparison.unstated, *_stated(comparison))]
        )
    if comparison.failed:
        parts += ["", "| failed | allocator | workload |", "|---|---|---|"]
        parts += _cut(
            [_row(cell.benchmark, cell.allocator, cell.case) for cell in comparison.failed]
        )
    if comparison.instructions:
        limit = units.percent(MORE_INSTRUCTIONS)
        parts += ["", f"Instructions, which may grow by {limit}; half are within the spread:", ""]
        parts += [*_PAIRS, *_ratios(comparison.instructions)]
    if comparison.times:
        parts += ["", "Time, for information only; half of the pairs are within the spread:", ""]
        parts += [*_PAIRS, *_ratios(comparison.times)]
    return "\n".join(parts) + "\n"


def _stated(comparison: Comparison) -> tuple[ChangedResult, ...]:
    return tuple(difference for difference in comparison.differences if difference.stated)


def _sentence(comparison: Comparison) -> str:
    if comparison.outcome == "nothing ran":
        return (
            "no counted metric was measured on both commits with the same machine and environment."
        )
    stated = len(comparison.differences) - len(comparison.unstated)
    words = [
        f"{comparison.compared} counted values compared",
        f"{len(comparison.unstated)} changed",
        *([f"{stated} changed as stated"] if stated else []),
        *([f"{len(comparison.failed)} failed"] if comparison.failed else []),
        *([f"{comparison.stale} of another version not compared"] if comparison.stale else []),
    ]
    return ", ".join(words) + "."


def _key(cell: AsvResult) -> _Key:
    return cell.machine, cell.environment, cell.benchmark, cell.allocator, cell.case


def _equal(old: AsvResult, new: AsvResult) -> bool:
    return new.state == NUMBER and old.value == new.value


def _difference(difference: ChangedResult) -> str:
    cell = difference.head
    ratio = "n/a"
    if cell.state == NUMBER and difference.base.value:
        ratio = f"{cell.value / difference.base.value:.3f}x"
    stated = "yes" if difference.stated else "**no**"
    shown = _shown(difference.base), _shown(cell)
    return _row(cell.metric, cell.allocator, cell.case, *shown, ratio, stated)


def _shown(cell: AsvResult) -> str:
    if cell.state != NUMBER:
        return units.NOT_AVAILABLE
    if cell.unit == "bytes":
        return f"{units.size(cell.value)} ({cell.value:,.0f})"
    column = SCHEMA.get(cell.metric)
    return units.percent(cell.value) if column and column.fraction else f"{cell.value:,.9g}"


_PAIRS = ("| metric | pairs | head / base, median | spread | farthest |", "|---|--:|--:|--:|---|")


def _ratios(pairs: Sequence[tuple[AsvResult, AsvResult]]) -> list[str]:
    rows = []
    for metric in dict.fromkeys(old.metric for old, _ in pairs):
        ratios = {
            (new.allocator, new.case): new.value / old.value
            for old, new in pairs
            if old.metric == metric and old.value > 0 and new.value > 0
        }
        if not ratios:
            continue
        values = sorted(ratios.values())
        low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        farthest = max(ratios, key=lambda pair: abs(math.log(ratios[pair])))
        rows.append(
            _row(
                metric,
                str(len(values)),
                f"{statistics.median(values):.2f}x",
                f"{low:.2f}x to {high:.2f}x",
                f"{ratios[farthest]:.2f}x: {' on '.join(filter(None, farthest))}",
            )
        )
    return rows


def _row(*columns: str) -> str:
    return "| " + " | ".join(column.replace("|", "\\|") for column in columns) + " |"


def _cut(rows: list[str]) -> list[str]:
    more = len(rows) - _MOST_ROWS
    return rows if more <= 0 else [*rows[:_MOST_ROWS], f"| and {more} more |"]
