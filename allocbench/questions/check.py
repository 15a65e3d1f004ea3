# SPDX-License-Identifier: Apache-2.0
"""Does a program fit a card; if not, what helps, who holds the memory, and what is not known?

The verdict follows from the same replays as those of fit, explain and recommend.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from allocbench import allocators
from allocbench.base import units
from allocbench.base.cards import cards, find, label, notes
from allocbench.base.text import one_line, upper
from allocbench.errors import UsageError
from allocbench.programs.program import ProgramWorkload
from allocbench.questions import ORDERS, vary
from allocbench.questions.best import Best, best
from allocbench.questions.explain import kind_of, leak_in_words, leak_of_failure
from allocbench.questions.failure import Failure, first_failure, operators
from allocbench.questions.growth import growing_reserve, leak_of, sentence
from allocbench.questions.hazards import breaks, caveats, modelled, reserve_in_words
from allocbench.questions.holding import by_kind, holders
from allocbench.questions.switching import how
from allocbench.questions.tune import EXPANDABLE
from allocbench.questions.vary import Probe, Variation
from allocbench.questions.whatif import Proposals, whatif
from allocbench.replays.capacity import STEP
from allocbench.replays.recorded_settings import conf, in_force, with_conf
from allocbench.replays.runner import Runner, beside, fresh
from allocbench.reports.advice import check as sentences
from allocbench.reports.advice.check import Answer, Holder, Remedy, RemedyKind, Verdict
from allocbench.reports.advice.choosing import ROOM, kind
from allocbench.reports.advice.recommending import LOSSES
from allocbench.reports.rows.results import records
from allocbench.workloads import ALLOC, Trace
from allocbench.workloads.formats import how_to_record

_STEPS = 3  # a recording that goes on shows a program's need if it has as many steps
_MOST_HOLDERS = 5
_MOST_PLACES = 3  # of each kind
_MOST_EDITED = 300_000  # events of a trace whose edits are tried, so that the answer takes seconds
Tell = Callable[[Probe], None]


def check(
    trace: Trace,
    device: str | None,
    *,
    workload: str = "",
    where: str = "",
    allocator: str = "caching",
    everything: bool = False,
    begin: Callable[[str], None] = lambda what: None,
) -> Answer:
    """The answer for a trace on a device.

    device: the spec of a simulated one or of a GPU; None: the smallest common card that is enough.
    where: its name in sentences. allocator: the spec of `caching` with the user's settings, if
    those with which the trace was recorded do not apply. everything: also what a short answer
    leaves out, see `Rest`. begin: called with the name of each stage. Raises SpecError.
    """
    name = workload or trace.name
    if not trace.coverage.events:
        return _without_events(trace, device, name, everything)
    begin("smallest card")
    where = where or (label(device) if device else "")
    run = Runner(trace, beside(device or "sim:1TiB", trace), name)
    if device is None:
        card = run.card(allocator)
        if card is None:
            return _no_card(run, allocator, everything)
        where = where or label(find(card)[0].device)
        run = run.on(beside(find(card)[0].device, trace))
    case = _Case(run, allocator, where, begin, device is None, everything=everything)
    return case.answer()


def exit_code(run: Runner, allocator: str) -> int:
    """The exit code of `check` for a runner's trace and device, found without trying what helps."""
    if not run.trace.coverage.events:
        return _without_events(run.trace, run.device, run.workload, False).exit_code
    case = _Case(run, allocator, label(run.device), lambda what: None, False, tries=False)
    if run.completes(allocator):
        return case.completes().exit_code
    fails = allocators.failing_event(run.trace, fresh(allocator, run.device, run.trace))
    return 1 if fails is not None else case.held().exit_code


def _without_events(trace: Trace, device: str | None, name: str, everything: bool) -> Answer:
    """What the segments of a recording without events prove."""
    coverage = trace.coverage
    where = "" if device is None else label(device)
    capacity = None if device is None else Runner(trace, beside(device, trace)).capacity
    verdict: Verdict = "unknown"
    told = sentences.cannot_tell(where, coverage.sentence)
    if capacity is not None and coverage.live > capacity:
        verdict = "too_big"
        told = sentences.too_big(where, coverage.live, True, capacity)
    return Answer(
        name,
        where,
        verdict,
        told,
        bound=True,
        capacity=capacity,
        when="when it was recorded",
        holders=_holders(trace, None, everything),
        unknown=_to_know_more(trace),
    )


def _no_card(run: Runner, allocator: str, everything: bool) -> Answer:
    need = run.min_capacity(allocator) or run.trace.max_load
    bound = run.trace.coverage.bound
    found = Answer(
        run.workload,
        "",
        "too_big",
        sentences.no_card(need, bound),
        need,
        bound,
        when="at the peak",
        holders=_holders(run.trace, None, everything),
        unknown=_lacks(run.trace, 0),
    )
    if not everything:
        return found
    largest = run.on(beside(cards()[-1].device, run.trace))
    return _Case(largest, allocator, "", lambda what: None, True, everything=True).with_rest(found)


def smaller(
    program: ProgramWorkload, varied: Variation, device: str, answer: Answer, tell: Tell
) -> Answer:
    """The answer with the largest value of an option with which a program fits as a remedy.

    It is also tried together with a setting, unless that alone is enough. device: the spec of a
    simulated one; the settings of the program name the card. tell: called with every run. Raises as
    `program.load`.
    """
    found = vary.on_card(program, varied, device, tell, quick=True)
    remedies = list[Remedy]()
    if found.largest is not None:
        remedies.append(Remedy("batch", f"{varied.name}={found.largest}", "run", found.need))
    enough = any(one.kind == "setting" for one in answer.remedies)
    better = None
    if not enough:
        better = vary.with_setting(program, varied, device, found.largest, tell, quick=True)
    if better is not None:
        written = conf(better.spec)
        change = f"{varied.name}={better.largest}"
        remedies.append(Remedy("batch", change, "run", better.need, written, better.how))
    if not remedies:
        least = f" It does not fit with {varied.name}={varied.values[0]} either."
        answer = replace(answer, sentence=answer.sentence + least)
    others = sorted((*remedies, *answer.remedies), key=lambda one: sentences.ORDER.index(one.kind))
    return replace(answer, remedies=tuple(others[: sentences.MOST_REMEDIES]))


@dataclass
class _Case:
    """A trace on a device.

    allocator: the user's. device: the name in sentences. smallest: whether nobody named the device,
    and it is the smallest card that is enough. tries: whether to look for what helps. everything:
    whether to also say what a short answer leaves out.
    """

    run: Runner
    allocator: str
    device: str
    begin: Callable[[str], None]
    smallest: bool
    tries: bool = True
    everything: bool = False

    def answer(self) -> Answer:
        found = self._answer()
        return self.with_rest(found) if self.everything else found

    def with_rest(self, found: Answer) -> Answer:
        """An answer with what a short one leaves out."""
        return replace(found, rest=_rest(self.run, self.allocator, self._best, self._edited))

    def _answer(self) -> Answer:
        trace, run = self.trace, self.run
        self.begin("replay")
        if run.completes(self.allocator):
            return self.completes()
        failure = first_failure(trace, self.allocator, run.device)
        if failure is None:
            return self.held()
        return self._fails(failure)

    @property
    def trace(self) -> Trace:
        return self.run.trace

    @property
    def need(self) -> int | None:
        return self.run.min_capacity(self.allocator)

    def completes(self) -> Answer:
        """Every recorded request is served."""
        run, trace = self.run, self.trace
        need, capacity = self.need or run.capacity, run.capacity
        leak = leak_of(trace)
        grows = (sentence(leak, need, capacity, self.device),) if leak else ()
        if told := reserve_in_words(run, self.allocator):
            remedies = self._settings(steady=True) if self.tries else ()
            told = sentences.grows(self.device, False, told)
            return self._made("grows", told, remedies, more=grows)
        if leak and leak.counts(trace, need, capacity):
            return self._made("grows", sentences.grows(self.device, False, *grows))
        coverage = trace.coverage
        card = coverage.card or 0
        if self.allocator == "caching" and coverage.request and capacity <= card:
            event = int(np.flatnonzero(trace.op == ALLOC)[-1])
            (operator,) = operators(trace, np.array([event]))
            told = sentences.failed_there(self.device, coverage.request, operator, card)
            return self._made("fragmented", told, event=event - 1, more=grows)
        if not shown(trace, capacity):
            told = sentences.part_fits(self.device, need, self.smallest)
            return self._made("unknown", told)
        remedies = ()
        if capacity - need < ROOM * capacity and not self.smallest and self.tries:
            remedies = self._settings()
        told = sentences.fits(self.device, need, trace.coverage.bound, capacity, self.smallest)
        told += sentences.MORE_ROOM if remedies else ""
        return self._made("fits", told, remedies, more=grows)

    def held(self) -> Answer:
        """Every request is served, but more was reserved when the recording began."""
        told = sentences.held(self.device, self.trace.coverage.held, self.trace.max_load)
        return self._made("unknown", told)

    def _fails(self, failure: Failure) -> Answer:
        run, trace, bound = self.run, self.trace, self.trace.coverage.bound
        operator = one_line(failure.operator)
        fails = sentences.request_fails(failure.requested, operator, failure.step)
        leak, event = leak_of_failure(failure), failure.event - 1
        growth = leak_in_words(leak, failure) if leak else ""
        first = "" if leak and leak.event == failure.event else fails
        grows = sentences.grows(self.device, True, growth, first)
        full = kind_of(failure) == "full"
        if leak and (full or (self.need or 0) - leak.bytes <= run.capacity):
            return self._made("grows", grows, event=event)
        if full:
            told = sentences.too_big(self.device, failure.load, bound, run.capacity, fails)
            remedies = self._edits() + self._cards(with_conf(EXPANDABLE))
            return self._made("too_big", told, remedies)
        settings = self._settings()
        if leak and settings:  # a setting only postpones the failure
            return self._made("grows", grows, event=event)
        remedies = settings or self._edits()
        remedies += self._cards(settings[0].change if settings else with_conf(EXPANDABLE))
        if not settings:
            remedies += self._allocators()
        case = self.device, fails, failure.load, run.capacity
        verdict: Verdict = "fragmented"
        told = sentences.fragmented(*case)
        if settings:
            verdict = "fits_with_setting"
            told = sentences.needs_setting(*case, part=not shown(trace, run.capacity))
        return self._made(verdict, told, remedies, event, (growth,) if leak else ())

    @cached_property
    def _best(self) -> Best:
        self.begin("settings and allocators")
        given, named = self.allocator, self.device
        return best(self.run, given=given, label=named, others=self.everything)

    def _settings(self, steady: bool = False) -> tuple[Remedy, ...]:
        """The setting that `recommend` finds best. steady: only if its reserve does not grow."""
        chosen = self._best.setting
        if chosen is None or self._best.keeps_setting:
            return ()
        if steady and growing_reserve(self.trace, chosen, self.run.device):
            return ()
        return (self._remedy("setting", chosen, chosen),)

    @cached_property
    def _edited(self) -> Proposals | str:
        """The edits of a training program that `whatif` finds, or why it finds none."""
        trace = self.trace
        if trace.coverage.begins != "start":
            return "the recording does not begin with the program"
        if len(trace) > _MOST_EDITED and not self.everything:
            return "the trace is long"
        try:
            capacity, begin = self.run.capacity, self.begin
            return whatif(self.run, self.allocator, capacity=capacity, begin=begin, settings=False)
        except UsageError as error:
            return str(error).removeprefix(f"{trace.name}: ")

    def _edits(self) -> tuple[Remedy, ...]:
        """Those of these that fit and ask least."""
        return tuple(
            Remedy(
                "edit",
                found.name,
                "estimate",
                found.need,
                how="\n".join(edit.how for edit in found.edits),
                costs="; ".join(edit.cost for edit in found.edits),
            )
            for found in (() if isinstance(self._edited, str) else self._edited.fitting)
        )

    def _remedy(self, what: Literal["setting", "card"], change: str, spec: str) -> Remedy:
        """A change with which a replay through a spec of `caching` completes."""
        need, written = self.run.min_capacity(spec), ""
        lines = ""
        if spec != self.allocator:
            written, lines = conf(spec), how(in_force(spec, self.trace))
        return Remedy(what, change, "replay", need, setting=written, how=lines)

    def _cards(self, setting: str) -> tuple[Remedy, ...]:
        """The smallest card that is enough, and the smallest with a setting, if that is smaller."""
        self.begin("larger cards")
        plain = self._card(self.allocator)
        if breaks(setting, self.trace):
            return plain
        with_setting = self._card(setting)
        if with_setting and plain:
            smaller = find(with_setting[0].change)[0].usable < find(plain[0].change)[0].usable
            return with_setting + plain if smaller else plain
        return plain or with_setting

    def _card(self, spec: str) -> tuple[Remedy, ...]:
        card = self.run.card(spec)
        if card is None or find(card)[0].free <= self.run.capacity:
            return ()
        return (self._remedy("card", card, spec),)

    def _allocators(self) -> tuple[Remedy, ...]:
        chosen = self._best.advice.allocator
        if chosen is None or kind(chosen) not in LOSSES:
            return ()
        need, costs = self.run.min_capacity(chosen), LOSSES[kind(chosen)]
        return (Remedy("allocator", chosen, "replay", need, how=how(chosen), costs=costs),)

    def _made(
        self,
        verdict: Verdict,
        told: str,
        remedies: tuple[Remedy, ...] = (),
        event: int | None = None,
        more: tuple[str, ...] = (),
    ) -> Answer:
        trace, run = self.trace, self.run
        part = not shown(trace, run.capacity)
        remedies = tuple(replace(one, bound=part) for one in remedies[: sentences.MOST_REMEDIES])
        settings = [one.change for one in remedies[:1] if one.kind == "setting"]
        checks = [f"{upper(line)}." for one in settings for line in caveats(one, trace)]
        checks += [line for one in settings if (line := self._best.warning(one))]
        return Answer(
            run.workload,
            self.device,
            verdict,
            f"{told} {trace.coverage.range(trace.max_load)}".rstrip(),
            self.need,
            trace.coverage.bound,
            run.capacity,
            run.card(self.allocator),
            remedies,
            "at the peak" if event is None else "when the request fails",
            _holders(trace, event, self.everything),
            (*more, *self._pools(), *_lacks(trace, run.capacity), *checks),
        )

    def _pools(self) -> tuple[str, ...]:
        """What private pools keep from other requests, if that is much."""
        trace, need = self.trace, self.need
        if not trace.pools or need is None or trace.layout is not None:
            return ()
        alone = Runner(trace.without_pools(), self.run.device).min_capacity(self.allocator) or need
        return (
            (sentences.pools(len(trace.pools), need, alone),) if alone < (1 - ROOM) * need else ()
        )


def shown(trace: Trace, capacity: int) -> bool:
    """Whether a trace shows enough to say that its program fits."""
    coverage = trace.coverage
    if not coverage.bound:
        return True
    missing = coverage.allocs_missing or coverage.contradiction
    if coverage.begins == "later" or coverage.ends == "failure" or missing:
        return False
    more = trace.max_load + coverage.workspace if coverage.workspace else 0
    if max(coverage.shared_load, coverage.masks_load, more) > (1 - ROOM) * capacity:
        return False
    return coverage.ends == "exit" or trace.steps >= _STEPS


def _lacks(trace: Trace, capacity: int) -> tuple[str, ...]:
    """What a trace lacks, and how to record it."""
    notes = (trace.coverage.sentence, str(trace.provenance.extra.get("note", "")))
    lines = [f"{upper(one_line(note))}." for note in notes if note]
    return tuple(lines if shown(trace, capacity) else [*lines, *_to_know_more(trace)])


def _to_know_more(trace: Trace) -> tuple[str, ...]:
    """How to record what a trace lacks, as a sentence, if there is one."""
    how = how_to_record(trace)
    return (f"To know more, {how}.",) if how else ()


def _holders(trace: Trace, event: int | None, everything: bool) -> tuple[Holder, ...]:
    """What is live after an event, or at the peak, by kind and place; none if that is not known.

    everything: whether not only the largest are wanted.
    """
    held = holders(trace, event)
    if not (held["kind"].any() or held["place"].any()):
        return ()
    rows = by_kind(held, len(held) if everything else _MOST_PLACES)
    rows = rows[: None if everything else _MOST_HOLDERS]
    return tuple(Holder(row["kind"], row["bytes"], tuple(row["places"])) for row in rows)


def _rest(run: Runner, allocator: str, found: Best, edited: Proposals | str) -> sentences.Rest:
    """What was tried, and what is assumed.

    allocator: the user's spec. found: what `best` says. edited: what `whatif` says, or why no part
    of the program can be edited.
    """
    trials = [*_compared(found, allocator), *_searched(run, found)]
    need, enough = run.min_capacity(allocator), set(run.cards(allocator))
    trials += [
        sentences.TriedChange("card", card.name, "replay", need, card.name in enough)
        for card in cards()
    ]
    for one in () if isinstance(edited, str) else edited.proposals:
        costs, fits = "; ".join(edit.cost for edit in one.edits), one.high <= run.capacity
        trials.append(sentences.TriedChange("edit", one.name, "estimate", one.need, fits, costs))
    trials.sort(key=lambda one: (sentences.ORDER.index(one.kind), one.need is None, one.need or 0))
    return sentences.Rest(tuple(trials), tuple(_assumed(run, allocator, found, edited)))


def _compared(found: Best, allocator: str) -> Iterator[sentences.TriedChange]:
    """The settings and allocators that `best` compares."""
    for row in records(found.rows):
        spec, orders = row["allocator"], row["failed_orders"]
        how = kind(spec)
        what: RemedyKind = "allocator" if how in LOSSES else "setting"
        note = found.orders.note(orders) or "as it is" * (spec == with_conf(allocator))
        if failed := row["failures"]:
            note = f"{units.count(failed, 'request')} fail{'s' * (failed == 1)}"
        yield sentences.TriedChange(what, spec, "replay", row["min_capacity"], not failed, note)
    for spec, reason in found.excluded.items():
        yield sentences.TriedChange("setting", spec, "replay", None, False, reason)


def _searched(run: Runner, found: Best) -> Iterator[sentences.TriedChange]:
    """The settings of the search that `best` does not compare, each with its need."""
    known = {*found.rows["allocator"], *found.excluded}
    for trial in found.tuned.trials if found.tuned else ():
        spec = with_conf(trial.spec)
        if spec not in known:
            fits, orders = not trial.failures, run.other_orders(ORDERS, 0)
            failed = fits and sum(not order.completes(trial.spec) for order in orders)
            need, note = run.rough_capacity(trial.spec), found.orders.note(failed)
            yield sentences.TriedChange("setting", spec, "replay", need, fits, note)


def _assumed(run: Runner, allocator: str, found: Best, edited: Proposals | str) -> Iterator[str]:
    trace = run.trace
    settings = conf(in_force(allocator, trace)) or "none"
    yield f"The program's settings of PyTorch's allocator: {settings}."
    version = trace.provenance.torch
    if version:
        yield f"The recording is of PyTorch {version}, and its rules apply."
    if trace.coverage.whole:
        yield "The recording has the program from its first request to its last."
    yield (
        f"The need is the smallest multiple of {units.size(STEP)} on which a replay completes; that"
        " of settings which the search did not pursue is up to 0.5% larger."
    )
    if found.tuned is None:
        yield (
            "Other settings were not searched: the program has room, or its largest load is more"
            " than the device has."
        )
    if shuffled := found.other_orders(found.advice.chosen):
        yield shuffled
    if isinstance(edited, str):
        yield f"No edit was tried: {edited}."
    else:
        yield (
            "The need of an edit is an estimate, because the order of the events of an edited"
            " program is not known; it counts as enough if the upper end of its range is."
        )
    yield from notes(run.device, trace.provenance.device)
    for line in modelled([str(spec) for spec in found.rows["allocator"]]):
        yield f"{upper(line)}."
