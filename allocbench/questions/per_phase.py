# SPDX-License-Identifier: Apache-2.0
"""Settings of PyTorch's allocator for each phase of a program, and the calls that change them.

The calls are replayed as PyTorch executes them: `Change` in allocators/replays.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from allocbench import allocators
from allocbench.allocators import Change, SpecError, spec
from allocbench.errors import UsageError, errors_naming
from allocbench.questions import BUDGET
from allocbench.questions import tune as tuning
from allocbench.questions.hazards import breaks
from allocbench.questions.search import Search, Trial, Values, best
from allocbench.replays.recorded_settings import conf, in_force, rules_of, with_conf
from allocbench.replays.runner import Row, Runner, fresh
from allocbench.workloads import ALLOC, FREE, Trace
from allocbench.workloads.pytorch_settings import split_conf
from allocbench.workloads.trace import MARK
from allocbench.workloads.vocabulary import CAPTURE_BEGIN, CAPTURE_END

WARM_UP_SHARE = 0.25
"""Share of the steps within which a step has to repeat for the warm-up to end there."""
FORM = "NAME=EVENT or NAME=stepN, separated by commas, as in load=0,steady=step3"


@dataclass(frozen=True)
class Phase:
    """The events from `begin` (inclusive) to `end` (exclusive), numbered from 0."""

    name: str
    begin: int
    end: int


def phases(trace: Trace) -> list[Phase]:
    """The phases of a program, in order; those without an alloc or a free are left out.

    load: the events before the first step, or before the first capture of a graph.
    warm-up: from the first step on, until a step requests the same sizes, in any order, as the one
        after it, if that is within the first quarter of the steps (WARM_UP_SHARE); otherwise the
        first step of several. It ends where the capture begins at the latest, and lasts until then
        if there is one.
    capture: from the beginning of the first capture to the end of the last one.
    steady: the rest.

    A trace without steps and captures has no phases: the list is empty.
    """
    steps, captures = _steps(trace), np.flatnonzero(trace.op == CAPTURE_BEGIN)
    if not len(steps) and not len(captures):
        return []
    begins: list[tuple[str, int]] = [("load", 0)]
    if len(captures):
        first = int(captures[0])
        if len(steps) and steps[0] < first:
            begins.append(("warm-up", steps[0]))
        begins.append(("capture", first))
        ends = np.flatnonzero(trace.op == CAPTURE_END)
        if len(ends):
            begins.append(("steady", int(ends[-1]) + 1))
    else:
        warm = _warm_up(trace, steps)
        if warm:
            begins.append(("warm-up", steps[0]))
        begins.append(("steady", steps[warm]))
    return _used(trace, begins)


def given(text: str, trace: Trace) -> list[Phase]:
    """The phases that a user states as in FORM; steps are numbered from 1.

    Raises UsageError for another form, a repeated name, a first phase that does not begin at event
    0, borders that do not ascend, and events, steps or phases that the trace does not have.
    """
    steps = _steps(trace)
    begins: list[tuple[str, int]] = []
    for item in text.split(","):
        match = re.fullmatch(r"\s*([\w-]+)=(step)?(\d+)\s*", item)
        if match is None:
            raise UsageError(f"--phases: '{item}' is not {FORM}")
        name, number = match[1], int(match[3])
        if name in dict(begins):
            raise UsageError(f"--phases: '{name}' is given twice")
        if match[2]:
            if not 1 <= number <= len(steps):
                raise UsageError(
                    f"--phases: '{item}': there is no step {number}; the trace has {len(steps)}"
                )
            number = steps[number - 1]
        if number >= len(trace):
            raise UsageError(
                f"--phases: '{item}': there is no event {number:,}; the trace has {len(trace):,}"
            )
        if not begins and number != 0:
            raise UsageError(f"--phases: the first phase must begin at event 0, not {number:,}")
        if begins and number <= begins[-1][1]:
            raise UsageError(
                f"--phases: '{name}' begins at event {number:,}, not after"
                f" '{begins[-1][0]}' at event {begins[-1][1]:,}"
            )
        begins.append((name, number))
    found = _used(trace, begins)
    empty = sorted({name for name, _ in begins} - {phase.name for phase in found})
    if empty:
        raise UsageError(f"--phases: '{empty[0]}' has no alloc and no free")
    return found


def _steps(trace: Trace) -> list[int]:
    found = np.flatnonzero((trace.op == MARK) & (trace.block == trace.step_label))
    return [int(event) for event in found]


def _warm_up(trace: Trace, steps: Sequence[int]) -> int:
    """How many steps the warm-up has."""
    sizes = [
        np.sort(trace.size[begin:end][trace.op[begin:end] == ALLOC])
        for begin, end in zip(steps, [*steps[1:], len(trace)], strict=True)
    ]
    latest = int(WARM_UP_SHARE * len(steps))
    for step in range(min(latest + 1, len(steps) - 1)):
        if np.array_equal(sizes[step], sizes[step + 1]):
            return step
    return min(1, len(steps) - 1)


def _used(trace: Trace, begins: Sequence[tuple[str, int]]) -> list[Phase]:
    """The phases with an alloc or a free; the events of the others belong to the one before.

    Those before the first one belong to it.
    """
    found: list[Phase] = []
    ends = [*(begin for _, begin in begins[1:]), len(trace)]
    for (name, begin), end in zip(begins, ends, strict=True):
        if np.any(trace.op[begin:end] <= FREE):
            found.append(Phase(name, begin if found else 0, end))
        elif found:
            found[-1] = Phase(found[-1].name, found[-1].begin, end)
    return found


CANDIDATES = 12
"""Settings that the search tries in each phase: the best of those tried for the whole program."""
DEFAULT, SINGLE, BY_PHASE = "default", "one setting", "by phase"
"""The arrangements in the rows of `frame`."""
COLUMNS = (
    "arrangement",
    "best",
    "phase",
    "begin",
    "events",
    "allocator",
    "calls",
    "max_load",
    "peak_reserved",
    "wasted",
    "min_capacity",
    "device_seconds_per_event",
    "device_seconds_per_event_low",
    "device_seconds_per_event_high",
    "failures",
    "coverage",
)


@dataclass(frozen=True)
class Choice:
    """The settings of a phase, as a spec, and whether the program calls empty_cache() before it."""

    spec: str
    empty_cache: bool = False


@dataclass(frozen=True)
class PhasedTrial(Trial):
    """A choice for each phase; `spec` is its text. changes: the calls before phases."""

    plan: tuple[Choice, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def settings(self) -> int:
        """How many settings it begins with, and calls that it makes."""
        calls = sum(change.empty_cache + (change.settings is not None) for change in self.changes)
        return len(spec.parse(self.plan[0].spec).options) + calls


@dataclass(frozen=True)
class PerPhase:
    """The result of a search.

    phases: of the trace. single: the search for one setting of the whole program. trials: those of
    settings by phase, each plan once. sure: texts of trials whose capacity is exact; the best is
    one of them. interrupted: whether the search was stopped before its budget was used.
    """

    phases: tuple[Phase, ...]
    single: tuning.Tuned
    trials: tuple[PhasedTrial, ...]
    sure: frozenset[str]
    interrupted: bool

    @property
    def best(self) -> PhasedTrial | None:
        """The best plan that was found; None if all failed requests."""
        found = best(trial for trial in self.trials if trial.spec in self.sure)
        return found if isinstance(found, PhasedTrial) else None

    @property
    def helps(self) -> bool:
        """Whether the best plan changes settings on the way.

        The best single setting is one of the plans, and wins unless another needs over 1 % less
        memory or 5 % less time.
        """
        return self.best is not None and bool(self.best.changes)


def phases_of(allocator: str, trace: Trace, text: str | None) -> list[Phase]:
    """The phases that a user states, or those that the trace has.

    Raises UsageError if there are not at least two, and if the allocator has no settings that can
    change.
    """
    with errors_naming("--per-phase"):
        require_caching(allocator)
    found = phases(trace) if text is None else given(text, trace)
    if len(found) > 1:
        return found
    if text is not None:
        raise UsageError(f"--phases: '{text}' is a single phase; settings by phase need two")
    lacks = (
        f"the trace has a single phase, {found[0].name}"
        if found
        else "the trace has no steps and no captures, which would show its phases"
    )
    raise UsageError(f"--per-phase: {lacks}; --phases {FORM}, says where they begin")


def tune(
    trace: Trace,
    allocator: str,
    device: str,
    phases: Sequence[Phase],
    *,
    budget: int = BUDGET,
    begin: Callable[[str], None] = lambda what: None,
    runner: Runner | None = None,
) -> PerPhase:
    """Search the settings of `caching` for each phase, for the goals of `questions.tune`.

    First one setting is searched for the whole program. The best CANDIDATES of its trials are then
    combined: one of them for each phase, with or without a call of empty_cache() before it. The
    best plan is tried without each of its calls. Each search tries about `budget` settings. An
    interrupt keeps what was found.

    The other arguments are those of `questions.tune.tune`. Raises SpecError for an allocator other
    than `caching` without wrappers.
    """
    require_caching(allocator)
    runner = runner or Runner(trace, device)
    single = tuning.tune(trace, allocator, device, budget=budget, begin=begin, runner=runner)
    search = _PhaseSearch(runner, phases, _candidates(single, runner), budget, begin)
    try:
        interrupted = single.interrupted or search.run()
    except KeyboardInterrupt:  # before the first plan was tried; the single settings are kept
        interrupted = True
    trials = tuple(trial for trial in search.trials.values() if isinstance(trial, PhasedTrial))
    return PerPhase(tuple(phases), single, trials, frozenset(search.sure), interrupted)


def require_caching(allocator: str) -> None:
    """Raise SpecError unless a spec is `caching` without wrappers, whose settings can change."""
    parsed = spec.parse(allocator)
    if parsed.name != "caching" or parsed.inner:
        raise SpecError(
            f"'{allocator}' has no settings that can change while a program runs;"
            " only caching, without wrappers, can be tuned by phase"
        )


def changes(plan: Sequence[Choice], phases: Sequence[Phase], trace: Trace) -> tuple[Change, ...]:
    """The calls that a program makes before its phases, except for the first.

    A call names the settings of the phase, and the defaults of those that an earlier phase changed
    and PyTorch does not reset.
    """
    lasting = rules_of(plan[0].spec, trace).lasting
    now = _settings(plan[0].spec, trace)
    made = []
    for phase, choice in zip(phases[1:], plan[1:], strict=True):
        wanted = _settings(choice.spec, trace)
        for name, default in lasting.items():
            if default and now.get(name, default) != default:
                wanted.setdefault(name, default)
        same = lasting | now == lasting | wanted
        text = None if same else ",".join(f"{name}:{value}" for name, value in wanted.items())
        if choice.empty_cache or text is not None:
            made.append(Change(phase.begin, choice.empty_cache, text))
        if not same:
            now = {name: value for name, value in now.items() if name in lasting} | wanted
    return tuple(made)


def calls(change: Change) -> list[str]:
    """The lines of Python that make a change in a PyTorch program."""
    lines = ["torch.cuda.empty_cache()"] if change.empty_cache else []
    if change.settings is not None:
        lines.append(f'torch.cuda.memory._set_allocator_settings("{change.settings}")')
    return lines


def frame(found: PerPhase, runner: Runner) -> pd.DataFrame:
    """A row for each of the `arrangements` and each phase.

    best: the arrangement to use. begin: the first event. allocator: the spec in force. calls: lines
    of Python, made before the phase. max_load, peak_reserved, wasted: bytes within the phase;
    wasted is peak_reserved - max_load, null if requests failed. min_capacity (bytes, null if no
    device is enough), device_seconds_per_event (estimated on a simulated device), the ends of its
    range, and failures are of the whole trace. coverage: what it lacks of its program, or null.
    """
    load = runner.trace.load
    rows = []
    for name, trial in arrangements(found).items():
        plan = trial.plan or (Choice(trial.spec),) * len(found.phases)
        before = {change.event: change for change in trial.changes}
        peaks = _peaks(runner, trial, found.phases)
        for phase, choice, peak in zip(found.phases, plan, peaks, strict=True):
            change = before.get(phase.begin)
            most = int(load[phase.begin : phase.end].max())
            rows.append(
                {
                    "arrangement": name,
                    "best": trial.spec == _chosen(found).spec,
                    "phase": phase.name,
                    "begin": phase.begin,
                    "events": phase.end - phase.begin,
                    "allocator": with_conf(choice.spec),
                    "calls": "\n".join(calls(change)) if change else "",
                    "max_load": most,
                    "peak_reserved": peak,
                    "wasted": None if trial.failures else peak - most,
                    "min_capacity": trial.capacity,
                    "device_seconds_per_event": trial.device_seconds,
                    "device_seconds_per_event_low": trial.time.low,
                    "device_seconds_per_event_high": trial.time.high,
                    "failures": trial.failures,
                    "coverage": runner.trace.coverage.sentence or None,
                }
            )
    whole = {"wasted": "Int64", "min_capacity": "Int64"}
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(whole)


def arrangements(found: PerPhase) -> dict[str, PhasedTrial]:
    """The trials of DEFAULT, SINGLE and BY_PHASE; one that is the same as another is left out."""
    shown: dict[str, Trial | None] = {DEFAULT: found.single.default}
    if found.single.least != found.single.default:
        shown[SINGLE] = found.single.least
    if found.helps:
        shown[BY_PHASE] = found.best
    return {
        name: trial
        if isinstance(trial, PhasedTrial)
        else PhasedTrial(
            trial.spec,
            trial.capacity,
            trial.device_seconds,
            trial.failures,
            estimate=trial.estimate,
        )
        for name, trial in shown.items()
        if trial is not None
    }


def _chosen(found: PerPhase) -> Trial:
    if found.helps and found.best is not None:
        return found.best
    return found.single.least or found.single.default


def _candidates(single: tuning.Tuned, runner: Runner) -> list[str]:
    """The specs to try in each phase: best first, the default always."""
    members = [single.least or single.default, single.default, *single.front]

    def order(trial: Trial) -> tuple[bool, int, int]:
        return not trial.serves, runner.rough_capacity(trial.spec) or 0, trial.settings

    others = sorted(single.trials, key=order)
    specs = dict.fromkeys(trial.spec for trial in (*members, *others))
    return list(specs)[:CANDIDATES]


def _settings(text: str, trace: Trace) -> dict[str, str]:
    """The settings of a spec by PyTorch's names, without the memory fraction, which cannot change.

    Raises SpecError.
    """
    items = split_conf(conf(in_force(text, trace, version=False)))
    return {name: value for name, value in items if name != "per_process_memory_fraction"}


def _peaks(runner: Runner, trial: PhasedTrial, phases: Sequence[Phase]) -> list[int]:
    """The most reserved bytes after an event of each phase."""
    first = trial.plan[0].spec if trial.plan else trial.spec
    made = fresh(first, runner.device, runner.trace)
    timeline = allocators.replay(
        runner.trace, made, samples=len(runner.trace), changes=trial.changes
    ).timeline
    part = np.searchsorted(timeline["event"], [phase.begin for phase in phases])
    return [int(peak) for peak in np.maximum.reduceat(timeline["reserved"], part)]


class _PhaseSearch(Search):
    """Plans; a text names the choice of each phase."""

    def __init__(
        self,
        runner: Runner,
        phases: Sequence[Phase],
        candidates: Sequence[str],
        budget: int,
        begin: Callable[[str], None],
    ) -> None:
        self._runner, self._phases, self._candidates = runner, phases, candidates
        self._plans: dict[str, tuple[Choice, ...]] = {}
        self._runners: dict[str, Runner] = {}
        self._chosen = {name: tuple(candidates) for name in self._names("settings")}
        self._emptied = dict.fromkeys(self._names("empty_cache")[1:], ("no", "yes"))
        plain = self._text((Choice(candidates[0]),) * len(phases))
        super().__init__(self._chosen | self._emptied, [plain], budget, begin)

    def _names(self, what: str) -> list[str]:
        return [f"{phase.name} {what}" for phase in self._phases]

    def _text(self, plan: tuple[Choice, ...]) -> str:
        parts = [
            f"{phase.name}: {'empty_cache, ' * choice.empty_cache}{choice.spec}"
            for phase, choice in zip(self._phases, plan, strict=True)
        ]
        text = "; ".join(parts)
        self._plans[text] = plan
        return text

    def _runner_of(self, text: str) -> Runner:
        if text not in self._runners:
            plan = self._plans[text]
            if reason := next(filter(None, (self._broken(choice) for choice in plan)), None):
                raise SpecError(reason)
            made = changes(plan, self._phases, self._runner.trace)
            self._runners[text] = Runner(self._runner.trace, self._runner.device, changes=made)
        return self._runners[text]

    def _broken(self, choice: Choice) -> str | None:
        return breaks(choice.spec, self._runner.trace)

    def text(self, values: Values) -> str:
        """The plan with these choices."""
        emptied = [False, *(values[name] == "yes" for name in self._emptied)]
        return self._text(
            tuple(
                Choice(values[name], empty)
                for name, empty in zip(self._chosen, emptied, strict=True)
            )
        )

    def runner(self, text: str) -> tuple[Runner, str]:
        """A runner with the calls of the plan, and the spec of its first phase."""
        return self._runner_of(text), self._plans[text][0].spec

    def made(self, text: str, counted: Row) -> Trial:
        """The trial of a plan, with its calls."""
        plain = super().made(text, counted)
        return PhasedTrial(
            plain.spec,
            plain.capacity,
            plain.device_seconds,
            plain.failures,
            self._plans[text],
            tuple(self._runner_of(text).changes),
            estimate=plain.estimate,
        )

    def shorter(self, trial: Trial) -> list[str]:
        """The plans without one call: a border without empty_cache, or without new settings."""
        plan = self._plans[trial.spec]
        found = []
        for phase in range(1, len(plan)):
            if plan[phase].empty_cache:
                found.append(self._with(plan, phase, replace(plan[phase], empty_cache=False)))
            if plan[phase].spec != plan[phase - 1].spec:
                same = replace(plan[phase], spec=plan[phase - 1].spec)
                found.append(self._with(plan, phase, same))
        return found

    def _with(self, plan: tuple[Choice, ...], phase: int, choice: Choice) -> str:
        return self._text((*plan[:phase], choice, *plan[phase + 1 :]))
