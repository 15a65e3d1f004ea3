# SPDX-License-Identifier: Apache-2.0
"""The best setting and allocator for a trace on a device, how sure that is, and what to check."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from allocbench.questions import BUDGET, ORDERS
from allocbench.questions.best import COLUMNS as OF_BEST
from allocbench.questions.best import Best, best
from allocbench.questions.growth import leak_of
from allocbench.questions.hazards import caveats, growing, reserve_in_words
from allocbench.replays.runner import Runner
from allocbench.reports.advice.choosing import KEEP, WEIGHTS, Weights
from allocbench.reports.advice.confidence import Confidence, confidence
from allocbench.reports.advice.recommending import Advice
from allocbench.workloads import Trace

COLUMNS = (*OF_BEST, "cost", "recommended", "best_setting", "best_allocator")


@dataclass(frozen=True)
class Study:
    """The advice and the results that it is based on.

    rows: one for each candidate, the recommended first, then those that fit, by cost. Columns of
    `best.Best.rows`, and cost: see `reports.choosing.Weights`, null for what does not fit;
    recommended, best_setting, best_allocator: the specs, the same in each row. orders: number of
    traces with the steps in another order. warnings: settings that the program rules out, and what
    to check before using the advice.
    """

    advice: Advice
    confidence: Confidence
    rows: pd.DataFrame
    orders: int
    warnings: Sequence[str] = ()


def study(
    trace: Trace,
    device: str,
    *,
    workload: str = "",
    weights: Weights = WEIGHTS,
    orders: int = ORDERS,
    budget: int = BUDGET,
    seed: int = 0,
    label: str = "",
    begin: Callable[[str], None] = lambda what: None,
    runner: Runner | None = None,
) -> Study:
    """Find the best setting and allocator, as `best` does, and how reliable the advice is.

    The arguments are those of `best`. runner: of this trace and device, if one exists. Raises
    SpecError.
    """
    run = runner or Runner(trace, device, workload)
    found = best(
        run, label=label, weights=weights, orders=orders, budget=budget, seed=seed, begin=begin
    )
    advice, rows = found.advice, found.rows
    sure = confidence(
        rows,
        advice,
        orders=found.orders,
        coverage=trace.coverage.sentence,
        grows=leak_of(trace) is not None,
    )
    ranked = rows.assign(
        cost=rows["allocator"].map(advice.costs).astype("float64"),
        recommended=advice.chosen,
        best_setting=advice.setting,
        best_allocator=advice.allocator,
        order=rows["allocator"] != advice.chosen,
    ).sort_values(["order", "cost"], kind="stable", na_position="last", ignore_index=True)
    warnings = _warnings(run, found, label or device)
    return Study(advice, sure, ranked[list(COLUMNS)], found.orders.tried, tuple(warnings))


def _warnings(run: Runner, found: Best, device: str) -> list[str]:
    advice = found.advice
    warnings = [f"not considered: {spec}: {reason}" for spec, reason in found.excluded.items()]
    warnings += growing(run, [advice.chosen] if advice.chosen else [], device)
    if advice.chosen not in (None, KEEP) and (now := reserve_in_words(run, KEEP)):
        warnings.append(now)
    if advice.chosen is not None and not advice.keeps:
        warnings += [f"check first: {line}" for line in caveats(advice.chosen, run.trace)]
    return warnings
