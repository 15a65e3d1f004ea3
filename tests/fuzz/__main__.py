# SPDX-License-Identifier: Apache-2.0
"""Fuzz everything for some time: `python -m tests.fuzz --seconds 60`.

`--only parquet --inputs 1000000` gives one target that many inputs instead, however long it takes.
Inputs that reach new code are kept in build/fuzz/corpus and used again by the next run; those that
fail are kept in build/fuzz/failures. `--keep` reduces the corpus to the fewest inputs that reach
the same code, and stores them in tests/fuzz/corpus.zip, with which the next clone begins. The exit
code is 1 if something failed.
"""

import argparse
import math
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from tests.conftest import CASES, Case
from tests.fuzz import corpus, sequences
from tests.fuzz.seeds import seeds

SEQUENCES = "sequences"
MOST_SECONDS = 120  # for an input, on a busy machine; the worker counts processor time
MOST_MIB = 4096  # of memory
_BLIND = "no interesting inputs were found"
_FOLDER = Path("build/fuzz")
_LIMITS = (
    f"-timeout={MOST_SECONDS}",
    f"-rss_limit_mb={MOST_MIB}",
    "-max_len=262144",
    "-print_final_stats=1",
)


@dataclass(frozen=True)
class Outcome:
    """What a target tried, and how it failed, or nothing."""

    target: str
    tried: str
    seconds: float
    memory: str = ""
    reached: str = ""  # edges of the code, and how many combinations of an edge and its count
    failure: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of all targets together")
    parser.add_argument("--inputs", type=int, help="of each target, instead of a time")
    parser.add_argument("--only", action="append", help="a target; can be given several times")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices")
    parser.add_argument("--keep", action="store_true", help="store the corpus, without fuzzing")
    parser.add_argument("--case", help="repeat one sequence of this allocator with the given seed")
    given = parser.parse_args()
    if given.case:
        return _repeat(given.case, given.seed)
    inputs, kept = seeds(), corpus.kept()
    names = given.only or [SEQUENCES, *inputs]
    if unknown := [name for name in names if name not in (SEQUENCES, *inputs)]:
        parser.error(f"no target {unknown[0]}; targets: {', '.join((SEQUENCES, *inputs))}")
    workers = len(os.sched_getaffinity(0))
    share = given.seconds * min(workers, len(names)) / len(names)
    for name in names:
        _store_seeds(name, [*inputs.get(name, []), *kept.get(name, [])])
    if given.keep:
        corpus.keep({name: _fewest(name) for name in names if name != SEQUENCES})
        return 0
    with ThreadPoolExecutor(workers) as pool:
        outcomes = list(pool.map(lambda name: _fuzz(name, share, given.inputs, given.seed), names))
    _show(outcomes)
    return int(any(outcome.failure for outcome in outcomes))


def _store_seeds(target: str, inputs: list[bytes]) -> None:
    folder = _FOLDER / "seeds" / target
    folder.mkdir(parents=True, exist_ok=True)
    for position, content in enumerate(inputs):
        folder.joinpath(str(position)).write_bytes(content)


def _fuzz(target: str, seconds: float, inputs: int | None, seed: int) -> Outcome:
    began = time.monotonic()
    if target == SEQUENCES:
        most = [str(math.inf), str(seed), str(inputs)] if inputs else [str(seconds), str(seed)]
        command = [sys.executable, "-m", "tests.fuzz.sequences", *most]
        done = subprocess.run(command, capture_output=True, text=True)
        took, failure = time.monotonic() - began, done.stderr.strip()
        return Outcome(target, done.stdout.strip(), took, failure=failure)
    corpus, failures = _FOLDER / "corpus" / target, _FOLDER / "failures" / target
    for folder in (corpus, failures):
        folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "tests.fuzz.worker", target, *_LIMITS),
        f"-runs={inputs}" if inputs else f"-max_total_time={max(1, round(seconds))}",
        f"-seed={seed + 1}",
        f"-artifact_prefix={failures}/",
        *map(str, (corpus, _FOLDER / "seeds" / target)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    tried = re.search(r"stat::number_of_executed_units:\s+(\d+)", done.stderr)
    memory = re.search(r"stat::peak_rss_mb:\s+(\d+)", done.stderr)
    reached = re.findall(r"cov: (\d+) ft: (\d+)", done.stderr)
    return Outcome(
        target,
        f"{int(tried[1]):,} inputs" if tried else "",
        time.monotonic() - began,
        f"{memory[1]} MiB" if memory else "",
        "{} ({})".format(*reached[-1]) if reached else "",
        _failure(target, done.stderr) if done.returncode or _BLIND in done.stderr else "",
    )


def _fewest(target: str) -> list[bytes]:
    """The fewest inputs that reach what the corpus reaches."""
    with TemporaryDirectory() as folder:
        found = _FOLDER / "corpus" / target
        found.mkdir(parents=True, exist_ok=True)
        merge = "-merge=1", "-max_len=262144", folder, str(found), str(_FOLDER / "seeds" / target)
        command = [sys.executable, "-m", "tests.fuzz.worker", target, *merge]
        subprocess.run(command, capture_output=True, check=True)
        return [path.read_bytes() for path in Path(folder).iterdir()]


def _failure(target: str, log: str) -> str:
    """What libFuzzer says about a failure, and the command that repeats it."""
    if _BLIND in log:
        return "libFuzzer does not see which code an input reaches"
    said = re.findall(r"^(?:.*Error.*|.*(?:ERROR|ALARM): .*|AssertionError.*)$", log, re.MULTILINE)
    kept = re.search(r"Test unit written to (\S+)", log)
    repeat = f"python -m tests.fuzz.worker {target} {kept[1]}" if kept else log[-2000:]
    return f"{said[0] if said else 'failed'}\nrepeat it with: {repeat}"


def _repeat(spec: str, seed: int) -> int:
    case = next((case for case in CASES if case.spec == spec), Case(spec))
    failure = sequences.one(case, seed, sequences.Figures())
    print(failure or f"{spec}, seed {seed}: no rule was broken")
    return int(failure is not None)


def _show(outcomes: list[Outcome]) -> None:
    table = Table("target", "tried", "seconds", "memory", "reached", "result")
    for outcome in outcomes:
        result = "FAILED" if outcome.failure else "no failure"
        seconds = f"{outcome.seconds:.0f}"
        figures = outcome.tried, seconds, outcome.memory, outcome.reached
        table.add_row(outcome.target, *figures, result)
    Console().print(table)
    for outcome in outcomes:
        if outcome.failure:
            print(f"\n{outcome.target}: {outcome.failure}")


if __name__ == "__main__":
    sys.exit(main())
