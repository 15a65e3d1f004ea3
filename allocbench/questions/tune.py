# SPDX-License-Identifier: Apache-2.0
"""The settings of an allocator that suit a trace: the least capacity, then the least time.

The capacities are those that `fit` finds: both take them from a `Runner`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from allocbench.allocators import spec
from allocbench.questions import BUDGET, ORDERS
from allocbench.questions.search import Search, Trial, best, front, helps, rivals
from allocbench.questions.switching import how
from allocbench.replays.recorded_settings import in_force, with_conf
from allocbench.replays.runner import Runner

EXPANDABLE = "caching:expandable_segments=true"
DEVICE_TIME = (
    "device_seconds",
    "device_seconds_low",
    "device_seconds_high",
    "device_seconds_per_event",
    "device_seconds_source",
    "device_assumptions",
)
"""Columns of `reports.results` about the time of device calls."""


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
    def front(self) -> list[Trial]:
        """The Pareto front of the trials that served every request, smallest capacity first."""
        return front(trial for trial in self.trials if trial.spec in self.sure)

    @property
    def least(self) -> Trial | None:
        """The trial that needs the least; the default if it is as good; None if all failed."""
        found = best(trial for trial in self.trials if trial.spec in self.sure)
        return self.default if found and not helps(found, self.default) else found

    @property
    def rivals(self) -> list[Trial]:
        """The trials that could be used instead with other costs of device calls; see `rivals`."""
        if self.least is None or not self.helps:
            return []
        return rivals((trial for trial in self.trials if trial.spec in self.sure), self.least)

    @property
    def helps(self) -> bool:
        """Whether the least is over 1 % less than the default, or completes where that fails."""
        return self.least is not None and self.least != self.default


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
