# SPDX-License-Identifier: Apache-2.0
"""A search for the least capacity, then the least device time (Optuna), whatever is varied."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from allocbench.allocators import SpecError, spec
from allocbench.base.extra import needs_extra
from allocbench.replays.runner import Row
from allocbench.reports.advice.choosing import PROGRAM_SECONDS
from allocbench.reports.rows.assumptions import Estimate, per_event

with needs_extra("tune"):
    import optuna
    from optuna.samplers import TPESampler

SAME = 1.01
"""Capacities within this factor count as equal: such a difference does not matter."""
SAME_TIME = 1.05
"""Running times within this factor count as equal: they are estimates."""


@dataclass(frozen=True)
class Trial:
    """One setting that was tried.

    capacity: bytes on which it completes: the smallest if the search is sure of it, otherwise
    within 0.5 % of one that is too small; None if no device is enough. device_seconds: per event,
    estimated on a simulated device. failures: requests that failed on the device. estimate: the
    device seconds with the costs that they assume; without it, they are exact.
    """

    spec: str
    capacity: int | None
    device_seconds: float
    failures: int
    estimate: Estimate | None = field(default=None, compare=False, kw_only=True)

    @property
    def serves(self) -> bool:
        """Whether it completes the trace on the device."""
        return not self.failures and self.capacity is not None

    @property
    def settings(self) -> int:
        """How many settings it changes."""
        return len(spec.parse(self.spec).options)

    @property
    def time(self) -> Estimate:
        """Device seconds per event."""
        return self.estimate or Estimate(self.device_seconds)

    @property
    def running(self) -> Estimate:
        """Seconds per event with an assumed PROGRAM_SECONDS of the program's own work."""
        return Estimate(PROGRAM_SECONDS) + self.time

    def dominates(self, other: Trial) -> bool:
        """Whether it is at least as good in capacity and time, and better in one."""
        mine = self.capacity or 0, self.device_seconds
        theirs = other.capacity or 0, other.device_seconds
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


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
    quickest = min(trial.running.seconds for trial in small)
    quick = [trial for trial in small if trial.running.seconds <= SAME_TIME * quickest]
    return min(quick, key=lambda trial: (trial.settings, trial.capacity, trial.device_seconds))


def rivals(trials: Iterable[Trial], chosen: Trial) -> list[Trial]:
    """The trials that could be best in place of `chosen`, which is at the estimated costs.

    They need at most 1 % more than the least capacity, and could be over 5 % quicker with other
    costs of device calls within their assumed ranges. Least capacity first.
    """
    served = [trial for trial in trials if trial.serves]
    least = min((trial.capacity or 0 for trial in served), default=0)
    near = [trial for trial in served if (trial.capacity or 0) <= SAME * least]
    return sorted(
        (trial for trial in near if (trial.running * SAME_TIME).may_be_less(chosen.running)),
        key=lambda trial: (trial.capacity or 0, trial.settings),
    )


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


def helps(trial: Trial, other: Trial) -> bool:
    """Whether a trial needs over 1 % less than another, or completes where that fails."""
    if not other.serves:
        return True
    return SAME * (trial.capacity or 0) < (other.capacity or 0)


class Search(ABC):
    """The trials so far, by their text, and the objective that makes more of them.

    sure: the texts whose capacity is exact. A subclass says what a text stands for.
    """

    def __init__(self, always: Iterable[str], budget: int, begin: Callable[[str], None]) -> None:
        """`always`: texts that are tried first, and whose capacities are found exactly."""
        self.trials: dict[str, Trial] = {}
        self.sure: set[str] = set()
        self._always, self._budget, self._begin = tuple(always), budget, begin
        self._idle = 0

    @abstractmethod
    def first(self) -> list[dict[str, str]]:
        """The values of all parameters of the first trials."""

    @abstractmethod
    def suggested(self, trial: optuna.Trial) -> str:
        """The text for the values that Optuna suggests; raises SpecError."""

    @abstractmethod
    def counted(self, text: str) -> Row:
        """The counts of a replay; raises SpecError, also if the program rules the text out."""

    @abstractmethod
    def capacity(self, text: str, *, exactly: bool) -> int | None:
        """Bytes of a device that is enough: the smallest, or one within 0.5 % of too small."""

    @abstractmethod
    def shorter(self, trial: Trial) -> list[str]:
        """The texts without one of the settings that the search added."""

    def made(self, text: str, capacity: int | None, counted: Row) -> Trial:
        """The trial of a text."""
        seconds, failures = counted["device_seconds_per_event"], counted["failures"]
        return Trial(text, capacity, seconds, failures, estimate=per_event(counted))

    def run(self, seed: int) -> bool:
        """Search until the budget is used, and settle; whether KeyboardInterrupt ended it early.

        A tree of Parzen estimators for both goals at once (Bergstra et al., NeurIPS 2011;
        multi-objective after Ozaki et al., GECCO 2020; Optuna's TPESampler). An interrupt before
        the first trial is raised.
        """
        study = _study(seed)
        for values in self.first():
            study.enqueue_trial(values)
        interrupted = False
        try:
            for text in self._always:
                self.measure(text)
            study.optimize(
                self._objective, n_trials=20 * self._budget, callbacks=[self._stop_when_done]
            )
        except KeyboardInterrupt:
            if not self.trials:
                raise
            interrupted = True
        self._settle()
        return interrupted

    def measure(self, text: str, *, exactly: bool = False) -> Trial:
        """Try a text unless already tried; raises SpecError as `counted` does."""
        if text not in self.trials or (exactly and text not in self.sure):
            counted = self.counted(text)
            if text not in self.trials:
                self._begin(text)
                self._idle = 0
            self.trials[text] = self.made(text, self.capacity(text, exactly=exactly), counted)
            if exactly:
                self.sure.add(text)
        return self.trials[text]

    def _settle(self) -> None:
        """Find exact capacities of the front, `always` and the best, and shorten the best."""
        rough = front(self.trials.values())
        for text in self._always:
            if text in self.trials:
                self.measure(text, exactly=True)
        for trial in rough:
            self.measure(trial.spec, exactly=True)
        while True:
            chosen = best(trial for trial in self.trials.values() if trial.spec in self.sure)
            tried = len(self.sure)
            for shorter in self.shorter(chosen) if chosen else []:
                self.measure(shorter, exactly=True)
            if len(self.sure) == tried:
                return

    def _objective(self, trial: optuna.Trial) -> tuple[float, float]:
        """Bytes of capacity and device seconds of what Optuna suggests."""
        self._idle += 1
        try:
            measured = self.measure(self.suggested(trial))
        except SpecError as error:
            raise optuna.TrialPruned(str(error)) from error
        if not measured.serves or measured.capacity is None:
            raise optuna.TrialPruned(f"{measured.failures} requests failed")
        return measured.capacity, measured.device_seconds

    def _stop_when_done(self, study: optuna.Study, _: Any) -> None:
        """End when the budget is used, or when nothing new has been found for a long time."""
        if len(self.trials) >= self._budget or self._idle > self._budget:
            study.stop()


def _study(seed: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # a warning has the interrupt's traceback
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = TPESampler(seed=seed, multivariate=True, n_startup_trials=20)
    return optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
