# SPDX-License-Identifier: Apache-2.0
"""Instructions per event: unlike times, they repeat on a machine that does other work, too.

`perf stat` counts them where the processor's counters are available, otherwise valgrind.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks import common
from benchmarks.packages import allocators, catalog

_PASSES = (2, 302)
"""The difference between two numbers of passes excludes the start of the interpreter, which varies
by some millions of instructions."""
_CAPACITY = 2**50
"""Bytes: enough for `bump`, which reuses nothing."""


@common.tracks(instructions_per_event="count, repeats within 1 %")
class Instructions(common.Suite):
    """Instructions of the replay loop and the allocator per event, in passes over a warm allocator.

    Includes the check of the trace and the frees after each pass.
    """

    params: common.Params = (common.ALLOCATORS, ("random:allocs=3000",))
    param_names = ("allocator", "workload")

    def cell(self, allocator: str, workload: str) -> common.Cell:
        counter = available_counter()
        if counter is None:
            return "neither perf stat nor valgrind can count instructions here"
        with common.not_there():
            events = len(catalog.load(workload).op)
        try:
            few, many = (count(counter, allocator, workload, passes) for passes in _PASSES)
        except subprocess.CalledProcessError as error:
            last = (error.stderr.strip().splitlines() or ["no message"])[-1]
            return common.Failed(f"{counter}: {last}")
        return {"instructions_per_event": (many - few) / (_PASSES[1] - _PASSES[0]) / events}

    def setup_cache(self) -> object:
        return self.cells()


def count(counter: str, allocator: str, workload: str, passes: int) -> int:
    """Instructions of a process that makes `passes` passes; CalledProcessError if it fails."""
    program = [sys.executable, "-m", __name__, allocator, workload, str(passes)]
    root = str(Path(__file__).parents[1])
    stable = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": root}
    done = subprocess.run(
        [*_COMMANDS[counter], *program], capture_output=True, text=True, check=True, env=stable
    )
    return read_count(done.stderr)


def read_count(report: str) -> int:
    """The instructions in a report of perf or of valgrind; ValueError if it has none."""
    found = re.search(r"^(\d+),.*instructions|I +refs: +([\d,]+)", report, re.MULTILINE)
    if found is None:
        raise ValueError(f"no number of instructions in: {report.strip()[-200:]!r}")
    return int((found[1] or found[2]).replace(",", ""))


@functools.cache
def available_counter() -> str | None:
    """The first counter that counts the instructions of a short program; None if none does."""
    for name, command in _COMMANDS.items():
        if shutil.which(command[0]) is None:
            continue
        done = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
        try:
            if done.returncode == 0 and read_count(done.stderr) > 0:
                return name
        except ValueError:
            continue
    return None


_COMMANDS = {
    "perf": ["perf", "stat", "-x", ",", "-e", "instructions:u"],
    "valgrind": [
        "valgrind",
        "--tool=cachegrind",
        "--cache-sim=no",
        "--cachegrind-out-file=/dev/null",
    ],
}


def _make_passes(allocator: str, workload: str, passes: int) -> None:
    trace = catalog.load(workload)
    instance = allocators.make(allocator, allocators.SimulatedDevice(_CAPACITY))
    for _ in range(passes):
        allocators.time_pass(trace, instance)


if __name__ == "__main__":
    _make_passes(sys.argv[1], sys.argv[2], int(sys.argv[3]))
