# SPDX-License-Identifier: Apache-2.0
"""The best setting and allocator for a trace on a device.

Every command and report takes the answer from `best`, which decides what is tried; the rule that
chooses is `reports.advice.recommending.advise`. Nothing is timed, so the answer is always the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import pandas as pd

from allocbench import allocators
from allocbench.allocators.spec import parse
from allocbench.base.spec import options_of
from allocbench.questions import BUDGET, ORDERS
from allocbench.questions.growth import growing_reserve
from allocbench.questions.hazards import breaks
from allocbench.questions.repetitions import all_steps
from allocbench.questions.tune import DEVICE_TIME, EXPANDABLE, Tuned, tune
from allocbench.replays.experiment import results, runs_at_once
from allocbench.replays.recorded_settings import in_force, with_conf
from allocbench.replays.runner import Row, Runner
from allocbench.reports.advice.choosing import KEEP, ROOM, WEIGHTS, Weights
from allocbench.reports.advice.confidence import OtherOrders
from allocbench.reports.advice.recommending import DEFAULT, GIVEN, RECORDED, Advice, advise
from allocbench.workloads import Trace
from allocbench.workloads.step_orders import kinds_of_steps

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
    "context",
    "peak_reserved",
    *DEVICE_TIME,
    "failed_orders",
    "coverage",
)
_KINDS = {"min_capacity": "Int64", "peak_reserved": "Int64", "failed_orders": "Int64"}


@dataclass(frozen=True)
class Best:
    """What to use, and the results that the advice is based on.

    rows: one for each candidate, in the order in which they were tried; columns of
    `reports.rows`, and failed_orders: number of traces with the steps in another order on which
    a request failed, null if that was not tried. orders: these traces. excluded: by spec,
    why the program rules it out. tuned: the search for settings, None where none was needed.
    runs: the same results as `rows`, with all columns of `Runner.counted`.
    """

    advice: Advice
    rows: pd.DataFrame
    orders: OtherOrders
    excluded: Mapping[str, str]
    tuned: Tuned | None
    runs: Sequence[Row]

    @property
    def setting(self) -> str | None:
        """The best setting of PyTorch's own allocator, as a spec; None if none fits."""
        return self.advice.setting

    @property
    def keeps_setting(self) -> bool:
        """Whether the best setting is the one that the program has."""
        return bool(self.setting == self.rows["allocator"].iloc[0])

    @property
    def columns(self) -> dict[str, str | None]:
        """The columns of `reports.rows` with which rows keep the advice."""
        return self.advice.columns | {"orders_advice": self.other_orders(self.advice.chosen)}

    def other_orders(self, spec: str | None) -> str | None:
        """Whether a choice completes the other orders of the steps; None if nothing is chosen."""
        if spec is None:
            return None
        given = self.rows["allocator"].iloc[0]
        return self.orders.sentence(self._failed(spec), self.advice.now if spec == given else spec)

    def warning(self, setting: str) -> str | None:
        """That a setting does not complete every other order of the steps, if it was tried."""
        failed = self._failed(setting)
        return self.orders.sentence(failed, "this setting") if failed else None

    def _failed(self, spec: str) -> int | None:
        (failed,) = self.rows.loc[self.rows["allocator"] == spec, "failed_orders"]
        return None if pd.isna(failed) else int(failed)

    @property
    def known(self) -> dict[str, Row]:
        """What `experiment.run` need not find again, by spec: of strategies and the best setting.

        Those of the other settings that were tried are left out.
        """
        kept = (self.setting, with_conf(EXPANDABLE))
        rows = {row["allocator"]: row for row in self.runs}
        return {spec: row for spec, row in rows.items() if spec in kept or not options_of(spec)}


def best(
    runner: Runner,
    *,
    given: str = KEEP,
    label: str = "",
    weights: Weights = WEIGHTS,
    orders: int = ORDERS,
    budget: int = BUDGET,
    seed: int = 0,
    tuned: Tuned | None = None,
    others: bool = True,
    begin: Callable[[str], None] = lambda what: None,
) -> Best:
    """The best setting, allocator, and the better of the two.

    Candidates are what the program has now, PyTorch's defaults, expandable segments and all
    strategies that can work on the device. Where `given` does not fit with room, fails when the
    steps come in another order, or reserves more in each step than the load grows, settings of
    caching are searched as well, unless no allocator can serve the load. Without `others`,
    strategies are left out where a setting fits with room, because they do not change the choice.

    given: the spec that the program has now; "caching" has the settings that the trace was recorded
    with. label: the name of the device in sentences. orders: number of traces with shuffled steps
    to try, if there are others, from `seed` on. budget: number of settings of caching to try, 0 for
    none. tuned: the result of that search, if it was made. begin: called with what is tried next,
    about `stages` times. Raises SpecError.
    """
    trials = _Trials(runner, runner.other_orders(orders, seed))
    steps = all_steps(runner.trace)

    @cache
    def grows(spec: str) -> bool:
        """Whether what a spec reserves grows without need, so that it fits only at first."""
        return growing_reserve(runner.trace, spec, runner.device, steps) is not None

    begin(with_conf(given))
    trials.add([given])
    roomy = trials.leaves_room(given) and not grows(given)
    specs = [spec for spec in (KEEP, EXPANDABLE) if spec != given]
    if not roomy and budget and runner.trace.max_load <= runner.capacity:
        tuned = tuned or tune(runner, KEEP, budget=budget, orders=orders, seed=seed, begin=begin)
        if tuned.interrupted:
            raise KeyboardInterrupt
        specs += [spec for spec in sorted(tuned.sure) if spec not in (given, *specs)]
    excluded = {spec: reason for spec in specs if (reason := breaks(spec, runner.trace))}
    trials.add([spec for spec in specs if spec not in excluded], shaken=not roomy)
    shaky = {with_conf(given)} if grows(given) else set()
    now = called(given, runner.trace)

    def chosen() -> Advice:
        """The choice among the rows so far; what grows without need becomes shaky."""
        while True:
            rows = trials.frame
            shaky.update(rows.loc[rows["failed_orders"].fillna(0) > 0, "allocator"])
            advice = advise(
                rows,
                device=label,
                given=with_conf(given),
                shaky=shaky,
                weights=weights,
                now=now,
                held=runner.trace.coverage.held,
            )
            named = {advice.setting, advice.chosen} - shaky
            growing = {spec for spec in named if spec and grows(spec)}
            if not growing:
                return advice
            shaky.update(growing)

    advice = chosen()
    setting = advice.setting
    if others or setting is None or setting in shaky or not trials.leaves_room(setting):
        begin("allocators")
        names = allocators.names(allocators.make_device(runner.device))
        candidates = [spec for spec in names if allocators.info(spec).candidate]
        strategies = [spec for spec in candidates if spec not in (KEEP, given)]
        excluded |= {spec: reason for spec in strategies if (reason := breaks(spec, runner.trace))}
        trials.add([spec for spec in strategies if spec not in excluded], shaken=not roomy)
        advice = chosen()
    ruled_out = {with_conf(spec): reason for spec, reason in excluded.items()}
    searched = None if roomy else tuned
    tried = orders_tried(runner, orders, seed)
    return Best(advice, trials.frame, tried, ruled_out, searched, trials.rows)


def orders_tried(runner: Runner, orders: int = ORDERS, seed: int = 0) -> OtherOrders:
    """The traces that `best` and `tune` try with the steps in another order."""
    trace, tried = runner.trace, runner.other_orders(orders, seed)
    return OtherOrders(len(tried), orders, trace.steps, kinds_of_steps(trace))


def called(given: str, trace: Trace) -> str:
    """What sentences call the spec that a program has now: a default, recorded or given settings.

    Raises SpecError.
    """
    if in_force(given, trace, version=False) != given:
        return RECORDED
    return GIVEN if parse(given).layers[-1].options.keys() - {"version"} else DEFAULT


def stages(budget: int) -> int:
    """How often `best` calls `begin` where it searches settings, about."""
    return budget + 2


def of_settings(tuned: Tuned, runner: Runner, label: str = "") -> Best | None:
    """What `best` says of a search among all settings of caching; None for another search.

    An interrupted search is another one.
    """
    if tuned.default.spec != KEEP or tuned.interrupted:
        return None
    return best(runner, label=label, tuned=tuned)


def to_use(tuned: Tuned, found: Best | None) -> str | None:
    """The spec to use after a search, None if none fits.

    Without `found`, which is that of `of_settings`, it is what needs the least.
    """
    if found is not None:
        return found.setting
    return with_conf(tuned.least.spec) if tuned.least else None


class _Trials:
    """The rows of the candidates so far. orders: runners of the trace with its steps shuffled."""

    def __init__(self, runner: Runner, orders: Sequence[Runner]) -> None:
        self.rows: list[Row] = []
        self.orders = orders
        self._runner = runner
        self._at_once = runs_at_once(runner.simulated)

    def add(self, specs: Sequence[str], *, shaken: bool = True) -> None:
        """Run specs. shaken: whether to try the other orders of the steps, too."""
        calls = [partial(self._row, spec, shaken) for spec in specs]
        with results(calls, at_once=self._at_once) as finished:
            self.rows += finished

    @property
    def frame(self) -> pd.DataFrame:
        """The rows with the columns that `Best` has."""
        return pd.DataFrame(self.rows, columns=list(COLUMNS)).astype(_KINDS)

    def leaves_room(self, spec: str) -> bool:
        """Whether a spec that was added fits with ROOM, in all orders."""
        (row,) = [row for row in self.rows if row["allocator"] == with_conf(spec)]
        need, capacity = row["min_capacity"], row["capacity"]
        fits = not row["failures"] and not row["failed_orders"] and need is not None
        return fits and need <= (1 - ROOM) * capacity

    def _row(self, spec: str, shaken: bool, proceed: Callable[[], None]) -> Row:
        proceed()
        run = self._runner
        row = run.counted(spec) | run.enough(spec)
        failed = None
        if shaken:
            failed = sum(not order.completes(spec) for order in self.orders)
        return row | {
            "workload": run.workload,
            "allocator": with_conf(spec),
            "device": run.device,
            "coverage": run.trace.coverage.sentence or None,
            "failed_orders": failed,
        }
