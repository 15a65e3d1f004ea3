# SPDX-License-Identifier: Apache-2.0
"""The settings of an allocator that suit a trace: the least capacity, then the least time.

The capacities are those that `fit` finds: both take them from a `Runner`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias

import pandas as pd

from allocbench.allocators import SpecError, spec
from allocbench.questions import BUDGET, ORDERS, search_space
from allocbench.questions.hazards import breaks
from allocbench.questions.switching import how
from allocbench.replays.recorded_settings import in_force, with_conf
from allocbench.replays.runner import Runner
from allocbench.reports.advice.choosing import PROGRAM_SECONDS
from allocbench.reports.rows.assumptions import Estimate, per_event

EXPANDABLE = "caching:expandable_segments=true"
DEVICE_TIME = (
    "device_seconds",
    "device_seconds_low",
    "device_seconds_high",
    "device_seconds_per_event",
    "device_seconds_source",
    "device_assumptions",
)
"""Columns of `reports.rows` about the time of device calls."""
Values: TypeAlias = Mapping[str, str]
"""Parameter -> value."""

SAME = 1.01
"""Capacities within this factor count as equal: such a difference does not matter."""
SAME_TIME = 1.05
"""Running times within this factor count as equal: they are estimates."""


@dataclass(frozen=True)
class Trial:
    """One setting that was tried.

    capacity: bytes on which it completes: the smallest if the search is sure of it; within 0.5 % of
    one that is too small if no other trial dominated it; otherwise any. None if no device is
    enough, or if it failed on the device and was not pursued. device_seconds: per event, estimated
    on a simulated device. failures: requests that failed on the device. estimate: the device
    seconds with the costs that they assume; without it, they are exact. failed_orders: number of
    other orders of the steps in which a request fails, as far as they were tried.
    """

    spec: str
    capacity: int | None
    device_seconds: float
    failures: int
    estimate: Estimate | None = field(default=None, compare=False, kw_only=True)
    failed_orders: int = field(default=0, kw_only=True)

    @property
    def serves(self) -> bool:
        """Whether it completes the trace on the device, in every order."""
        return not self.failures and not self.failed_orders and self.capacity is not None

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


def front(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that no other dominates; among equal ones, the one with the fewest settings.

    Least capacity first.
    """
    served = (trial for trial in trials if trial.serves)
    kept: list[Trial] = []
    for trial in sorted(served, key=lambda one: (one.capacity, one.device_seconds, one.settings)):
        if not kept or trial.device_seconds < kept[-1].device_seconds:
            kept.append(trial)
    return kept


class Search:
    """The settings of one allocator that were tried, by spec, and the search for better ones.

    trials: so far. sure: the specs whose capacity is exact. front: the trials that no other
    dominates, as `front` orders them.
    """

    def __init__(
        self,
        runner: Runner,
        orders: Sequence[Runner],
        allocator: str,
        budget: int,
        begin: Callable[[str], None],
    ) -> None:
        """Raises SpecError for an allocator with wrappers.

        orders: runners of the trace with its steps in other orders.
        """
        self.trials: dict[str, Trial] = {}
        self.sure: set[str] = set()
        self.front: list[Trial] = []
        parsed = spec.parse(allocator)
        if parsed.inner:
            raise SpecError(f"'{allocator}': only a strategy without wrappers can be tuned")
        self._runner, self._orders, self._default = runner, orders, allocator
        self._name, self._given = parsed.name, parsed.options
        self._budget, self._begin = budget, begin
        self._values: dict[str, Values] = {}  # of the specs that were tried or refused
        self._parameters = {  # the values of each, the default first
            name: tried
            for name, tried in search_space.values(parsed.name).items()
            if name not in parsed.options
        }
        self._always = [allocator]  # tried first, and exactly
        if "expandable_segments" in self._parameters:
            expandable = self._text({"expandable_segments": "true"})
            if not breaks(expandable, runner.trace):
                self._always.append(expandable)

    def _text(self, values: Values) -> str:
        return search_space.written(self._name, {**self._given, **values})

    def _shorter(self, trial: Trial) -> list[str]:
        """The specs without one of the settings that the search added."""
        settings = spec.parse(trial.spec).options
        return [
            search_space.written(
                self._name, {key: value for key, value in settings.items() if key != name}
            )
            for name in self._parameters
            if name in settings
        ]

    def run(self) -> bool:
        """Search until the budget is used, and settle; whether KeyboardInterrupt ended it early.

        A local search for both goals at once (Paquete, Chiarandini and Stuetzle, Pareto local
        optimum sets, 2004): every change of one value first, then changes of the trials on the
        Pareto front, beginning with the values that needed the least alone. An interrupt before the
        first trial is raised.
        """
        interrupted = False
        try:
            for text in self._always:
                self.measure(text, exactly=True)
            singles = ((values, False) for values in self._singles())
            neighbors = ((values, True) for values in self._neighbors())
            for values, only_rivals in chain(singles, neighbors):
                if len(self.trials) >= self._budget:
                    break
                self._try(values, only_rivals)
        except KeyboardInterrupt:
            if not self.trials:
                raise
            interrupted = True
        self._settle()
        return interrupted

    def measure(self, text: str, *, exactly: bool = False, only_rivals: bool = False) -> Trial:
        """Try a spec unless already tried; raises SpecError if the program rules it out.

        exactly: whether to find the smallest capacity, also of a trial that fails requests.
        only_rivals: whether to pursue a capacity only if the trial needs at least 0.5 % less than
        those that take no more time. Other orders of the steps are tried only then in any case.
        """
        if text not in self.trials or (exactly and text not in self.sure):
            if text != self._default and (reason := breaks(text, self._runner.trace)):
                raise SpecError(f"{text}: {reason}")
            counted = self._runner.counted(text, stable=False)
            if text not in self.trials:
                self._begin(text)
            seconds, failures = counted["device_seconds_per_event"], counted["failures"]
            trial = Trial(text, None, seconds, failures, estimate=per_event(counted))
            capacity, rival = None, None
            if exactly:
                capacity = self._runner.min_capacity(text)
                self.sure.add(text)
            elif not trial.failures:
                quicker = (one for one in self.front if one.device_seconds <= trial.device_seconds)
                rival = min((one.capacity or 0 for one in quicker), default=None)
                capacity = self._runner.rough_capacity(text, rival if only_rivals else None)
            trial = replace(trial, capacity=capacity)
            if trial.serves and (rival is None or (capacity or 0) < rival):
                failed = sum(not one.completes(text) for one in self._orders)
                trial = replace(trial, failed_orders=failed)
                self.front = front([trial, *(one for one in self.front if one.spec != text)])
            self.trials[text] = trial
        return self.trials[text]

    def _settle(self) -> None:
        """Find exact capacities of the front, `always` and the best, and shorten the best."""
        for text in (*self._always, *(trial.spec for trial in self.front)):
            if text in self.trials:
                self.measure(text, exactly=True)
        while True:
            chosen = best(trial for trial in self.trials.values() if trial.spec in self.sure)
            tried = len(self.sure)
            for shorter in self._shorter(chosen) if chosen else []:
                self.measure(shorter, exactly=True)
            if len(self.sure) == tried:
                return

    @property
    def _plain(self) -> Values:
        return MappingProxyType({name: tried[0] for name, tried in self._parameters.items()})

    def _singles(self) -> Iterator[Values]:
        """The values to begin with, then every change of one; those of flags come first."""
        yield self._plain
        flags = sorted(self._parameters, key=lambda name: len(self._parameters[name]) != 2)
        for name in flags:
            for value in self._parameters[name][1:]:
                yield {**self._plain, name: value}

    def _neighbors(self) -> Iterator[Values]:
        """Change one value of a trial on the front at a time, until every change was tried.

        The best value of each parameter comes first, then the second best; each is given to the
        front as it is then, the least capacity first.
        """
        order = {name: self._ordered(name) for name in self._parameters}
        while True:
            members = [trial.spec for trial in self.front]
            changes = (
                {**self._values[member], name: values[rank]}
                for rank in range(max(map(len, order.values()), default=0))
                for member in members
                if member in self._values
                for name, values in order.items()
                if rank < len(values)
            )
            untried = (values for values in changes if self._text(values) not in self._values)
            if (values := next(untried, None)) is None:
                return
            yield values

    def _ordered(self, name: str) -> list[str]:
        """The values of a parameter, those that need the least alone first."""

        def alone(value: str) -> float:
            trial = self.trials.get(self._text({**self._plain, name: value}))
            return trial.capacity if trial and trial.serves and trial.capacity else float("inf")

        return sorted(self._parameters[name], key=alone)

    def _try(self, values: Values, only_rivals: bool) -> None:
        text = self._text(values)
        self._values[text] = values
        with suppress(SpecError):  # these values cannot be used, or not together
            self.measure(text, only_rivals=only_rivals)


@dataclass(frozen=True)
class Tuned:
    """The result of a search.

    default: the initial settings. trials: all trials, each spec once, the default first. sure:
    specs whose capacity is exact; the least is one of them. interrupted: whether the search was
    stopped before its budget was used.
    """

    default: Trial
    trials: list[Trial]
    sure: frozenset[str]
    interrupted: bool

    @property
    def _exact(self) -> list[Trial]:
        """The trials that served every request, and whose capacity is exact."""
        return [trial for trial in self.trials if trial.spec in self.sure and trial.serves]

    @property
    def front(self) -> list[Trial]:
        """The Pareto front of the trials that served every request, smallest capacity first."""
        return front(self._exact)

    @property
    def least(self) -> Trial | None:
        """The trial that needs the least; the default if it is as good; None if all failed.

        It is better if it needs over 1 % less than the default, or completes where that fails.
        """
        found, default = best(self._exact), self.default
        if found and default.serves and SAME * (found.capacity or 0) >= (default.capacity or 0):
            return default
        return found

    @property
    def helps(self) -> bool:
        """Whether another trial than the default is the least."""
        return self.least is not None and self.least != self.default

    @property
    def rivals(self) -> list[Trial]:
        """The trials that could be used in place of the least with other costs of device calls.

        They need at most 1 % more than the least capacity, and could be over 5 % quicker with costs
        within their assumed ranges. Least capacity first.
        """
        chosen = self.least
        if chosen is None or not self.helps:
            return []
        most = SAME * min(trial.capacity or 0 for trial in self._exact)
        near = [trial for trial in self._exact if (trial.capacity or 0) <= most]
        return sorted(
            (trial for trial in near if (trial.running * SAME_TIME).may_be_less(chosen.running)),
            key=lambda trial: (trial.capacity or 0, trial.settings),
        )


def tune(
    run: Runner,
    allocator: str,
    *,
    budget: int = BUDGET,
    orders: int = ORDERS,
    seed: int = 0,
    begin: Callable[[str], None] = lambda what: None,
) -> Tuned:
    """Search the settings of an allocator for the least capacity and the least device time.

    The default, for `caching` expandable segments, and every single change of a setting come first,
    as far as the budget allows; the rest of the budget is for combinations, as `Search.run` finds
    them. The search itself asks for capacities within 0.5 %; those of the default, of the Pareto
    front and of the least are then found exactly, and the least is tried without each of its
    settings. Both goals are counted, not timed, so that the result is always the same. Settings
    that cannot be created or were tried before do not count towards the budget. KeyboardInterrupt
    ends the search and keeps what was found.

    orders: number of traces with the steps in another order, from `seed` on, that a setting has to
    complete as well. begin: called with the spec of each trial. Raises SpecError if `allocator` is
    invalid or has wrappers.
    """
    search = Search(run, run.other_orders(orders, seed), allocator, budget, begin)
    interrupted = search.run()
    trials = list(search.trials.values())
    return Tuned(trials[0], trials, frozenset(search.sure), interrupted)


def frame(tuned: Tuned, runner: Runner, best: str | None) -> pd.DataFrame:
    """The trials as rows: the best first, then the Pareto front, then by capacity.

    best: the spec to use, as `with_conf` writes it, or None.

    Bytes of min_capacity, null for trials whose capacity was not found exactly, and of
    peak_reserved; card: the smallest common one; device_seconds of the whole trace and per event
    (estimated on a simulated device), host seconds_per_event_cold, measured here only for the front
    and the default, and null for `caching`, because PyTorch's own allocator, which has these
    settings, takes other times; failures; default, best, least (see `Tuned.least`), pareto: flags;
    how: how to use it; coverage: what the trace lacks of its program, null if nothing.
    """
    least = tuned.least or tuned.default
    members = {trial.spec for trial in (*tuned.front, tuned.default, least)}
    own = spec.parse(tuned.default.spec).layers[-1].name != "caching"
    rows = []
    for trial in tuned.trials:
        counted, sure = runner.counted(trial.spec, stable=False), trial.spec in tuned.sure
        shown = trial.serves and (trial.spec in members or with_conf(trial.spec) == best)
        rows.append(
            {
                "allocator": with_conf(trial.spec),
                "min_capacity": trial.capacity if sure else None,
                "card": runner.card(trial.spec) if shown else None,
                "peak_reserved": counted["peak_reserved"],
                **{name: counted.get(name) for name in DEVICE_TIME},
                "device_seconds_per_event": trial.device_seconds,
                "seconds_per_event_cold": runner.seconds(trial.spec).get("seconds_per_event_cold")
                if shown and own
                else None,
                "failures": trial.failures,
                "default": trial == tuned.default,
                "best": with_conf(trial.spec) == best,
                "least": trial == tuned.least,
                "pareto": trial in tuned.front,
                "how": how(in_force(trial.spec, runner.trace, version=False)),
                "coverage": runner.trace.coverage.sentence or None,
                "order": trial.capacity,
            }
        )
    ordered = pd.DataFrame(rows).sort_values(
        ["best", "pareto", "order", "device_seconds"],
        ascending=[False, False, True, True],
        kind="stable",
        ignore_index=True,
    )
    return ordered.drop(columns="order").astype({"min_capacity": "Int64"})
