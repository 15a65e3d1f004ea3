# SPDX-License-Identifier: Apache-2.0
"""The largest value of a program's option, such as its batch size, with which it fits.

Every value that is reported as fitting or not was run. Earlier runs only guide the choice of the
next value; a guess is never a result. Values that are too large are tried again with the setting
that is best for the first of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from allocbench import allocators
from allocbench.base import cards
from allocbench.base.spec import Spec, SpecSyntaxError, parse, parse_numbers, parse_option
from allocbench.errors import UsageError
from allocbench.programs.program import ProgramWorkload, load_all
from allocbench.questions.best import best
from allocbench.questions.hazards import breaks
from allocbench.questions.switching import how
from allocbench.questions.tune import EXPANDABLE
from allocbench.replays.recorded_settings import conf
from allocbench.replays.runner import Runner, beside
from allocbench.reports.advice.choosing import kind
from allocbench.workloads import Trace
from allocbench.workloads.pytorch_settings import VARIABLES, PytorchRules

_MOST_VALUES = 32


@dataclass(frozen=True)
class Variation:
    """An option of a program and its possible values, ascending."""

    name: str
    values: Sequence[int]

    def of(self, program: ProgramWorkload, value: int) -> ProgramWorkload:
        """The program with one value in place of {name}."""
        hole = f"{{{self.name}}}"
        return replace(
            program, command=tuple(word.replace(hole, str(value)) for word in program.command)
        )

    def above(self, value: int | None) -> Variation | None:
        """The same option with the values above `value`, or None if no value is left.

        value: None keeps all values.
        """
        left = [other for other in self.values if value is None or other > value]
        return replace(self, values=left) if left else None

    def check(self, program: ProgramWorkload) -> None:
        """Raise UsageError if the command lacks the placeholder."""
        hole = f"{{{self.name}}}"
        if not any(hole in word for word in program.command):
            raise UsageError(
                f"--vary {self.name}: the command has no {hole}; "
                f"write it where the value belongs: -- python train.py --{self.name} {hole}"
            )


def placed(program: ProgramWorkload, name: str) -> tuple[ProgramWorkload, int | None]:
    """The program with {name} in its command, and the number that was there; None if it had {name}.

    The number is that of the option --name, as "--name 16" or "--name=16". Raises UsageError.
    """
    hole, words = f"{{{name}}}", list(program.command)
    option = re.compile(rf"--{re.escape(name).replace('_', '[-_]')}(=|$)(\d*)$")
    found = [(n, match) for n, word in enumerate(words) if (match := option.match(word))]
    if not found or any(hole in word for word in words):
        Variation(name, ()).check(program)
        return program, None
    number, match = found[-1]
    if match[1]:
        given, words[number] = match[2], words[number].replace(match[2], hole)
    else:
        given = words[number + 1] if number + 1 < len(words) else ""
        words[number + 1 : number + 2] = [hole]
    if not given.isdecimal():
        raise UsageError(f"--vary {name}: --{name} has no whole number in the command")
    return replace(program, command=tuple(words)), int(given)


def below_own(
    program: ProgramWorkload, text: str
) -> tuple[ProgramWorkload, Variation, ProgramWorkload]:
    """The program with a hole for a value, values below its own, and the program with its own.

    text: as of `variation`, or only the name of the option, for up to `_MOST_VALUES`. Without a
    value in the command, its own is the largest of `text`. Raises UsageError.
    """
    name, numbers, _ = text.partition("=")
    varied = variation(text) if numbers else Variation(name, ())
    with_hole, own = placed(program, name)
    if own is None and not numbers:
        raise UsageError(f"--vary {text}: write {text}=1..64, or --{text} 64 in the command")
    own = varied.values[-1] if own is None else own
    step = max(1, own // _MOST_VALUES)
    below = varied.values if numbers else sorted({1, *range(step, own, step)})
    below = [value for value in below if value < own]
    return with_hole, Variation(name, below), varied.of(with_hole, own)


def variation(text: str) -> Variation:
    """The variation of "batch=8..256", "batch=8..256:8" or "batch=8,16,24"; raises UsageError."""
    try:
        name, numbers = parse_option(text)
        values = parse_numbers(numbers)
    except SpecSyntaxError as error:
        example = "write batch=8..256, batch=8..256:8 or batch=8,16,24"
        raise UsageError(f"--vary {text}: {example}") from error
    if not name.replace("_", "").isalnum():
        raise UsageError(f"--vary {text}: '{name}' is not a name of letters, digits and _")
    if len(values) < 2 or list(values) != sorted(set(values)):
        raise UsageError(f"--vary {text}: expected at least two values, in ascending order")
    return Variation(name, values)


@dataclass(frozen=True)
class Probe:
    """One run. need: bytes that the allocator reserves at its peak, None if unknown."""

    value: int
    fits: bool
    need: int | None


@dataclass(frozen=True)
class Between:
    """A card between two runs.

    fits: the largest value that was run and fits; too_large: the next value that was run, which
    does not fit. Either may be None.
    estimate: the largest value that fits by a line through the needs of both; it was not run. None
    if a value or a need is missing.
    with_setting: the largest value that was run and fits with expandable segments.
    """

    card: str
    fits: int | None
    too_large: int | None
    estimate: int | None
    with_setting: int | None = None


def doubling(values: Sequence[int]) -> list[int]:
    """The values to run first: the first, then each about twice as large, and the last."""
    chosen = [values[0]]
    while (larger := next((v for v in values if v >= 2 * max(1, chosen[-1])), None)) is not None:
        chosen.append(larger)
    return sorted({*chosen, values[-1]})


def between(
    card: str, capacity: int, values: Sequence[int], runs: Sequence[tuple[int, bool, int]]
) -> Between:
    """The position of a card among runs (value, fits, need), ascending by value. Bytes."""
    fitting = [run for run in runs if run[1]]
    low = fitting[-1] if fitting else None
    high = next((run for run in runs if not run[1] and (not low or run[0] > low[0])), None)
    estimate = None
    if low and high and high[2] > low[2]:
        reached = low[0] + (capacity - low[2]) * (high[0] - low[0]) / (high[2] - low[2])
        estimate = max(v for v in values if v <= max(low[0], reached) and v < high[0])
    return Between(card, low and low[0], high and high[0], estimate)


@dataclass(frozen=True)
class Largest:
    """The result of a search. largest: the value before the first that does not fit, or None.

    probes: all runs, by value. monotone: whether larger values need more in all runs.
    """

    largest: int | None
    probes: Sequence[Probe]

    @property
    def need(self) -> int | None:
        """What the run with the largest value needs, None if that is unknown."""
        return next((one.need for one in self.probes if one.value == self.largest), None)

    @property
    def monotone(self) -> bool:
        """Whether, among the values that were run, larger ones need more and fit no better."""
        fits = [probe.fits for probe in self.probes]
        needs = [probe.need for probe in self.probes if probe.need is not None]
        return fits == sorted(fits, reverse=True) and needs == sorted(needs)


def search(
    values: Sequence[int], probe: Callable[[int], Probe], capacity: int | None, quick: bool = False
) -> Largest:
    """The largest of ascending values that fits while the next one does not.

    capacity: bytes that the allocator can reserve, used to choose the next run; None if unknown.
    Two values above the answer and one below it are run as well, to check that larger values need
    more; not if `quick`, which also means that a value above all of these is known not to fit.
    """
    probes: dict[int, Probe] = {}

    def fits(index: int) -> bool:
        if index not in probes:
            probes[index] = probe(values[index])
        return probes[index].fits

    def found(largest: int | None) -> Largest:
        return Largest(largest, [probes[index] for index in sorted(probes)])

    last = len(values) - 1
    if not fits(0):
        return found(None)
    if not quick and fits(last):
        return found(values[last])
    low, high, halve = 0, last + quick, False
    while high - low > 1:
        index = (low + high) // 2 if halve else _guess(probes, values, low, high, capacity)
        width = high - low
        if fits(index):
            low = index
        else:
            high = index
        halve = not halve and high - low > (width + 1) // 2
    for index in () if quick else (low // 2, (high + last) // 2, min(high + 1, last)):
        fits(index)
    return found(values[low])


def _guess(
    probes: dict[int, Probe], values: Sequence[int], low: int, high: int, capacity: int | None
) -> int:
    """Where a line through the two largest fitting runs reaches the capacity, in (low, high).

    The largest value that fits by the line; its neighbor if that value was already run.
    """
    middle = (low + high) // 2
    run = [(index, probes[index].need) for index in sorted(probes) if probes[index].fits]
    points = [(values[index], need) for index, need in run if need is not None][-2:]
    if len(points) < 2 or capacity is None:
        return middle
    (x, y), (more, needs) = points
    if needs <= y:
        return middle
    reached = more + (capacity - needs) * (more - x) / (needs - y)
    inside = [index for index in range(low + 1, high) if values[index] <= reached]
    return inside[-1] if inside else low + 1


ALLOCATOR = "caching"
"""PyTorch's own allocator, which replays the runs."""


def on_card(
    program: ProgramWorkload,
    varied: Variation,
    device: str,
    tell: Callable[[Probe], None],
    quick: bool = False,
) -> Largest:
    """The largest value with which a program runs on one card without running out of memory.

    The program's settings name the card; otherwise it is this machine's GPU. device: the spec of a
    simulated one of the same size. tell: called with every run. quick: as for `search`. Raises as
    `program.load`.
    """

    def probe(value: int) -> Probe:
        traces, failed = _run(program, varied, value, ample=False)
        runs = [Runner(trace, device).counted(ALLOCATOR) for trace in traces]
        result = Probe(value, not failed, None if failed else max(r["peak_reserved"] for r in runs))
        tell(result)
        return result

    names_card = program.settings.device is not None
    capacity = allocators.make_device(device).capacity if names_card else None
    return search(varied.values, probe, capacity, quick)


@dataclass(frozen=True)
class WithSetting:
    """The largest value with a setting of PyTorch's allocator, above those that fit without it.

    spec: of `caching`. torch: the version that ran.
    """

    spec: str
    largest: int
    need: int | None
    torch: str

    @property
    def how(self) -> str:
        """The lines of the shell that make the setting."""
        version = {"version": self.torch} if PytorchRules.of(self.torch) else {}
        return how(str(Spec("caching", version | parse(self.spec).options)))


def with_setting(
    program: ProgramWorkload,
    varied: Variation,
    device: str,
    largest: int | None,
    tell: Callable[[Probe], None],
    quick: bool = False,
) -> WithSetting | None:
    """The largest value with the setting that is best for the first value above `largest`.

    None if no setting lets the program run with a value above. The arguments are those of
    `on_card`, and `largest` is its result. Raises as `program.load`.
    """
    larger = varied.above(largest)
    if larger is None:
        return None
    traces, _ = _run(program, varied, larger.values[0])
    trace = max(traces, key=lambda trace: trace.max_load)
    run = Runner(trace, beside(device, trace))
    if trace.max_load > run.capacity:
        return None
    spec = best(run, others=False).setting
    if spec is None or kind(spec) != "setting":
        return None
    variables = {**program.settings.variables, **dict.fromkeys(VARIABLES, conf(spec))}
    changed = replace(program, settings=replace(program.settings, variables=variables))
    found = on_card(changed, larger, device, tell, quick)
    if found.largest is None:
        return None
    return WithSetting(spec, found.largest, found.need, trace.provenance.torch)


def on_every_card(
    program: ProgramWorkload, varied: Variation, tell: Callable[[Probe], None]
) -> list[Between]:
    """Which values fit each card, by replaying a few runs, each about twice as large as the last.

    Raises as `program.load`.
    """
    runs: list[tuple[int, list[Runner]]] = []
    for value in doubling(varied.values):
        ranks = [Runner(trace, "sim:1TiB") for trace in _run(program, varied, value)[0]]
        runs.append((value, ranks))
        tell(Probe(value, True, max(map(_need, ranks))))
    positions = []
    for card in cards.cards():
        tried = [
            (
                value,
                all(rank.completes(ALLOCATOR, card.free - rank.outside) for rank in ranks),
                max(_need(rank) + rank.outside for rank in ranks),
            )
            for value, ranks in runs
        ]
        found = between(card.name, card.free, varied.values, tried)
        expanded = [
            value
            for value, ranks in runs
            if all(
                rank.completes(EXPANDABLE, card.free - rank.outside)
                and not breaks(EXPANDABLE, rank.trace)
                for rank in ranks
            )
        ]
        positions.append(replace(found, with_setting=max(expanded, default=None)))
    return positions


def _run(
    program: ProgramWorkload, varied: Variation, value: int, **settings: Any
) -> tuple[list[Trace], bool]:
    """The traces of a quiet run with a value, and whether it failed; raises as `program.load`."""
    quiet = replace(program.settings, quiet=True, tell=lambda line: None, **settings)
    traces, failed = load_all(varied.of(replace(program, settings=quiet), value))
    return list(traces.values()), failed


def _need(run: Runner) -> int:
    return run.min_capacity(ALLOCATOR) or 0
