# SPDX-License-Identifier: Apache-2.0
"""The settings of an allocator that suit a trace: the least capacity, then the least time (Optuna).

The capacities are those that `fit` finds: both use `questions.runner`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from allocbench.allocators import SpecError, spec
from allocbench.base.extra import needs_extra
from allocbench.questions import search_space
from allocbench.questions.hazards import breaks
from allocbench.questions.recorded import in_force
from allocbench.questions.runner import Runner
from allocbench.questions.switching import how, with_conf
from allocbench.reports.recommending import PROGRAM_SECONDS
from allocbench.workloads import Trace

with needs_extra("tune"):
    import optuna
    from optuna.samplers import TPESampler

BUDGET = 200
EXPANDABLE = "caching:expandable_segments=true"
COLUMNS = (
    "allocator",
    "min_capacity",
    "card",
    "peak_reserved",
    "device_seconds",
    "device_seconds_per_event",
    "seconds_per_event_cold",
    "failures",
    "default",
    "best",
    "pareto",
    "how",
)
SAME = 1.01
"""Capacities within this factor count as equal: such a difference does not matter."""
SAME_TIME = 1.05
"""Running times within this factor count as equal: they are estimates."""


@dataclass(frozen=True)
class Trial:
    """One setting that was tried.

    capacity: bytes on which it completes: the smallest for the specs in `Tuned.sure`, otherwise
    within 0.5 % of one that is too small; None if no device is enough. device_seconds: per event,
    estimated on a simulated device. failures: requests that failed on the device.
    """

    spec: str
    capacity: int | None
    device_seconds: float
    failures: int

    @property
    def serves(self) -> bool:
        """Whether it completes the trace on the device."""
        return not self.failures and self.capacity is not None

    @property
    def settings(self) -> int:
        """How many settings it changes."""
        return len(spec.parse(self.spec).options)

    @property
    def running(self) -> float:
        """Seconds per event with an assumed PROGRAM_SECONDS of the program's own work."""
        return PROGRAM_SECONDS + self.device_seconds

    def dominates(self, other: Trial) -> bool:
        """Whether it is at least as good in capacity and time, and better in one."""
        mine, theirs = (
            (self.capacity or 0, self.device_seconds),
            (
                other.capacity or 0,
                other.device_seconds,
            ),
        )
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


@dataclass(frozen=True)
class Tuned:
    """The result of a search.

    default: the initial settings. trials: all trials, each spec once, the default first. sure:
    specs whose capacity is exact; the best is one of them. interrupted: whether the search was
    stopped before its budget was used.
    """

    default: Trial
    trials: list[Trial]
    sure: frozenset[str]
    interrupted: bool

    @property
    def front(self) -> list[Trial]:
        """The Pareto front of the trials that served every request, smallest capacity first."""
        return front(trial for trial in self.trials if trial.spec in self.sure)

    @property
    def best(self) -> Trial | None:
        """The trial to use; the default if it is as good; None if all failed requests."""
        best_trial = best(trial for trial in self.trials if trial.spec in self.sure)
        return self.default if best_trial and not _helps(best_trial, self.default) else best_trial

    @property
    def helps(self) -> bool:
        """Whether the best needs over 1 % less than the default, or completes where that fails."""
        return self.best is not None and self.best != self.default


def best(trials: Iterable[Trial]) -> Trial | None:
    """The least capacity, then the least running time, then the fewest settings.

    Capacities within 1 % and times within 5 % count as equal. None if no trial served every
    request.
    """
    served = [trial for trial in trials if trial.serves]
    if not served:
        return None
    least = min(trial.capacity or 0 for trial in served)
    small = [trial for trial in served if (trial.capacity or 0) <= SAME * least]
    quickest = min(trial.running for trial in small)
    quick = [trial for trial in small if trial.running <= SAME_TIME * quickest]
    return min(quick, key=lambda trial: (trial.settings, trial.capacity, trial.device_seconds))


def front(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that no other dominates; among equal ones, the one with the fewest settings.

    Least capacity first.
    """
    served = sorted((trial for trial in trials if trial.serves), key=lambda trial: trial.settings)
    kept: dict[tuple[int, float], Trial] = {}
    for trial in served:
        if not any(other.dominates(trial) for other in served):
            kept.setdefault((trial.capacity or 0, trial.device_seconds), trial)
    return sorted(kept.values(), key=lambda trial: trial.capacity or 0)


def tune(
    trace: Trace,
    allocator: str,
    device: str,
    *,
    budget: int = BUDGET,
    seed: int = 0,
    begin: Callable[[str], None] = lambda what: None,
    runner: Runner | None = None,
) -> Tuned:
    """Search the settings of an allocator for the least capacity and the least device time.

    The default, for `caching` expandable segments, and every single change of a setting come first,
    as far as the budget allows; the rest of the budget is for combinations, by a tree of Parzen
    estimators for both goals at once (Bergstra et al., NeurIPS 2011; multi-objective after Ozaki et
    al., GECCO 2020; Optuna's TPESampler). The search itself asks for capacities within 0.5 %; those
    of the default and of the best are then found exactly, and the best is tried without each of its
    settings. Both goals are counted, not timed, so that equal seeds give equal results. Settings
    that cannot be created or were tried before do not count towards the budget. KeyboardInterrupt
    ends the search and keeps what was found.

    begin: called with the spec of each trial. runner: of this trace and device, if one exists.
    Raises SpecError if `allocator` is invalid or has wrappers.
    """
    search = _Search(runner or Runner(trace, device), allocator, budget, begin)
    study = _study(seed)
    for settings in search.first():
        study.enqueue_trial(settings)
    interrupted = False
    try:
        search.measure(allocator)
        if search.expandable:
            search.measure(search.expandable)
        study.optimize(search.objective, n_trials=20 * budget, callbacks=[search.stop_when_done])
    except KeyboardInterrupt:
        if not search.trials:
            raise
        interrupted = True
    search.settle()
    trials = list(search.trials.values())
    return Tuned(trials[0], trials, frozenset(search.sure), interrupted)


def frame(tuned: Tuned, runner: Runner) -> pd.DataFrame:
    """The trials as rows: the best first, then the Pareto front, then by capacity.

    Bytes of min_capacity, null for trials whose capacity was not found exactly, and of
    peak_reserved; card: the smallest common one; device_seconds of the whole trace and per event
    (estimated on a simulated device), host seconds_per_event_cold, measured here only for the front
    and the default; failures; default, best, pareto: flags; how: how to use it.
    """
    chosen = tuned.best or tuned.default
    members = {trial.spec for trial in (*tuned.front, tuned.default, chosen)}
    rows = []
    for trial in tuned.trials:
        counted, sure = runner.counted(trial.spec), trial.spec in tuned.sure
        shown = trial.spec in members and trial.serves
        rows.append(
            {
                "allocator": with_conf(trial.spec),
                "min_capacity": trial.capacity if sure else None,
                "card": runner.card(trial.spec) if shown else None,
                "peak_reserved": counted["peak_reserved"],
                "device_seconds": counted["device_seconds"],
                "device_seconds_per_event": trial.device_seconds,
                "seconds_per_event_cold": runner.seconds(trial.spec)["seconds_per_event_cold"]
                if shown
                else None,
                "failures": trial.failures,
                "default": trial == tuned.default,
                "best": trial == tuned.best,
                "pareto": trial in tuned.front,
                "how": how(in_force(trial.spec, runner.trace, version=False)),
                "order": trial.capacity,
            }
        )
    ordered = pd.DataFrame(rows, columns=[*COLUMNS, "order"]).sort_values(
        ["best", "pareto", "order", "device_seconds"],
        ascending=[False, False, True, True],
        kind="stable",
        ignore_index=True,
    )
    return ordered[list(COLUMNS)].astype({"min_capacity": "Int64"})


def _helps(trial: Trial, default: Trial) -> bool:
    if not default.serves:
        return True
    return SAME * (trial.capacity or 0) < (default.capacity or 0)


class _Search:
    """The trials so far, and the objective that makes more of them."""

    def __init__(
        self, runner: Runner, allocator: str, budget: int, begin: Callable[[str], None]
    ) -> None:
        parsed = spec.parse(allocator)
        if parsed.inner:
            raise SpecError(f"'{allocator}': only a strategy without wrappers can be tuned")
        self.name = parsed.name
        self.given = parsed.options
        self.trials: dict[str, Trial] = {}
        self.sure: set[str] = set()
        self._values = {
            name: tried
            for name, tried in search_space.values(parsed.name).items()
            if name not in parsed.options
        }
        self.expandable = (
            search_space.written(self.name, {**self.given, "expandable_segments": "true"})
            if "expandable_segments" in self._values
            else ""
        )
        if self.expandable and breaks(self.expandable, runner.trace):
            self.expandable = ""
        self._default = allocator
        self._runner, self._budget, self._begin = runner, budget, begin
        self._idle = 0

    def first(self) -> list[dict[str, str]]:
        """The default, then the specs that differ from it in one setting; flags first."""
        plain = dict.fromkeys(self._values, search_space.DEFAULT)
        changes = [(name, value) for name, tried in self._values.items() for value in tried[1:]]
        flags = {name for name, tried in self._values.items() if len(tried) == 2}
        changes.sort(key=lambda change: change[0] not in flags)
        return [plain, *({**plain, name: value} for name, value in changes)]

    def measure(self, text: str, *, exactly: bool = False) -> Trial:
        """Try a spec unless already tried; raises SpecError, also if the program rules it out."""
        if text != self._default and (reason := breaks(text, self._runner.trace)):
            raise SpecError(f"{text}: {reason}")
        if text not in self.trials or (exactly and text not in self.sure):
            counted = self._runner.counted(text)
            if text not in self.trials:
                self._begin(text)
                self._idle = 0
            find = self._runner.min_capacity if exactly else self._runner.rough_capacity
            self.trials[text] = Trial(
                text, find(text), counted["device_seconds_per_event"], counted["failures"]
            )
            if exactly:
                self.sure.add(text)
        return self.trials[text]

    def settle(self) -> None:
        """Find exact capacities of the front, the default and the best, and shorten the best."""
        rough = front(self.trials.values())
        for text in {self._default, self.expandable or self._default}:
            if text in self.trials:
                self.measure(text, exactly=True)
        for trial in rough:
            self.measure(trial.spec, exactly=True)
        while True:
            chosen = best(trial for trial in self.trials.values() if trial.spec in self.sure)
            tried = len(self.sure)
            for shorter in self._shorter(chosen) if chosen else []:
                self.measure(shorter, exactly=True)
            if len(self.sure) == tried:
                return

    def _shorter(self, trial: Trial) -> list[str]:
        """The specs without one of the settings that the search added."""
        settings = spec.parse(trial.spec).options
        return [
            search_space.written(
                self.name, {key: value for key, value in settings.items() if key != name}
            )
            for name in self._values
            if name in settings
        ]

    def objective(self, trial: optuna.Trial) -> tuple[float, float]:
        """Bytes of capacity and device seconds of the settings that Optuna suggests."""
        self._idle += 1
        settings = {
            name: str(trial.suggest_categorical(name, tried))
            for name, tried in self._values.items()
        }
        try:
            measured = self.measure(search_space.written(self.name, self.given | settings))
        except SpecError as error:
            raise optuna.TrialPruned(str(error)) from error
        if not measured.serves or measured.capacity is None:
            raise optuna.TrialPruned(f"{measured.failures} requests failed")
        return measured.capacity, measured.device_seconds

    def stop_when_done(self, study: optuna.Study, _: Any) -> None:
        """End when the budget is used, or when nothing new has been found for a long time."""
        if len(self.trials) >= self._budget or self._idle > self._budget:
            study.stop()


def _study(seed: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # a warning has the interrupt's traceback
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = TPESampler(seed=seed, multivariate=True, n_startup_trials=20)
    return optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
