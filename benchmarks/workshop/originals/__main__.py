# SPDX-License-Identifier: Apache-2.0
"""Play the league with the original allocators and planners, and hold our replicas against them.

    PYTHONPATH=. python -m benchmarks.workshop.originals [NAME ...]

plays all, or those whose names contain a NAME, and writes `benchmarks/results/originals.json`; the
others stay there as they are. Each allocator runs in a process of its own. An original that is not
possible on this machine is recorded with the reason. `make originals` calls it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from allocbench.questions.league import (
    CLOSED,
    OFFLINE,
    PROGRAMS,
    Score,
    frozen,
    score,
    traces,
)
from allocbench.workloads import lifetimes
from benchmarks.workshop.originals import planners
from benchmarks.workshop.originals.contestants import ALLOCATORS, Allocator
from benchmarks.workshop.originals.environments import ROOT, NotHereError
from benchmarks.workshop.originals.planners import PLANNERS, Planner
from benchmarks.workshop.originals.subjects import Here, Seen

RESULTS = ROOT / "benchmarks" / "results" / "originals.json"


@dataclass
class Found:
    """What became of an original.

    sha256: of its file; None for sources. reason: why it did not run. without: workloads that were
    left out, with the reasons. compared: number of workloads that replica and original both
    replayed; placed, reserved, capacity: on how many of them all addresses, the peak reserved bytes
    and the smallest sufficient capacity are equal; of a planner, all offsets.
    """

    name: str
    source: str
    replica: str
    sha256: str | None = None
    reason: str | None = None
    without: dict[str, str] = field(default_factory=dict)
    compared: int = 0
    placed: int | None = None
    reserved: int | None = None
    capacity: int | None = None
    score: Score | None = None


def play_allocator(original: Allocator) -> Found:
    """Replay every workload with an original and its replica."""
    found = Found(original.name, original.source, original.replica, without={**original.without})
    ratios: dict[str, float | None] = {}
    calls, equal = [], {"placed": 0, "reserved": 0, "capacity": 0}
    ours = Here(original.replica)
    with original.make() as made:
        found.sha256 = made.digest
        for part, name, trace in traces(frozen()):
            if name in original.without:
                continue
            print(f"{original.name}: {name}", file=sys.stderr)
            theirs, mine = made.subject.replay(trace), ours.replay(trace)
            expected = ours.least(trace)
            least = made.subject.least(trace, expected)
            ratios[name] = least / trace.max_load if least else None
            if part == PROGRAMS:
                calls.append(theirs.calls * 1000 / len(trace))
            found.compared += 1
            equal["placed"] += bool(np.array_equal(_relative(theirs), _relative(mine)))
            equal["reserved"] += theirs.reserved == mine.reserved
            equal["capacity"] += least == expected
    found.placed, found.reserved, found.capacity = equal.values()
    found.score = score(original.name, CLOSED, ratios, calls, frozen())
    return found


def play_planner(original: Planner) -> Found:
    """Plan every workload with an original and its replica."""
    found = Found(original.name, original.source, original.replica)
    line, ratios = original.line(), dict[str, float | None]()
    found.placed = 0 if original.replica else None
    for _, name, trace in traces(frozen()):
        print(f"{original.name}: {name}", file=sys.stderr)
        blocks = lifetimes(trace)
        try:
            places = planners.offsets(line, blocks)
        except NotHereError as error:
            found.without[name], ratios[name] = original.failure or str(error), None
            continue
        ratios[name] = planners.height(original.name, blocks, places) / trace.max_load
        if found.placed is not None:
            found.compared += 1
            found.placed += bool(np.array_equal(places, planners.replica(original, blocks)))
    found.score = score(original.name, OFFLINE, ratios, [], frozen())
    return found


def _relative(seen: Seen) -> NDArray[np.uint64]:
    """Addresses from the lowest one: devices differ in where they begin."""
    addresses: NDArray[np.uint64] = seen.addresses - seen.addresses.min()
    return addresses


def _or_reason(play: Callable[[], Found], original: Allocator | Planner) -> Found:
    try:
        return play()
    except NotHereError as error:
        return Found(original.name, original.source, original.replica, reason=str(error))


def _in_a_process(original: Allocator) -> Found:
    """Play an allocator in a process of its own, whose last line is the result."""

    def play() -> Found:
        preload = {"LD_PRELOAD": str(original.preload())} if original.preload else {}
        line = [sys.executable, "-m", __package__, "--alone", original.name]
        done = subprocess.run(line, env=os.environ | preload, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise NotHereError(f"its process ended with exit code {done.returncode}")
        read = json.loads(done.stdout.splitlines()[-1])
        return Found(**read | {"score": read["score"] and Score(**read["score"])})

    return _or_reason(play, original)


def _alone(name: str) -> None:
    (original,) = (one for one in ALLOCATORS if one.name == name)
    print(json.dumps(asdict(_or_reason(partial(play_allocator, original), original))), flush=True)
    os._exit(0)  # not every original bears the end of its process


def main() -> None:
    """Play, and merge the results into the file."""
    names = sys.argv[1:]
    if names[:1] == ["--alone"]:
        return _alone(names[1])
    known = json.loads(RESULTS.read_text())["originals"] if RESULTS.exists() else []
    results = {one["name"]: one for one in known}
    originals: tuple[Allocator | Planner, ...] = (*ALLOCATORS, *PLANNERS)
    for original in originals:
        if names and not any(name.lower() in original.name.lower() for name in names):
            continue
        if isinstance(original, Allocator):
            found = _in_a_process(original)
        else:
            found = _or_reason(partial(play_planner, original), original)
        results[original.name] = asdict(found)
        ordered = [results[one.name] for one in originals if one.name in results]
        RESULTS.write_text(json.dumps({"originals": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    main()
