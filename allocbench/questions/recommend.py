# SPDX-License-Identifier: Apache-2.0
"""Which allocator for a trace on a device: every one is run, and caching in tuned settings too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from allocbench import allocators
from allocbench.questions.capacity import min_capacity
from allocbench.questions.switching import with_conf
from allocbench.reports.recommending import (
    PROGRAM_SECONDS,
    Objective,
    Recommendation,
    recommend,
    scores,
)
from allocbench.workloads import Trace
from allocbench.workloads.perturbing import perturbed

ORDERS = 3
"""Perturbed traces behind a confidence."""
TUNING = 60
"""Settings of caching that are tried."""
KEEP = "caching"
_PASSES = 3
COLUMNS = (
    "workload",
    "allocator",
    "device",
    "candidate",
    "failures",
    "min_capacity",
    "peak_reserved",
    "host_seconds",
    "device_seconds",
    "score",
)


@dataclass(frozen=True)
class Study:
    """A recommendation and what it rests on.

    rows: one for each allocator, best first, then those without a score. Bytes of min_capacity and
    peak_reserved; host_seconds (measured) and device_seconds (estimated on a simulated device) per
    event; score: see `allocbench.reports.recommending.scores`, null for what is not recommended.
    perturbed: the same for each perturbed trace.
    """

    recommendation: Recommendation
    rows: pd.DataFrame
    perturbed: tuple[pd.DataFrame, ...]


def study(
    trace: Trace,
    device: str,
    objective: Objective = "memory",
    *,
    specs: Sequence[str] | None = None,
    workload: str = "",
    orders: int = ORDERS,
    tuning: int = TUNING,
    seed: int = 0,
    begin: Callable[[str], None] = lambda what: None,
) -> Study:
    """Run allocators on a trace and on perturbed ones, and recommend one.

    specs: all strategies that can work on the device when None. orders: how many perturbed traces.
    tuning: how many settings of caching are tried, 0 for none; needs the extra `tune`. begin:
    called with what is done next, at most `stages` times. Raises SpecError.
    """
    chosen = list(_all(device) if specs is None else specs)
    if tuning:
        begin("tuning caching")
        chosen += [spec for spec in _tuned(trace, device, objective, tuning, seed) if spec]
    name = workload or trace.name
    rows = _rows(trace, chosen, device, name, _PASSES, begin, "")
    others = tuple(
        _rows(perturbed(trace, seed + n), chosen, device, name, 1, begin, f", order {n}")
        for n in range(1, orders + 1)
    )
    found = recommend(rows, objective, others, KEEP)
    score = scores(rows[~rows["allocator"].isin(found.failed)], objective)
    ranked = rows.assign(score=rows["allocator"].map(score)).sort_values(
        "score", kind="stable", na_position="last", ignore_index=True
    )
    return Study(found, ranked[list(COLUMNS)], others)


def _all(device: str) -> list[str]:
    return allocators.names(allocators.make_device(device))


def stages(
    device: str, specs: Sequence[str] | None = None, orders: int = ORDERS, tuning: int = TUNING
) -> int:
    """How often `study` begins something, at most."""
    count = len(_all(device) if specs is None else specs)
    return (count + bool(tuning)) * (orders + 1) + bool(tuning)


def _tuned(trace: Trace, device: str, objective: Objective, budget: int, seed: int) -> list[str]:
    """The settings of caching that suit the objective; none where the default already does."""
    from allocbench.questions.tune import tune

    found = tune(trace, KEEP, device, budget=budget, seed=seed)
    if not found.front:
        return []
    events = max(1, len(trace))
    best = min(
        found.front,
        key=lambda trial: {
            "memory": trial.peak_reserved,
            "latency": trial.device_seconds,
            "balanced": trial.peak_reserved * (PROGRAM_SECONDS + trial.device_seconds / events),
        }[objective],
    )
    return [with_conf(best.spec)] if best.spec != KEEP else []


def _rows(
    trace: Trace,
    specs: Sequence[str],
    device: str,
    workload: str,
    passes: int,
    begin: Callable[[str], None],
    suffix: str,
) -> pd.DataFrame:
    rows = []
    for spec in specs:
        begin(f"{spec}{suffix}")
        made = allocators.make(spec, allocators.make_device(device))
        result = allocators.replay(trace, made)
        failures, peak = result.stats.failures, result.stats.peak_reserved
        measured = made.info.candidate and not failures
        timed = [
            allocators.time_pass(trace, allocators.make(spec, allocators.make_device(device)))
            for _ in range(passes if measured else 0)
        ]
        capacity = (
            min_capacity(trace, spec, device, max_load=result.max_load, peak_reserved=peak)
            if measured
            else None
        )
        rows.append(
            {
                "workload": workload,
                "allocator": spec,
                "device": device,
                "candidate": made.info.candidate,
                "failures": failures,
                "min_capacity": capacity,
                "peak_reserved": peak,
                "host_seconds": min(timed, default=None),
                "device_seconds": result.device.seconds / max(1, len(trace)),
            }
        )
    columns = [name for name in COLUMNS if name != "score"]
    kinds = {"min_capacity": "Int64", "peak_reserved": "Int64", "host_seconds": "float64"}
    return pd.DataFrame(rows, columns=columns).astype(kinds)
