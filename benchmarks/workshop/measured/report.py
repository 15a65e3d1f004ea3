# SPDX-License-Identifier: Apache-2.0
"""Measured peaks beside their predictions: tables of errors."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.workshop.measured.plan import CONVOLUTIONS, KINDS, Run
from benchmarks.workshop.truth.report import EVERY, percent, relative, scores, who_ran_out
from benchmarks.workshop.truth.rows import Prediction

_MIB = 1 << 20


@dataclass(frozen=True)
class Compared:
    """A run that was measured, and what was predicted for it.

    limit: bytes that PyTorch could reserve. formula: for workspaces of convolutions. measured: what
    the program reported. trouble: why there is no comparison.
    """

    run: Run
    limit: int | None
    formula: str
    said: Prediction | None
    truth: Prediction | None
    measured: Mapping[str, Any]
    trouble: str = ""

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None after an out-of-memory error, or without both.

        Runs with a limit have none: what they reserve is set by the limit.
        """
        if self.truth is None or self.limit is not None or (self.said and self.said.oom):
            return None
        return relative(self.said, self.truth)


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The provenance and the rows of `measured.jsonl`."""
    first, *rows = path.read_text(encoding="utf-8").splitlines()
    return json.loads(first), [json.loads(row) for row in rows]


def compare(
    runs: Sequence[Run],
    predictions: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    formula: str,
) -> list[Compared]:
    """The measured runs with a formula for convolutions; others have the default."""
    known = {run.name: run for run in runs}
    return [_compared(known[row["run"]], row, predictions, formula) for row in rows if "run" in row]


def _compared(
    run: Run, row: Mapping[str, Any], predictions: Mapping[str, Any], formula: str
) -> Compared:
    used = formula if formula in run.formulas else run.formulas[0]
    limit = row["limit"]
    told = predictions["runs"].get(run.name, {}).get(used)
    trouble, said, truth = "", None, None
    if told is None or "error" in told:
        trouble = f"not predicted: {(told or {}).get('error', 'no time')}"
    elif told["date"] >= row["date"] and not predictions.get("after"):
        trouble = f"not predicted before the measurement, but at {told['date']}"
    else:
        small = limit is not None and limit < told["min_capacity"]
        said = Prediction(told["peak_reserved"], told["oom"] or small)
    if "result" in row:
        last = row["result"]["stages"][-1]
        truth = Prediction(last["peak_reserved"], row["result"]["oom"])
    else:
        trouble = f"not measured: {row['error'].strip().splitlines()[-1]}"
    return Compared(run, limit, used, said, truth, row.get("result", {}), trouble)


def by_formula(
    runs: Sequence[Run], predictions: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, list[Compared]]:
    """The measured runs with each formula for the workspaces of convolutions."""
    return {name: compare(runs, predictions, rows, name) for name in CONVOLUTIONS}


def lines(
    before: Mapping[str, Sequence[Compared]], after: Mapping[str, Sequence[Compared]] | None = None
) -> Iterator[str]:
    """The tables, as Markdown: by kind, by formula of convolutional networks, and every run.

    before, after: by formula, the runs with predictions from before and after the measurement.
    """
    yield from summary(before)
    if after:
        yield from ("", "Predicted when the measurements were known:", "")
        yield from summary(after)
    yield ""
    yield "| run | measured MiB | predicted MiB | error | OOM |"
    yield "|---|---:|---:|---:|---|"
    yield from map(_line, before[CONVOLUTIONS[0]])


def summary(found: Mapping[str, Sequence[Compared]]) -> Iterator[str]:
    """The scores of all runs, of each kind and formula, and under limits, as Markdown.

    Groups without a prediction are left out.
    """
    usual = found[CONVOLUTIONS[0]]
    yield "| kind | runs | with a peak | median error | p90 | worst | too low | OOM agreement |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    groups = {EVERY: list(usual)}
    for kind, called in KINDS.items():
        groups[called] = [one for one in usual if one.run.kind == kind]
    for formula, compared in found.items():
        if formula != CONVOLUTIONS[0]:
            called = f"{KINDS['cnn']}, `convolution_workspace={formula}`"
            networks = (one for one in compared if one.run.kind == "cnn")
            groups[called] = [one for one in networks if formula == one.formula != one.run.formula]
    groups["with a limit"] = [one for one in usual if one.limit is not None]
    for called, group in groups.items():
        if any(one.said and one.truth for one in group):
            yield _scored(called, group)


def _scored(called: str, found: Sequence[Compared]) -> str:
    pairs = [(one.said, one.truth) for one in found if one.said and one.truth]
    free = [one for one in found if one.limit is None and one.said and one.truth]
    errors = [one.error for one in free if one.error is not None]
    score = scores((one.said, one.truth) for one in free if one.said and one.truth)
    agreement = scores(pairs)["oom_agreement"]
    worst = max(errors, key=abs, default=None)
    cells = [str(len(pairs)), str(len(errors)), percent(score["median_error"])]
    cells += [percent(score["p90_error"]), "-" if worst is None else f"{worst:+.2%}"]
    cells += [percent(score["too_low"]), percent(agreement)]
    return f"| {called} | {' | '.join(cells)} |"


def _line(one: Compared) -> str:
    name = one.run.name
    if one.limit is not None:
        name += f", limit {one.limit / _MIB:,.0f} MiB"
    if one.said is None or one.truth is None:
        return f"| {name} | {one.trouble} | | | |"
    error = "" if one.error is None else f"{one.error:+.2%}"
    cells = [f"{one.truth.peak / _MIB:,.0f}", f"{one.said.peak / _MIB:,.0f}", error]
    cells.append(who_ran_out(one.said, one.truth))
    return f"| {name} | {' | '.join(cells)} |"
