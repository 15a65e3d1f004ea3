# SPDX-License-Identifier: Apache-2.0
"""Times of strategies beside programs that replay the same trace through the originals.

An original is a strategy, a command and a pattern. The command replays a CSV trace (op,id,size),
whose file replaces {trace}, and prints its nanoseconds per event. The pattern has one group, which
finds them in the output.
"""

from __future__ import annotations

import argparse
import math
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

from benchmarks import common
from benchmarks.packages import allocators, catalog, workloads


def write_csv(trace: workloads.Trace, path: Path) -> None:
    """Write allocs and frees as op,id,size; every alloc has an id of its own."""
    ids: dict[int, int] = {}
    lines = ["op,id,size"]
    events = zip(trace.op.tolist(), trace.block.tolist(), trace.size.tolist(), strict=True)
    for op, block, size in events:
        if op == workloads.ALLOC:
            ids[block] = len(lines)
            lines.append(f"a,{ids[block]},{size}")
        elif op == workloads.FREE:
            lines.append(f"f,{ids[block]},")
    path.write_text("\n".join(lines) + "\n")


def original_time(command: str, pattern: str, trace: Path) -> float:
    """Nanoseconds per event that the command prints; ValueError if the pattern finds none."""
    words = [word.replace("{trace}", str(trace)) for word in shlex.split(command)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = re.search(pattern, done.stdout)
    if found is None:
        raise ValueError(f"{words[0]}: nothing in its output matches {pattern!r}")
    return float(found[1])


def compare(workload: str, originals: list[list[str]], rounds: int, passes: int) -> list[str]:
    """A line for each original: its minimum, that of the strategy, and their ratio."""
    trace = catalog.load(workload)
    instances = [
        allocators.make(strategy, allocators.make_device(common.DEVICE))
        for strategy, _, _ in originals
    ]
    ours = [math.inf] * len(originals)
    theirs = [math.inf] * len(originals)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        write_csv(trace, path)
        for _ in range(rounds):
            for n, (_, command, pattern) in enumerate(originals):
                theirs[n] = min(theirs[n], original_time(command, pattern, path))
                for _ in range(passes):
                    ours[n] = min(ours[n], 1e9 * allocators.time_pass(trace, instances[n]))
    return [
        f"{workload}: {strategy} {mine:.1f} ns per event, its original {its:.1f} ns, "
        f"ratio {mine / its:.2f}"
        for (strategy, _, _), mine, its in zip(originals, ours, theirs, strict=True)
    ]


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("workload")
    columns = ("STRATEGY", "COMMAND", "PATTERN")
    parser.add_argument("--original", action="append", required=True, nargs=3, metavar=columns)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=20)
    given = parser.parse_args()
    for line in compare(given.workload, given.original, given.rounds, given.passes):
        print(line)


if __name__ == "__main__":
    main()
