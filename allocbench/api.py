# SPDX-License-Identifier: Apache-2.0
"""The four questions, many runs and their history, from Python: most functions return a DataFrame.

A workload is a trace, or what the command line takes: the name of a workload, or a file. It may
also be a program, as "-- python train.py" or `ProgramWorkload`, or a function without arguments,
which is called in a process of its own. Both run on the GPU of this machine or on a null GPU, that
of `device` if it is "null:CARD". Devices and allocators are written as specs. Errors are those of
the command line: UsageError, SpecError, TraceError, RecordError, NullGpuError.

    from allocbench import api

    api.check("gpt2-train", "l4").verdict
    api.fit("gpt2-train")
    api.fit(train_step, device="l4")
    api.fit("-- python train.py")
    api.explain("trace.parquet", "caching", "sim:24GiB")
    api.whatif("-- python train.py", device="null:l4")
    api.recommend("gpt2-train", "sim:24GiB")
    api.tune("gpt2-train", budget=100)
    api.diff("old.csv", "new.csv")
    api.sweep(["gpt2-train", "llm-decode"], ["bfc", "caching"], ["sim:24GiB"], "sweep.jsonl")
    api.history("benchmarks/results/asv")
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from allocbench.inputs import ALL, DEVICE, Unchosen
from allocbench.inputs.devices import device_of, recorded_on
from allocbench.inputs.question import allocator_specs, failed_on
from allocbench.inputs.traces import load, load_all
from allocbench.programs import functions, is_program, program
from allocbench.programs.program import ProgramSettings, ProgramWorkload
from allocbench.questions import BUDGET, ORDERS
from allocbench.questions import check as checking
from allocbench.questions import explain as explaining
from allocbench.questions import fit as fitting
from allocbench.questions import recommend as recommending
from allocbench.questions import tune as tuning
from allocbench.questions.best import best, of_settings, to_use
from allocbench.replays.experiment import Effort
from allocbench.replays.runner import Runner, beside
from allocbench.reports.advice.check import RECORDED, Answer
from allocbench.reports.advice.choosing import WEIGHTS, Weights
from allocbench.reports.rows import asv
from allocbench.workloads import Trace

Workload: TypeAlias = Trace | str | ProgramWorkload | Callable[[], object]

_TIME_LIMIT = 5.0  # seconds


def check(
    workload: Workload,
    device: str | None = None,
    *,
    allocator: str = "caching",
    everything: bool = False,
) -> Answer:
    """Whether a workload fits a device, what helps if not, and who holds the memory.

    device: default: that on which a recording failed, or the smallest card that is enough.
    allocator: the spec of `caching` with the user's settings; default: those of the recording.
    everything: also each change that was tried, and what is assumed: `rest` of the answer.
    """
    trace, found = _case(workload, DEVICE if device is None else device)
    chosen = None if isinstance(found, Unchosen) else found
    where = RECORDED if device is None and chosen is not None else ""
    name = _name(workload, trace)
    return checking.check(
        trace, chosen, workload=name, where=where, allocator=allocator, everything=everything
    )


def fit(
    workload: Workload,
    specs: Sequence[str] | None = None,
    device: str = DEVICE,
    *,
    time_limit: float = _TIME_LIMIT,
) -> pd.DataFrame:
    """The smallest device for each allocator. See `allocbench.questions.fit.fit`.

    specs: default: all strategies, and expandable segments. time_limit: seconds to look for the
    best plan, 0 for none.
    """
    trace, device = _case(workload, device)
    chosen = fitting.with_expandable(allocator_specs(ALL, device)) if specs is None else specs
    run = Runner(trace, device, _name(workload, trace))
    return fitting.fit(run, chosen, fitting.bounds(trace, time_limit))


def explain(workload: Workload, allocator: str = "caching", device: str = DEVICE) -> pd.DataFrame:
    """Why the first failed request fails: one row, or no row.

    See `allocbench.questions.explain.frame`.
    """
    trace, device = _case(workload, device)
    return explaining.frame(explaining.explain(Runner(trace, beside(device, trace)), allocator))


def whatif(
    workload: Workload, allocator: str = "caching", device: str = DEVICE, *, ranks: int = 8
) -> pd.DataFrame:
    """What each change of a training program saves: see `allocbench.questions.whatif.frame`.

    With a device, the changes that fit it and ask least of the user are marked. ranks: GPUs of
    sharded training. Raises UsageError for a trace without steps of an optimizer.
    """
    from allocbench.questions import whatif as changing

    trace, chosen = _case(workload, device)
    capacity = None if device == DEVICE else Runner(trace, chosen).capacity
    answer = changing.whatif(Runner(trace, chosen), allocator, ranks=ranks, capacity=capacity)
    return changing.frame(answer, _name(workload, trace), trace.coverage.sentence)


def tune(
    workload: Workload,
    allocator: str = "caching",
    device: str = DEVICE,
    *,
    budget: int = BUDGET,
) -> pd.DataFrame:
    """The settings that were tried, the best first: see `allocbench.questions.tune.frame`."""
    trace, device = _case(workload, device)
    run = Runner(trace, beside(device, trace))
    tuned = tuning.tune(run, allocator, budget=budget)
    return tuning.frame(tuned, run, to_use(tuned, of_settings(tuned, run)))


def recommend(
    workload: Workload,
    device: str = DEVICE,
    *,
    weights: Weights = WEIGHTS,
    orders: int = ORDERS,
    budget: int = BUDGET,
    seed: int = 0,
) -> pd.DataFrame:
    """The allocators ranked, best first: see `allocbench.questions.recommend.Study.rows`.

    `attrs["advice"]` of the frame is the `allocbench.reports.advice.recommending.Advice`, and
    `attrs["confidence"]` the `allocbench.reports.advice.confidence.Confidence`.
    """
    trace, device = _case(workload, device)
    run = Runner(trace, beside(device, trace), _name(workload, trace))
    found = best(run, weights=weights, orders=orders, budget=budget, seed=seed)
    study = recommending.study(run, found)
    study.rows.attrs["advice"] = study.advice
    study.rows.attrs["confidence"] = study.confidence
    return study.rows


def diff(
    old: Workload,
    new: Workload | None = None,
    allocator: str = "caching",
    other: str | None = None,
    device: str = DEVICE,
) -> pd.DataFrame:
    """The parts of the difference of two peaks: see `allocbench.questions.diff.frame`.

    new: default: the same again. other: the allocator of the new side, default: the same.
    `attrs["difference"]` of the frame is the `allocbench.questions.diff.Difference`.
    """
    from allocbench.questions import diff as differing

    first, device = _case(old, device)
    second = first if new is None else _case(new, device)[0]
    names = _name(old, first), _name(old if new is None else new, second)
    sides = (
        differing.Side(names[0], first, allocator),
        differing.Side(names[1], second, other or allocator),
    )
    found = differing.diff(*sides, device)
    table = differing.frame(found)
    table.attrs["difference"] = found
    return table


def sweep(
    files: Sequence[str],
    specs: Sequence[str],
    devices: Sequence[str],
    path: str,
    *,
    passes: int = 0,
    min_capacity: bool = True,
    workers: int = 0,
    retry: bool = False,
) -> pd.DataFrame:
    """Every workload through every allocator on every device: see `allocbench.sweeps.sweep.sweep`.

    Raises ModuleNotFoundError, naming the extra, when joblib is not installed.
    """
    from allocbench.sweeps import sweep as sweeping

    return sweeping.sweep(
        load_all(files),
        specs,
        devices,
        path,
        Effort(passes, min_capacity),
        workers=workers,
        retry=retry,
    )


def history(folder: str | Path) -> pd.DataFrame:
    """Results stored by asv, as rows like those of every run: see `reports.asv.frame`."""
    return asv.frame(folder)


def _case(workload: Workload, device: str) -> tuple[Trace, str]:
    """The trace of a workload, and the spec of the device that it is replayed on."""
    simulated = device_of(device)
    settings = ProgramSettings(device=recorded_on(device))
    if isinstance(workload, Trace):
        trace = workload
    elif isinstance(workload, str):
        with program.asked(settings):
            trace = load(workload)
    elif isinstance(workload, ProgramWorkload):
        trace = program.load(workload)
    else:
        with functions.program_of(workload, settings) as called:
            trace = program.load(called)
    return trace, failed_on(simulated, {trace.name: trace})


def _name(workload: Workload, trace: Trace) -> str:
    named = isinstance(workload, str) and not is_program(workload)
    return str(workload) if named else trace.name
