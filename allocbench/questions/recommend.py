# SPDX-License-Identifier: Apache-2.0
"""The best setting and allocator for a trace on a device: all are run, settings are searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from allocbench import allocators
from allocbench.questions import BUDGET, ORDERS
from allocbench.questions.hazards import breaks, caveats, growing
from allocbench.questions.switching import with_conf
from allocbench.replays.runner import Runner
from allocbench.reports.advice.choosing import KEEP, WEIGHTS, Weights
from allocbench.reports.advice.confidence import Confidence, confidence
from allocbench.reports.advice.recommending import Advice, advise
from allocbench.workloads import Trace
from allocbench.workloads.step_orders import kinds_of_steps, shuffled

EXPANDABLE = "caching:conf=expandable_segments:True"
COLUMNS = (
    "workload",
    "allocator",
    "device",
    "capacity",
    "candidate",
    "failures",
    "max_load",
    "min_capacity",
    "card",
    "peak_reserved",
    "seconds_per_event_cold",
    "device_seconds",
    "device_seconds_low",
    "device_seconds_high",
    "device_seconds_per_event",
    "device_seconds_source",
    "device_assumptions",
    "cost",
    "failed_orders",
    "coverage",
)


@dataclass(frozen=True)
class Study:
    """The advice and the results that it is based on.

    rows: one for each allocator, those that fit first, by cost. Columns of `reports.results`, and
    cost: see `reports.choosing.Weights`, null for what does not fit; failed_orders: number of
    traces with the steps in another order on which a request failed. orders: number of such traces.
    warnings: settings that the program rules out, and what to check before using the advice.
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
    specs: Sequence[str] | None = None,
    workload: str = "",
    weights: Weights = WEIGHTS,
    orders: int = ORDERS,
    budget: int = BUDGET,
    seed: int = 0,
    label: str = "",
    begin: Callable[[str], None] = lambda what: None,
    runner: Runner | None = None,
) -> Study:
    """Run allocators on a trace, and on the same trace with its steps shuffled, and advise.

    specs: default: all strategies that can work on the device, and expandable segments. orders:
    number of shuffled traces to try, if the steps have other orders. budget: number of settings of
    caching to try, 0 for none; needs the extra `tune`. label: the name of the device in sentences.
    begin: called with the name of each stage, at most `stages` times. runner: of this trace and
    device, if one exists. Raises SpecError.
    """
    run = runner or Runner(trace, device, workload)
    chosen = list(_all(device) if specs is None else specs)
    if budget:
        begin("tuning caching")
        chosen += [spec for spec in _tuned(run, budget, seed) if spec not in chosen]
    broken = {spec: reason for spec in chosen if (reason := breaks(spec, trace))}
    chosen = [spec for spec in chosen if spec not in broken]
    rows = []
    for spec in chosen:
        begin(spec)
        rows.append(_row(run, spec))
    failed = dict.fromkeys(chosen, 0)
    tried = 0
    for number in range(1, orders + 1):
        begin(f"order {number}")
        if (variation := shuffled(trace, seed + number)) is None:
            continue
        tried += 1
        other = Runner(variation, device)
        for spec in chosen:
            failed[spec] += not other.completes(spec)
    table = _frame(rows).assign(failed_orders=[failed[spec] for spec in chosen])
    shaky = {spec for spec, count in failed.items() if count}
    advice = advise(table, device=label, shaky=shaky, weights=weights)
    sure = confidence(
        table,
        advice,
        orders=tried,
        failed=failed,
        steps=trace.steps,
        kinds=kinds_of_steps(trace),
        coverage=trace.coverage.sentence,
    )
    table["cost"] = table["allocator"].map(advice.costs).astype("float64")
    ranked = table.sort_values("cost", kind="stable", na_position="last", ignore_index=True)
    warnings = [f"not considered: {spec}: {reason}" for spec, reason in broken.items()]
    warnings += growing(run, [advice.chosen] if advice.chosen else [], label or device)
    if advice.chosen is not None and not advice.keeps:
        warnings += [f"check first: {line}" for line in caveats(advice.chosen, trace)]
    return Study(advice, sure, ranked[list(COLUMNS)], tried, tuple(warnings))


def stages(
    device: str, specs: Sequence[str] | None = None, orders: int = ORDERS, budget: int = BUDGET
) -> int:
    """Maximum number of stages of `study`."""
    count = len(_all(device) if specs is None else specs)
    return count + 2 * bool(budget) + orders


def _all(device: str) -> list[str]:
    """The default first, then PyTorch's other setting, then the other strategies."""
    names = allocators.names(allocators.make_device(device))
    return [KEEP, EXPANDABLE, *(name for name in names if name != KEEP)]


def _tuned(runner: Runner, budget: int, seed: int) -> list[str]:
    """The settings of caching to use; none if the default is as good."""
    from allocbench.questions.tune import tune

    tuned = tune(runner.trace, KEEP, runner.device, budget=budget, seed=seed, runner=runner)
    if tuned.interrupted:
        raise KeyboardInterrupt
    return [with_conf(tuned.best.spec)] if tuned.best is not None and tuned.helps else []


def _row(runner: Runner, spec: str) -> dict[str, object]:
    row = runner.counted(spec)
    if row["candidate"]:
        row = row | runner.enough(spec)
    if row["candidate"] and not row["failures"]:
        row = row | runner.seconds(spec)
    return row | {
        "workload": runner.workload,
        "allocator": spec,
        "device": runner.device,
        "coverage": runner.trace.coverage.sentence or None,
    }


def _frame(rows: Sequence[dict[str, object]]) -> pd.DataFrame:
    columns = [name for name in COLUMNS if name not in ("cost", "failed_orders")]
    kinds = {"min_capacity": "Int64", "peak_reserved": "Int64", "seconds_per_event_cold": "float64"}
    return pd.DataFrame(rows, columns=columns).astype(kinds)
