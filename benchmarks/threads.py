# SPDX-License-Identifier: Apache-2.0
"""Throughput of eight threads that share an allocator, beside that of one thread, as a table.

Two comparisons: eight threads with an eighth of the blocks each, so that as many blocks are alive
as with one thread; and eight threads with as many blocks each as the one thread. Below, the same
for locks around a short critical section without an allocator (threads.cpp, which $CXX or c++
compiles), with the share of the slowest thread.
"""

import argparse
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import instructions
from benchmarks.packages import allocators, catalog

STRATEGIES = ("bump", "free_lists", "tlsf", "slab", "caching", "buddy", "bfc")
LOCKS = {"mutex": "`std::mutex`", "spin": "spin lock that yields", "biased": "the lock used here"}
THREADS = 8
_BLOCKS = 1000
_LINES = 1024


def throughput(strategy: str, blocks: int, threads: int, events: int) -> float:
    """Millions of events per second of all threads; each replays blocks, again and again."""
    repeats = max(1, round(events / threads / (2 * blocks)))
    trace = catalog.load(f"ramp:size=4KiB,order=shuffled,blocks={blocks},repeats={repeats}")
    shared = allocators.make(strategy, allocators.make_device(instructions.ROOMY))
    allocators.time_pass(trace, shared)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: time.sleep(0.01), range(threads)))  # starts the threads
        begin = time.perf_counter()
        list(pool.map(lambda _: allocators.time_pass(trace, shared), range(threads)))
        seconds = time.perf_counter() - begin
    return threads * len(trace.op) / seconds / 1e6


def build(folder: Path) -> Path:
    """Compile threads.cpp. Raises CalledProcessError."""
    source = Path(__file__).with_name("threads.cpp")
    native = source.parents[1] / "allocators" / "native"
    made = folder / source.stem
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    line = [*compiler, "-O3", "-DNDEBUG", "-std=c++20", "-pthread", "-I", str(native)]
    line += [str(source), str(native / "core" / "lock.cpp"), "-o", str(made)]
    subprocess.run(line, check=True, capture_output=True, text=True)
    return made


def sections(program: Path, lock: str, threads: int, seconds: float) -> tuple[float, float]:
    """Millions of critical sections per second, and the share of the slowest thread."""
    line = [str(program), lock, str(threads), str(_LINES), str(seconds)]
    shown = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    found = re.search(r"per_second=(\S+) .*lowest=(\S+)", shown)
    if found is None:
        raise ValueError(f"{program.name} printed {shown!r}")
    return float(found[1]), float(found[2])


def lines(strategies: Sequence[str], runs: int, events: int, seconds: float) -> Iterator[str]:
    """The tables in Markdown: medians of alternated runs."""
    each = _BLOCKS // THREADS
    cases = [(_BLOCKS, 1), (each, THREADS), (_BLOCKS, THREADS)]
    yield (
        f"| | 1 thread, {_BLOCKS} blocks | {THREADS} threads, {each} blocks each | ratio "
        f"| {THREADS} threads, {_BLOCKS} blocks each | ratio |"
    )
    yield "|---|--:|--:|--:|--:|--:|"
    for strategy in strategies:
        found = [[throughput(strategy, *case, events) for case in cases] for _ in range(runs)]
        one, same, more = map(statistics.median, zip(*found, strict=True))
        yield (
            f"| `{strategy}` | {one:.1f} | {same:.1f} | {same / one:.2f} "
            f"| {more:.1f} | {more / one:.2f} |"
        )
    yield ""
    yield f"| | 1 thread | {THREADS} threads | ratio | slowest thread / mean |"
    yield "|---|--:|--:|--:|--:|"
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for lock, words in LOCKS.items():
            pairs = [
                [sections(program, lock, threads, seconds) for threads in (1, THREADS)]
                for _ in range(runs)
            ]
            one, more = (statistics.median(pair[n][0] for pair in pairs) for n in (0, 1))
            slowest = statistics.median(pair[1][1] for pair in pairs)
            yield f"| {words} | {one:.1f} | {more:.1f} | {more / one:.2f} | {slowest:.2f} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("strategy", nargs="*", default=STRATEGIES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--events", type=int, default=9_600_000, help="of all threads together")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run of threads.cpp")
    given = parser.parse_args()
    try:
        for line in lines(given.strategy, given.runs, given.events, given.seconds):
            print(line, flush=True)
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: {shlex.join(error.cmd)}: {(error.stderr or '').strip()[-200:]}")
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
