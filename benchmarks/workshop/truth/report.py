# SPDX-License-Identifier: Apache-2.0
"""Errors of predictions against measured peaks: for each row, and for each group of rows."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.workshop.truth.rows import ESTIMATORS, KINDS, OWN, Prediction, Row

_HIGH = 0.9
EVERY = "all"


@dataclass(frozen=True)
class Outcome:
    """A row and its prediction by the null GPU, or why it could not be predicted."""

    row: Row
    said: Prediction | None
    why_not: str = ""

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None without a prediction or complete measurement."""
        return relative(self.said, self.row.truth)


def relative(said: Prediction | None, truth: Prediction) -> float | None:
    """The signed relative error; None if the measured run ended with an out-of-memory error."""
    if said is None or truth.oom:
        return None
    return (said.peak - truth.peak) / truth.peak


def scores(pairs: Iterable[tuple[Prediction, Prediction]]) -> dict[str, Any]:
    """Scores of (predicted, measured) pairs; errors are shares: 0.01 is one percent.

    median_error, p90_error: of the absolute relative errors. too_low: the share of rows that were
    predicted too low. oom_agreement: the share of rows where both run out of memory, or neither.
    oom_missed: rows that ran out of memory although the prediction did not. None without rows.
    """
    kept = list(pairs)
    errors = [error for said, truth in kept if (error := relative(said, truth)) is not None]
    return {
        "rows": len(kept),
        "median_error": statistics.median(map(abs, errors)) if errors else None,
        "p90_error": percentile([abs(error) for error in errors], _HIGH),
        "too_low": _share(error < 0 for error in errors),
        "oom_agreement": _share(said.oom == truth.oom for said, truth in kept),
        "oom_missed": sum(truth.oom and not said.oom for said, truth in kept),
    }


def percentile(values: Sequence[float], share: float) -> float | None:
    """Linear interpolation between the two nearest values; None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _share(which: Iterable[bool]) -> float | None:
    kept = list(which)
    return sum(kept) / len(kept) if kept else None


def groups(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """The scores of all rows and of each kind."""
    made = {EVERY: scores(_pairs(outcomes, OWN))}
    for kind in reversed(KINDS):
        made[kind] = scores(
            _pairs([outcome for outcome in outcomes if outcome.row.run.kind == kind], OWN)
        )
    return made


def families(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """The scores of each model's rows, by the model's name."""
    names = sorted({outcome.row.run.model for outcome in outcomes}, key=str.lower)
    return {
        name: scores(
            _pairs([outcome for outcome in outcomes if outcome.row.run.model == name], OWN)
        )
        for name in names
    }


def estimators(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """The scores of each estimator on the rows for which it has a prediction."""
    return {name: scores(_pairs(outcomes, name)) for name in (OWN, *ESTIMATORS)}


def _pairs(outcomes: Sequence[Outcome], estimator: str) -> Iterable[tuple[Prediction, Prediction]]:
    for outcome in outcomes:
        said = outcome.said if estimator == OWN else outcome.row.others.get(estimator)
        if said is not None:
            yield said, outcome.row.truth


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What `--json` writes: the rows, and the scores of all, transformer and cnn."""
    return {
        "rows": [_row(outcome) for outcome in outcomes],
        **groups(outcomes),
        "families": families(outcomes),
        "estimators": estimators(outcomes),
    }


def _row(outcome: Outcome) -> dict[str, Any]:
    row = outcome.row
    told: dict[str, Any] = {
        "line": row.line,
        "kind": row.run.kind,
        "model": row.run.model,
        "optimizer": row.run.optimizer,
        "batch": row.run.batch,
        "zero_grad_mode": row.run.zero_grad_mode,
        "gpu": row.run.gpu,
        "truth_bytes": row.truth.peak,
        "truth_oom": row.truth.oom,
        "others": {name: relative(said, row.truth) for name, said in row.others.items()},
    }
    if outcome.said is None:
        return told | {"predicted_bytes": None, "predicted_oom": None, "why_not": outcome.why_not}
    return told | {
        "predicted_bytes": outcome.said.peak,
        "predicted_oom": outcome.said.oom,
        "first_sample": outcome.said.first_sample,
        "most_bytes": outcome.said.most,
        "dtype": outcome.said.dtype,
        "error": outcome.error,
    }


def lines(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """The tables, as Markdown."""
    yield "| model | optimizer | batch | GPU | measured MiB | predicted MiB | error | OOM |"
    yield "|---|---|---:|---|---:|---:|---:|---|"
    yield from map(_line, outcomes)
    yield from notes(outcomes)
    for title, found in (
        ("rows", groups(outcomes)),
        ("model", families(outcomes)),
        ("estimator", estimators(outcomes)),
    ):
        yield ""
        yield from table(title, found)


def notes(outcomes: Iterable[Outcome]) -> Iterable[str]:
    """A line for each model that was not trained in single precision."""
    told = {
        outcome.row.run.model: outcome.said.dtype
        for outcome in outcomes
        if outcome.said and outcome.said.dtype != Prediction.dtype
    }
    for model, dtype in told.items():
        yield f"note: {model} is trained in {dtype}, the torch_dtype of its config.json"


def table(title: str, found: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """One table of scores."""
    yield f"| {title} | runs | median error | p90 | too low | OOM agreement | OOM missed |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, score in found.items():
        cells = [percent(score[key]) for key in ("median_error", "p90_error", "too_low")]
        cells += [percent(score["oom_agreement"]), str(score["oom_missed"])]
        yield f"| {name} | {score['rows']} | {' | '.join(cells)} |"


def _line(outcome: Outcome) -> str:
    row, said = outcome.row, outcome.said
    cells = [
        row.run.model,
        row.run.optimizer,
        str(row.run.batch),
        row.run.gpu.removeprefix("NVIDIA-"),
    ]
    cells.append(f"{row.truth.peak / 2**20:,.0f}")
    if said is None:
        return f"| {' | '.join(cells)} | error: {outcome.why_not} | | |"
    error = "" if outcome.error is None else f"{outcome.error:+.2%}"
    told = [f"{said.peak / 2**20:,.0f}", error, who_ran_out(said, row.truth)]
    return f"| {' | '.join([*cells, *told])} |"


def who_ran_out(said: Prediction, truth: Prediction) -> str:
    """Which of a prediction and a measurement ended with an out-of-memory error, in words."""
    if said.oom and truth.oom:
        return "both"
    return "measured only" if truth.oom else "predicted only" if said.oom else ""


def percent(share: float | None) -> str:
    """A share for people; a dash for None."""
    return "-" if share is None else f"{share:.2%}"
