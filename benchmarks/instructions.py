# SPDX-License-Identifier: Apache-2.0
"""Instructions per event: unlike times, they repeat on a machine that does other work, too.

`perf stat` counts them where the processor's counters are available, otherwise valgrind.
"""

import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import common
from benchmarks.packages import allocators, catalog, workloads

ROOMY = "sim:1024TiB"
"""A device that is enough for `bump`, which reuses nothing."""
_WARM = 2
"""Passes before those that are counted."""
_PASSES = {"perf": 2000, "valgrind": 20}
"""Counted passes of the suite. perf also counts the start of the interpreter, which varies by some
millions of instructions."""
_INSIDE = "ffi_call"
"""valgrind counts only inside of this function, through which `ctypes` calls others."""


@common.tracks(instructions_per_event="count of instructions")
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
            allocators.make(allocator, allocators.make_device(ROOMY))
            trace = catalog.load(workload)
        try:
            counted = per_event(counter, allocator, workload, len(trace.op), _PASSES[counter])
        except subprocess.CalledProcessError as error:
            last = (error.stderr.strip().splitlines() or ["no message"])[-1]
            return common.Failed(f"{counter}: {last}")
        return {"instructions_per_event": counted}

    def setup_cache(self) -> object:
        return self.cells()


def per_event(counter: str, allocator: str, workload: str, events: int, passes: int) -> float:
    """Instructions per event of a pass of an allocator over a workload or a file.

    Raises CalledProcessError if the process fails, ValueError if nothing was counted.
    """

    def line(passes: int) -> list[str]:
        return [sys.executable, "-m", __name__, allocator, workload, str(passes)]

    if counter == "valgrind":
        try:
            return count(counter, line(passes), inside=_INSIDE) / passes / events
        except ValueError:  # a build of Python in which the function has another name
            passes *= 15  # as many as the start of the interpreter needs
    return difference(counter, line, passes) / events


def difference(counter: str, line: Callable[[int], Sequence[str]], passes: int) -> float:
    """Instructions of a pass: those of a process with more passes minus those with none.

    line: a command, for a number of passes. Raises like `per_event`.
    """
    none, more = (count(counter, line(number)) for number in (0, passes))
    return (more - none) / passes


def count(counter: str, line: Sequence[str], inside: str | None = None) -> int:
    """Instructions of a process, or those inside of a function, which needs valgrind.

    Raises like `per_event`.
    """
    command = [*_COMMANDS[counter], *([f"--toggle-collect={inside}"] if inside else [])]
    root = str(Path(__file__).parents[1])
    stable = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": root}
    done = subprocess.run([*command, *line], capture_output=True, text=True, check=True, env=stable)
    return read_count(done.stderr)


def read_count(report: str) -> int:
    """The instructions in a report of perf or of valgrind; ValueError if it has none."""
    found = re.search(r"^(\d+),.*instructions|I +refs: +([\d,]+)", report, re.MULTILINE)
    number = 0 if found is None else int((found[1] or found[2]).replace(",", ""))
    if not number:
        raise ValueError(f"no number of instructions in: {report.strip()[-200:]!r}")
    return number


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
    "valgrind": ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"],
}


def load(workload: str) -> workloads.Trace:
    """A workload by its name, or a trace file."""
    return workloads.read(workload) if Path(workload).is_file() else catalog.load(workload)


def _make_passes(allocator: str, workload: str, passes: int) -> None:
    trace = load(workload)
    instance = allocators.make(allocator, allocators.make_device(ROOMY))
    for _ in range(_WARM):
        allocators.time_pass(trace, instance)

    def counted() -> None:
        for _ in range(passes):
            allocators.time_pass(trace, instance)

    ctypes.PYFUNCTYPE(None)(counted)()  # inside of _INSIDE


if __name__ == "__main__":
    _make_passes(sys.argv[1], sys.argv[2], int(sys.argv[3]))
