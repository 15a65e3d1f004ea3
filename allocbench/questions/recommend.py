# SPDX-License-Identifier: Apache-2.0
"""The best setting and allocator for a trace on a device, how sure that is, and what to check."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from allocbench.questions.best import Best
from allocbench.questions.growth import leak_of
from allocbench.questions.hazards import caveats, growing, reserve_in_words
from allocbench.replays.runner import Runner
from allocbench.reports.advice.choosing import KEEP
from allocbench.reports.advice.confidence import Confidence, confidence
from allocbench.reports.advice.recommending import Advice


@dataclass(frozen=True)
class Study:
    """The advice and the results that it is based on.

    rows: one for each candidate, the recommended first, then those that fit, by cost. Columns of
    `best.Best.rows`, and cost: see `reports.advice.choosing.Weights`, null for what does not fit;
    recommended, best_setting, best_allocator: the specs, the same in each row. orders: number of
    traces with the steps in another order. warnings: settings that the program rules out, and what
    to check before using the advice.
    """

    advice: Advice
    confidence: Confidence
    rows: pd.DataFrame
    orders: int
    warnings: Sequence[str] = ()


def study(run: Runner, found: Best, label: str = "") -> Study:
    """How reliable the advice of `best` is, and what to check. label: the device in sentences.

    Raises SpecError.
    """
    advice, rows = found.advice, found.rows
    sure = confidence(
        rows,
        advice,
        orders=found.orders,
        coverage=run.trace.coverage.sentence,
        grows=leak_of(run.trace) is not None,
    )
    ranked = rows.assign(
        cost=rows["allocator"].map(advice.costs).astype("float64"),
        recommended=advice.chosen,
        best_setting=advice.setting,
        best_allocator=advice.allocator,
        order=rows["allocator"] != advice.chosen,
    ).sort_values(["order", "cost"], kind="stable", na_position="last", ignore_index=True)
    warnings = _warnings(run, found, label or run.device)
    return Study(advice, sure, ranked.drop(columns="order"), found.orders.tried, tuple(warnings))


def _warnings(run: Runner, found: Best, device: str) -> list[str]:
    advice = found.advice
    warnings = [f"not considered: {spec}: {reason}" for spec, reason in found.excluded.items()]
    warnings += growing(run, [advice.chosen] if advice.chosen else [], device)
    if advice.chosen not in (None, KEEP) and (now := reserve_in_words(run, KEEP)):
        warnings.append(now)
    if advice.chosen is not None and not advice.keeps:
        warnings += [f"check first: {line}" for line in caveats(advice.chosen, run.trace)]
    return warnings
