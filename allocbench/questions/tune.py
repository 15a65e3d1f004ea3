# SPDX-License-Identifier: Apache-2.0
"""The settings of an allocator that suit a trace: least reserved memory, least time (Optuna)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from allocbench import allocators
from allocbench.allocators import SpecError
from allocbench.base.extra import needs_extra
from allocbench.questions import space
from allocbench.questions.switching import how, with_conf
from allocbench.workloads import Trace

with needs_extra("tune"):
    import optuna
    from optuna.samplers import TPESampler

BUDGET = 200
COLUMNS = (
    "allocator",
    "peak_reserved",
    "device_seconds_per_event",
    "seconds_per_event",
    "failures",
    "default",
    "pareto",
    "how",
)
_PASSES = 3
_SAME = 1.001
"""Values closer than this do not differ: what is gained would not be noticed."""


@dataclass(frozen=True)
class Trial:
    """One setting that was tried: its spec, bytes, device seconds (estimated where simulated)."""

    spec: str
    peak_reserved: int
    device_seconds: float
    failures: int

    def dominates(self, other: Trial) -> bool:
        """Whether it is at least as good in both ways and better in one."""
        mine = self.peak_reserved, self.device_seconds
        theirs = other.peak_reserved, other.device_seconds
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


@dataclass(frozen=True)
class Tuned:
    """What a search has found.

    default: the settings that it began with. trials: all that were made, each spec once, the
    default first. interrupted: whether the search was stopped before its budget was used.
    """

    default: Trial
    trials: list[Trial]
    interrupted: bool

    @property
    def front(self) -> list[Trial]:
        """The Pareto front of those that served every request, least memory first."""
        return front(self.trials)

    @property
    def best(self) -> Trial | None:
        """The front's end with least memory, None when every trial failed requests."""
        return next(iter(self.front), None)

    @property
    def helps(self) -> bool:
        """Whether less memory is reserved than by default, or requests no longer fail."""
        best = self.best
        if best is None:
            return False
        return bool(self.default.failures) or (
            best.peak_reserved * _SAME < self.default.peak_reserved
        )


def front(trials: list[Trial]) -> list[Trial]:
    """Those that no other dominates, of equal ones the one with fewest settings.

    Least memory first.
    """
    served = [trial for trial in trials if not trial.failures]
    served.sort(key=lambda trial: trial.spec.count("="))
    kept: dict[tuple[int, float], Trial] = {}
    for trial in served:
        if not any(other.dominates(trial) for other in served):
            kept.setdefault((trial.peak_reserved, trial.device_seconds), trial)
    return sorted(kept.values(), key=lambda trial: trial.peak_reserved)


def tune(
    trace: Trace,
    allocator: str,
    device: str,
    *,
    budget: int = BUDGET,
    seed: int = 0,
    begin: Callable[[str], None] = lambda what: None,
) -> Tuned:
    """Search the settings of an allocator for least peak reserved bytes and least device time.

    The default and every single change of a setting come first, as far as the budget goes; what
    is left goes to combinations, by a tree of Parzen estimators for both goals at once (Bergstra
    et al., NeurIPS 2011; multi-objective after Ozaki et al., GECCO 2020; Optuna's TPESampler). At
    last the best are tried without the settings that make no difference. Both goals are counted,
    not timed, so that equal seeds give equal results: device seconds are the device's own, on a
    simulated one an estimate. A setting that cannot be made is no trial of the budget, and neither
    is one that was tried before. KeyboardInterrupt ends the search and keeps what was found.

    begin: called with the spec of each trial. Raises SpecError when `allocator` is wrong or is
    not a strategy alone.
    """
    search = _Search(trace, allocator, device, budget, begin)
    study = _study(seed)
    for settings in search.first():
        study.enqueue_trial(settings)
    interrupted = False
    try:
        search.measure(allocator)
        study.optimize(search.objective, n_trials=20 * budget, callbacks=[search.stop_when_done])
    except KeyboardInterrupt:
        if not search.trials:
            raise
        interrupted = True
    else:
        for trial in front(list(search.trials.values())):
            search.simplify(trial)
    trials = list(search.trials.values())
    return Tuned(trials[0], trials, interrupted)


def frame(tuned: Tuned, trace: Trace, device: str) -> pd.DataFrame:
    """The trials as rows, the Pareto front first, then by memory.

    Bytes of peak_reserved; device_seconds_per_event (estimated on a simulated device) and host
    seconds_per_event, which are measured here, for the front and the default alone; failures;
    default, pareto: whether it is that; how: what installs it.
    """
    members = {trial.spec for trial in tuned.front}
    rows = [
        {
            "allocator": with_conf(trial.spec),
            "peak_reserved": trial.peak_reserved,
            "device_seconds_per_event": trial.device_seconds / max(1, len(trace)),
            "seconds_per_event": _host_seconds(trace, trial.spec, device)
            if trial.spec in members or trial == tuned.default
            else None,
            "failures": trial.failures,
            "default": trial == tuned.default,
            "pareto": trial.spec in members,
            "how": how(trial.spec),
        }
        for trial in tuned.trials
    ]
    made = pd.DataFrame(rows, columns=list(COLUMNS))
    return made.sort_values(
        ["pareto", "peak_reserved", "device_seconds_per_event"],
        ascending=[False, True, True],
        kind="stable",
        ignore_index=True,
    )


class _Search:
    """The trials so far, and the objective that makes more of them."""

    def __init__(
        self, trace: Trace, allocator: str, device: str, budget: int, begin: Callable[[str], None]
    ) -> None:
        parsed = allocators.spec.parse(allocator)
        if parsed.inner:
            raise SpecError(f"'{allocator}': what is tuned is a strategy, without wrappers")
        self.name = parsed.name
        self.given = parsed.options
        self.trials: dict[str, Trial] = {}
        self._values = {
            name: tried
            for name, tried in space.values(parsed.name).items()
            if name not in parsed.options
        }
        self._trace, self._device = trace, device
        self._budget, self._begin = budget, begin
        self._idle = 0

    def first(self) -> list[dict[str, str]]:
        """The default, then what differs from it in one setting; flags first."""
        plain = dict.fromkeys(self._values, space.DEFAULT)
        changes = [(name, value) for name, tried in self._values.items() for value in tried[1:]]
        flags = {name for name, tried in self._values.items() if len(tried) == 2}
        changes.sort(key=lambda change: change[0] not in flags)
        return [plain, *({**plain, name: value} for name, value in changes)]

    def measure(self, text: str) -> Trial:
        """Replay through a spec, or remember; raises SpecError."""
        if text not in self.trials:
            made = allocators.make(text, allocators.make_device(self._device))
            self._begin(text)
            result = allocators.replay(self._trace, made)
            stats = result.stats
            self.trials[text] = Trial(
                text, stats.peak_reserved, result.device.seconds, stats.failures
            )
            self._idle = 0
        return self.trials[text]

    def simplify(self, trial: Trial) -> None:
        """Try what is left without each setting that makes no difference, one after the other."""
        parsed = allocators.spec.parse(trial.spec)
        settings = dict(parsed.options)
        for name in self._values:
            less = {key: value for key, value in settings.items() if key != name}
            if name in settings:
                found = self.measure(space.written(self.name, less))
                if not found.failures and not trial.dominates(found):
                    settings, trial = less, found

    def objective(self, trial: optuna.Trial) -> tuple[float, float]:
        """Peak reserved bytes and device seconds of the settings that Optuna suggests."""
        self._idle += 1
        settings = {
            name: str(trial.suggest_categorical(name, tried))
            for name, tried in self._values.items()
        }
        try:
            made = self.measure(space.written(self.name, self.given | settings))
        except SpecError as error:
            raise optuna.TrialPruned(str(error)) from error
        if made.failures:
            raise optuna.TrialPruned(f"{made.failures} requests failed")
        return made.peak_reserved, made.device_seconds

    def stop_when_done(self, study: optuna.Study, _: Any) -> None:
        """End when the budget is used, or when nothing new has come for long."""
        if len(self.trials) >= self._budget or self._idle > self._budget:
            study.stop()


def _study(seed: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = TPESampler(seed=seed, multivariate=True, n_startup_trials=20)
    return optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)


def _host_seconds(trace: Trace, allocator: str, device: str) -> float:
    made = [allocators.make(allocator, allocators.make_device(device)) for _ in range(_PASSES)]
    return min(allocators.time_pass(trace, one) for one in made)
