# SPDX-License-Identifier: Apache-2.0
"""Times of strategies beside their originals, a reference loop and minimal programs, as a table.

An original is a strategy, a command and a pattern. The command replays a CSV trace (op,id,size),
whose file replaces {trace}, and prints its nanoseconds per event. The pattern has one group, which
finds them in the output. The reference loop, reference.cpp, takes a lock, looks up an address in a
hash table and moves a pointer. The minimal programs, floors.cpp, also do the least that makes
blocks reusable as a strategy does. $CXX or c++ compiles them.
"""

import argparse
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import common, instructions
from benchmarks.packages import allocators, workloads

STRATEGIES = ("bump", "free_lists", "tlsf", "buddy", "slab")
"""Strategies that are compared with the reference loop."""
MINIMAL = ("tlsf", "buddy", "slab")
"""Strategies of which floors.cpp has a minimal program."""
LOCKS = {"mutex": "`std::mutex`", "spin": "spin lock"}
"""The locks of the reference loop, in words; ratios are to the first."""
_PATTERN = r"ns_per_event min=([0-9.]+)"
_COUNTED = 20
"""Passes in which instructions are counted."""


@dataclass(frozen=True)
class Program:
    """A row of the table that is a program. command: with {trace} and {passes}."""

    name: str
    command: str
    pattern: str
    of: str = ""  # the strategy of which it is the original or a minimal program

    def line(self, trace: Path, passes: int) -> list[str]:
        """The words of the command for a trace."""
        values = {"{trace}": str(trace), "{passes}": str(passes)}
        words = shlex.split(self.command)
        for old, new in values.items():
            words = [word.replace(old, new) for word in words]
        return words

    def time(self, trace: Path, passes: int) -> float:
        """Nanoseconds per event that it prints; ValueError if the pattern finds none."""
        words = self.line(trace, passes)
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        found = re.search(self.pattern, done.stdout)
        if found is None:
            raise ValueError(f"{words[0]}: nothing in its output matches {self.pattern!r}")
        return float(found[1])


def write_csv(trace: workloads.Trace, path: Path) -> int:
    """Write allocs and frees as op,id,size, every alloc with an id of its own; their number."""
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
    return len(lines) - 1


def build_reference(folder: Path) -> list[Program]:
    """Compile the reference loop; a program for each of LOCKS. Raises CalledProcessError."""
    made = _compile("reference.cpp", folder)
    return [
        Program(f"reference loop, {words}", f"{made} {lock} {{trace}} {{passes}}", _PATTERN)
        for lock, words in LOCKS.items()
    ]


def build_minimal(folder: Path) -> list[Program]:
    """Compile the minimal programs, with the first of LOCKS. Raises CalledProcessError."""
    made = _compile("floors.cpp", folder)
    lock = next(iter(LOCKS))
    return [
        Program(f"minimal {of}", f"{made} {of} {lock} {{trace}} {{passes}}", _PATTERN, of)
        for of in MINIMAL
    ]


def _compile(name: str, folder: Path) -> str:
    """The path of the program, quoted for a shell."""
    source = Path(__file__).with_name(name)
    made = folder / source.stem
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    line = [*compiler, "-O3", "-DNDEBUG", "-std=c++20", str(source), "-o", str(made)]
    subprocess.run(line, check=True, capture_output=True, text=True)
    return shlex.quote(str(made))


def measure(
    workload: str,
    programs: Sequence[Program],
    strategies: Sequence[str],
    rounds: int,
    passes: int,
) -> dict[str, float]:
    """Nanoseconds per event by row, minima over rounds in which the rows take turns."""
    trace = instructions.load(workload)
    made = {name: allocators.make(name, _device(name)) for name in strategies}
    least = dict.fromkeys([*(program.name for program in programs), *strategies], math.inf)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        write_csv(trace, path)
        for _ in range(rounds):
            for program in programs:
                least[program.name] = min(least[program.name], program.time(path, passes))
            for name, instance in made.items():
                for _ in range(passes):
                    seconds = allocators.time_pass(trace, instance)
                    least[name] = min(least[name], 1e9 * seconds)
    return least


def _device(strategy: str) -> allocators.Device:
    """The device of a strategy: one that is not a candidate, such as `bump`, needs more room."""
    candidate = allocators.info(strategy.partition(":")[0]).candidate
    return allocators.make_device(common.DEVICE if candidate else instructions.ROOMY)


def count(
    workload: str, programs: Sequence[Program], strategies: Sequence[str]
) -> dict[str, float]:
    """Instructions per event of the programs and the strategies; empty without a counter."""
    counter = instructions.available_counter()
    if counter is None:
        return {}
    trace = instructions.load(workload)
    events = len(trace.op)
    found = {
        name: instructions.per_event(counter, name, workload, events, _COUNTED)
        for name in strategies
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        events = write_csv(trace, path)
        for program in programs:

            def line(passes: int, program: Program = program) -> list[str]:
                return program.line(path, passes)

            found[program.name] = instructions.difference(counter, line, _COUNTED) / events
    return found


def lines(
    times: Mapping[str, Mapping[str, float]],
    counts: Mapping[str, Mapping[str, float]],
    originals: Sequence[Program],
    reference: str,
    minimal: Sequence[Program] = (),
) -> Iterator[str]:
    """The table in Markdown: nanoseconds per event, ratios, instructions per event.

    times, counts: by workload, then by row. reference: the row that strategies without an original
    are compared with.
    """
    against = {row: [reference] for row in STRATEGIES}
    for row in dict.fromkeys(program.of for program in originals):
        against[row] = [program.name for program in originals if program.of == row]
    for program in minimal:
        against[program.of].append(program.name)
    counted = any(counts.values())
    headings = [f"{name}{more}" for name in times for more in ("", *([", instr."] * counted))]
    yield f"| | {' | '.join(headings)} |"
    yield f"|---|{'--:|' * len(headings)}"
    for row in next(iter(times.values())):
        cells = []
        for workload, found in times.items():
            cells.append(f"{found[row]:.1f}")
            if counted:
                number = counts[workload].get(row)
                cells.append("n/a" if number is None else f"{number:.0f}")
        yield f"| {f'`{row}`' if row in against else row} | {' | '.join(cells)} |"
        for other in against.get(row, ()):
            ratios = []
            for workload, found in times.items():
                ratios.append(f"{found[row] / found[other]:.2f}")
                mine, theirs = counts[workload].get(row), counts[workload].get(other)
                if counted:
                    ratios.append(f"{mine / theirs:.2f}" if mine and theirs else "n/a")
            yield f"| `{row}` / {other} | {' | '.join(ratios)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("workload", nargs="+", help="a bundled workload or a trace file")
    columns = ("STRATEGY", "COMMAND", "PATTERN")
    parser.add_argument("--original", action="append", default=[], nargs=3, metavar=columns)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--no-instructions", action="store_true", help="do not count instructions")
    given = parser.parse_args()
    originals = [
        Program(f"original {number}, `{Path(shlex.split(command)[0]).name}`", command, pattern, of)
        for number, (of, command, pattern) in enumerate(given.original, 1)
    ]
    strategies = list(dict.fromkeys([*(program.of for program in originals), *STRATEGIES]))
    with tempfile.TemporaryDirectory() as folder:
        try:
            reference = build_reference(Path(folder))
            minimal = build_minimal(Path(folder))
            times = {}
            counts: dict[str, dict[str, float]] = {}
            for workload in given.workload:
                name = Path(workload).stem
                built = [*reference, *minimal]
                programs = [*originals, *built]
                times[name] = measure(workload, programs, strategies, given.rounds, given.passes)
                counts[name] = {} if given.no_instructions else count(workload, built, strategies)
        except subprocess.CalledProcessError as error:
            sys.exit(f"error: {shlex.join(error.cmd)}: {(error.stderr or '').strip()[-200:]}")
        except (OSError, ValueError) as error:
            sys.exit(f"error: {error}")
    for line in lines(times, counts, originals, reference[0].name, minimal):
        print(line)


if __name__ == "__main__":
    main()
