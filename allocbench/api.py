# SPDX-License-Identifier: Apache-2.0
"""The four questions, many runs and their history, from Python: each function returns a DataFrame.

A workload is a trace, or what the command line takes: the name of a workload, or a file. Devices
and allocators are written as specs. Errors are those of the command line: UsageError, SpecError,
TraceError.

    from allocbench import api

    api.fit("gpt2-train")
    api.explain("trace.parquet", "caching", "sim:24GiB")
    api.recommend("gpt2-train", "sim:24GiB")
    api.tune("gpt2-train", budget=100)
    api.sweep(["gpt2-train", "llm-decode"], ["bfc", "caching"], ["sim:24GiB"], "sweep.jsonl")
    api.history("benchmarks/results/asv")
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from allocbench import inputs, options
from allocbench.experiment import Effort
from allocbench.questions import explain as explaining
from allocbench.questions import fit as fitting
from allocbench.questions import recommend as recommending
from allocbench.questions.runner import Runner
from allocbench.reports import asv
from allocbench.reports.recommending import WEIGHTS, Weights
from allocbench.workloads import Trace

Workload: TypeAlias = Trace | str

_TIME_LIMIT = 5.0  # seconds


def fit(
    workload: Workload,
    specs: Sequence[str] | None = None,
    device: str = options.DEVICE,
    *,
    time_limit: float = _TIME_LIMIT,
) -> pd.DataFrame:
    """The smallest device for each allocator, all when None: see `allocbench.questions.fit.fit`.

    time_limit: seconds to look for the best plan, 0 for none.
    """
    trace = _trace(workload)
    chosen = inputs.allocator_specs(inputs.ALL, device) if specs is None else specs
    known = fitting.bounds(trace, time_limit)
    return fitting.fit(trace, chosen, device, workload=_name(workload), known=known)


def explain(
    workload: Workload, allocator: str = "caching", device: str = options.DEVICE
) -> pd.DataFrame:
    """Why the first failed request fails: one row, or none.

    See `allocbench.questions.explain.frame`.
    """
    return explaining.frame(explaining.explain(_trace(workload), allocator, device))


def tune(
    workload: Workload,
    allocator: str = "caching",
    device: str = options.DEVICE,
    *,
    budget: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """The settings that were tried, the Pareto front first: see `allocbench.questions.tune.frame`.

    Raises ModuleNotFoundError, naming the extra, when Optuna is not installed.
    """
    from allocbench.questions import tune as tuning

    run = Runner(_trace(workload), device)
    found = tuning.tune(run.trace, allocator, device, budget=budget, seed=seed, runner=run)
    return tuning.frame(found, run)


def recommend(
    workload: Workload,
    device: str = options.DEVICE,
    *,
    weights: Weights = WEIGHTS,
    orders: int = recommending.ORDERS,
    tuning: int = recommending.TUNING,
    seed: int = 0,
) -> pd.DataFrame:
    """The allocators ranked, best first: see `allocbench.questions.recommend.Study.rows`.

    `attrs["advice"]` of the frame is the `allocbench.reports.recommending.Advice`, and
    `attrs["confidence"]` the `allocbench.reports.confidence.Confidence`.
    Raises ModuleNotFoundError, naming the extra, when `tuning` is not 0 and Optuna not installed.
    """
    found = recommending.study(
        _trace(workload),
        device,
        workload=_name(workload),
        weights=weights,
        orders=orders,
        tuning=tuning,
        seed=seed,
    )
    found.rows.attrs["advice"] = found.advice
    found.rows.attrs["confidence"] = found.confidence
    return found.rows


def sweep(
    files: Sequence[str],
    specs: Sequence[str],
    devices: Sequence[str],
    path: str,
    *,
    passes: int = 0,
    min_capacity: bool = True,
    workers: int = 0,
    scheduler: str | None = None,
    retry: bool = False,
) -> pd.DataFrame:
    """Every workload through every allocator on every device: see `allocbench.sweep.sweep`.

    Raises ModuleNotFoundError, naming the extra, when joblib is not installed.
    """
    from allocbench import sweep as sweeping

    return sweeping.sweep(
        inputs.load_all(files),
        specs,
        devices,
        path,
        Effort(passes, min_capacity),
        workers=workers,
        scheduler=scheduler,
        retry=retry,
    )


def history(folder: str | Path) -> pd.DataFrame:
    """Results that asv keeps, as rows like those of every run: see `reports.asv.frame`."""
    return asv.frame(folder)


def _trace(workload: Workload) -> Trace:
    return workload if isinstance(workload, Trace) else inputs.load(workload)


def _name(workload: Workload) -> str:
    return workload.name if isinstance(workload, Trace) else workload
