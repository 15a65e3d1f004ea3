# SPDX-License-Identifier: Apache-2.0
"""The league: how near allocators and planners come to lower bounds on a frozen set of workloads.

All scores are counts, so every machine gives the same ones; times do not rank. Division `closed`
has allocators that know nothing of the future, `learned` those that learn from earlier steps, and
`offline` planners, which know all lifetimes.
"""

import hashlib
import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources

from allocbench.allocators import _core
from allocbench.base.errors import UserError
from allocbench.replays.runner import Runner, innermost
from allocbench.workloads import Trace, catalog, lifetimes
from allocbench.workloads.block_lifetimes import Lifetimes

VERSION = 1
DEVICE = "sim:80GiB"  # for counts; capacities do not depend on it
CLOSED, LEARNED, OFFLINE = DIVISIONS = ("closed", "learned", "offline")
LEARNING = frozenset({"planned"})
PROGRAMS, ADVERSARIES = "programs", "adversaries"
_ALIGNMENT = 256  # bytes, of plans
_EFFORT = 50_000  # looks at the clock that a search may take, instead of seconds


class LeagueError(UserError):
    """A workload of the set is not what it was when the set was frozen."""


@dataclass(frozen=True)
class Score:
    """How near to the lower bounds: mean and worst of capacity / bound, for both parts of the set.

    calls: geometric mean of the device calls for 1,000 events of a program; None for a planner.
    ratios: by workload; None where no device is large enough. Such an allocator is not ranked.
    """

    name: str
    division: str
    programs: float | None
    worst: float | None
    worst_workload: str | None
    adversaries: float | None
    worst_adversary: float | None
    calls: float | None
    ratios: dict[str, float | None] = field(repr=False)

    @property
    def rank(self) -> tuple[float, float, float]:
        """What decides the order within a division, the first place lowest."""
        programs, worst, calls = (
            math.inf if value is None else round(value, 4)
            for value in (self.programs, self.worst, self.calls)
        )
        return programs, worst, calls


def frozen() -> dict[str, dict[str, str]]:
    """The set: the digest of each workload, under `programs` and `adversaries`."""
    text = resources.files(__package__).joinpath("league.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = json.loads(text)
    return found


def digest(trace: Trace) -> str:
    """SHA-256 of the events of a trace: op, block, size; stream and pool where there are any."""
    columns = (trace.op, trace.block, trace.size, trace.stream, trace.pool)
    return hashlib.sha256(
        b"".join(column.tobytes() for column in columns if column is not None)
    ).hexdigest()


def scores(
    specs: Sequence[str],
    planners: Sequence[str],
    workloads: Mapping[str, Mapping[str, str]],
    begin: Callable[[str], None] = lambda workload: None,
) -> list[Score]:
    """The score of each allocator and each planner, the best of a division first.

    workloads: as `frozen` returns them. begin: called with each workload before it is replayed.
    Raises LeagueError for a workload that has changed, and SpecError.
    """
    names = [*specs, *planners]
    ratios: dict[str, dict[str, float | None]] = {name: {} for name in names}
    calls: dict[str, list[float]] = {name: [] for name in specs}
    for part, workload, trace in traces(workloads):
        begin(workload)
        run, bound = Runner(trace, DEVICE, workload), trace.max_load
        for spec in specs:
            least = run.min_capacity(spec)
            ratios[spec][workload] = least / bound if least else None
            if part == PROGRAMS:
                calls[spec].append(run.counted(spec)["device_calls"] * 1000 / len(trace))
        blocks = lifetimes(trace)
        for planner in planners:
            ratios[planner][workload] = height(blocks, planner) / bound
    found = [score(spec, _division(spec), ratios[spec], calls[spec], workloads) for spec in specs]
    found += [score(planner, OFFLINE, ratios[planner], [], workloads) for planner in planners]
    return sorted(found, key=lambda score: (DIVISIONS.index(score.division), score.rank))


def as_json(found: Sequence[Score]) -> dict[str, object]:
    """The JSON of a league table."""
    return {"league": VERSION, "set": frozen(), "scores": [asdict(score) for score in found]}


def traces(workloads: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, Trace]]:
    """Part, name and trace of each workload; raises LeagueError for one that has changed."""
    for part, digests in workloads.items():
        for workload, expected in digests.items():
            trace = catalog.load(workload)
            if digest(trace) != expected:
                raise LeagueError(f"{workload} is not the workload of league {VERSION}")
            yield part, workload, trace


def _division(spec: str) -> str:
    return LEARNED if innermost(spec) in LEARNING else CLOSED


def height(blocks: Lifetimes, planner: str, alignment: int = _ALIGNMENT) -> int:
    """Bytes of a plan. The clock of a search counts how often it is read: no machine is faster."""
    ticks = itertools.count()
    times = blocks.first, blocks.last
    plan = _core.plan(
        planner, blocks.size, *times, alignment, _EFFORT, None, lambda: float(next(ticks))
    )
    return int(plan[1])


def score(
    name: str,
    division: str,
    ratios: dict[str, float | None],
    calls: Sequence[float],
    workloads: Mapping[str, Iterable[str]],
) -> Score:
    """The score from capacity / bound by workload and from the device calls of each program."""
    programs = {name: ratios.get(name) for name in workloads[PROGRAMS]}
    adversaries = [ratios.get(name) for name in workloads[ADVERSARIES]]
    worst = _worst(programs.values())
    return Score(
        name,
        division,
        _mean(programs.values()),
        worst,
        next((one for one, ratio in programs.items() if ratio == worst), None),
        _mean(adversaries),
        _worst(adversaries),
        _mean(calls),
        ratios,
    )


def _mean(ratios: Iterable[float | None]) -> float | None:
    """The geometric mean, without digits that differ between C libraries; None as `_worst`."""
    known = _known(ratios)
    return round(statistics.geometric_mean(known), 6) if known else None


def _worst(ratios: Iterable[float | None]) -> float | None:
    """The largest; None if one is None, or if there are none."""
    return max(_known(ratios), default=None)


def _known(ratios: Iterable[float | None]) -> list[float]:
    """The ratios; nothing if one is not known."""
    every = list(ratios)
    known = [ratio for ratio in every if ratio is not None]
    return known if len(known) == len(every) else []
