# SPDX-License-Identifier: Apache-2.0
"""Random calls of every strategy, wrapped or not, on devices that are roomy, starving or faulty.

After each call the independent judge and the allocator's own `check` look at everything. At the
end all blocks are freed, and the device must get everything back. A case and a seed give the same
calls every time: `python -m tests.fuzz --case SPEC --seed N` repeats them.
"""

import math
import random
import re
import sys
import time
from dataclasses import dataclass
from typing import Any

from allocbench.base.trace import POOL_CREATE, POOL_ENTER, POOL_LEAVE, POOL_RELEASE
from allocbench.workloads.vocabulary import CAPTURE_BEGIN, CAPTURE_END
from tests.conftest import CASES, MIB, Case
from tests.oracle import Watched

CALLS = 120  # of a sequence
_CAPACITIES = (MIB, 3 * MIB + 77, 16 * MIB, 64 * MIB)
_FAULTS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"fail_rate": 0.3},
    {"fail_call": 3},
    {"fail_above": 2 * MIB},
)
_MOST_LIVE = 24
_POOLS = (0, 0, 0, 1, 2)
_STREAMS = (0, 1, 2)


@dataclass
class Failure:
    """A sequence that broke a rule."""

    case: str
    seed: int
    calls: list[str]
    message: str

    def __str__(self) -> str:
        last = "\n  ".join(self.calls[-8:])
        return f"{self.case}, seed {self.seed}, call {len(self.calls)}: {self.message}\n  {last}"


@dataclass
class Figures:
    """What was tried: sequences, and calls in all of them."""

    sequences: int = 0
    calls: int = 0


def run(seconds: float, seed: int, figures: Figures, sequences: float = math.inf) -> Failure | None:
    """Sequences for each case in turn until time or number is reached or one of them fails."""
    end = time.monotonic() + seconds
    while True:
        for case in CASES:
            if failure := one(case, seed, figures):
                return failure
            if time.monotonic() >= end or figures.sequences >= sequences:
                return None
        seed += 1


def one(case: Case, seed: int, figures: Figures) -> Failure | None:
    """One sequence of calls."""
    calls: list[str] = []
    try:
        _draw(case, random.Random(f"{case} {seed}"), calls)
    except Exception as error:
        return Failure(str(case), seed, calls, f"{type(error).__name__}: {error}")
    figures.sequences += 1
    figures.calls += len(calls)
    return None


def _draw(case: Case, rng: random.Random, calls: list[str]) -> None:
    capacity, faults = rng.choice(_CAPACITIES), rng.choice(_FAULTS)
    calls.append(f"capacity {capacity}, {faults}")
    watched = case.make(capacity, seed=rng.randrange(100), **faults)
    most = min(capacity, _limit(case.spec))
    state = _Pools(watched)
    top = rng.choice((12, 16, 20, 24))  # sizes up to 2^top
    for _ in range(CALLS):
        assert watched.allocator.stats().peak_reserved <= most, "the limit is kept"
        drawn = rng.random()
        if drawn < 0.5 and len(watched.live) < _MOST_LIVE:
            size = max(1, int(2 ** rng.uniform(0, top)) + rng.choice((-1, 0, 1)))
            stream, pool = rng.choice((0, 0, *_STREAMS)), rng.choice(_POOLS)
            pool = state.usable(pool)
            calls.append(f"allocate({size}, stream={stream}, pool={pool})")
            watched.allocate(size, stream, pool)
        elif drawn < 0.9 and watched.live:
            block, stream = rng.choice(watched.live), rng.choice((0, 0, 0, 1))
            calls.append(f"free({block}, stream={stream})")
            watched.free(block, stream)
        elif drawn < 0.94:
            calls.append("trim()")
            watched.trim()
        elif drawn < 0.97:
            calls.append("step()")
            watched.step()
        else:
            calls.append(state.event(rng))
    state.close()
    calls.append("free_all(), trim()")
    watched.free_all()
    watched.step()
    for pool in (0, 1, 2):
        watched.trim(pool)
    assert watched.allocator.device.reserved == 0, "everything goes back to the device at the end"


def _limit(spec: str) -> float:
    """The most bytes that the options of an allocator let it reserve, for all streams together.

    At its memory limit, MLX only returns what its cache holds.
    """
    limit = re.search(r"(?:bytes|memory_limit|maximum_pool_size)=(\d+)MiB", spec)
    if not limit or spec.startswith("mlx_cache"):
        return math.inf
    instances = len(_STREAMS) if "per_stream" in spec[: limit.start()] else 1
    return instances * int(limit[1]) * MIB


class _Pools:
    """Private pools 1 and 2, at most one of which is captured into or entered at a time."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._uses: dict[int, int] = {}
        self._open: tuple[int, int] | None = None  # the pool, and the event that ends it

    def usable(self, pool: int) -> int:
        """The pool if something can be allocated from it now, otherwise 0."""
        return pool if self._open and self._open[0] == pool else 0

    def event(self, rng: random.Random) -> str:
        """Let the next event happen; returns it as text."""
        if self._open:
            pool, ends = self._open
            self._open = None
            return self._happens(ends, pool)
        pool = rng.choice((1, 2))
        if pool not in self._uses:
            self._uses[pool] = 1
            return self._happens(POOL_CREATE, pool)
        if rng.random() < 0.2:
            return self._release(pool)
        begins, ends = rng.choice(((CAPTURE_BEGIN, CAPTURE_END), (POOL_ENTER, POOL_LEAVE)))
        self._open = pool, ends
        self._uses[pool] += 1
        return self._happens(begins, pool)

    def close(self) -> None:
        """End what is open and release every pool."""
        if self._open:
            pool, ends = self._open
            self._open = None
            self._happens(ends, pool)
        for pool in list(self._uses):
            self._release(pool)

    def _release(self, pool: int) -> str:
        """As often as the pool was created, captured into and entered."""
        for _ in range(self._uses.pop(pool)):
            text = self._happens(POOL_RELEASE, pool)
        return text

    def _happens(self, op: int, pool: int) -> str:
        self._watched.allocator.pool_event(op, pool)
        self._watched.verify()
        return f"pool_event({op}, {pool})"


def main() -> None:
    """`python -m tests.fuzz.sequences SECONDS SEED [SEQUENCES]` prints figures, then a failure."""
    figures = Figures()
    most = (float(number) for number in sys.argv[3:])
    failure = run(float(sys.argv[1]), int(sys.argv[2]), figures, *most)
    print(f"{figures.sequences:,} sequences, {figures.calls:,} calls")
    if failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()
