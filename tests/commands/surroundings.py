# SPDX-License-Identifier: Apache-2.0
"""Runs commands in forks of one process that has imported them, which saves a second for each.

`python -m tests.commands.surroundings FOLDER SCRATCH` reads jobs as JSON from standard input and
writes outcomes to standard output. Each job has a copy of the folder to itself, no terminal, and no
standard input.
"""

import atexit
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from allocbench import interrupts
from allocbench.cli import app
from allocbench.commands import COMMANDS

FIRST_LINE = "| head -1"
FULL = "/dev/full"
UNDER = {"LC_ALL": "C", "TERM": "dumb", "COLUMNS": "40"}


@dataclass(frozen=True)
class Job:
    """A command line; `output` is "" (kept), FIRST_LINE or FULL.

    `interrupt` is a signal that is sent after `delay` seconds.
    """

    line: str
    output: str = ""
    interrupt: int = 0
    delay: float = 0


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `new` are the files that it left in its folder."""

    code: int
    out: str
    err: str
    new: list[str]
    seconds: float


def run(jobs: list[Job], folder: Path) -> list[Outcome]:
    """Run each job in a copy of the folder."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(folder), scratch],
            input=json.dumps([asdict(job) for job in jobs]),
            env={**os.environ, **UNDER, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            start_new_session=True,  # without a terminal
        )
    assert done.returncode == 0, done.stderr
    return [Outcome(**outcome) for outcome in json.loads(done.stdout)]


def _fork(job: Job, folder: Path, out: int, err: int) -> tuple[int, int]:
    """The process of a job, and a descriptor that is readable when signals end it quietly."""
    begun, begin = os.pipe()
    if pid := os.fork():
        os.close(begin)
        return pid, begun
    os.chdir(folder)
    for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
        os.dup2(descriptor, number)
    os.closerange(3, begin)
    sys.argv = ["allocbench", *job.line.split()]
    try:
        with interrupts.quiet():
            os.close(begin)
            app(prog_name="allocbench")
    except SystemExit as end:
        _exit(end.code)
    raise AssertionError("a command ends with SystemExit")


def _exit(code: object) -> NoReturn:
    """End as Python does, but without destroying a thousand modules, which takes half a second."""
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120  # Python's code for it
    os._exit(code if isinstance(code, int) else int(code is not None))


def _outcome(job: Job, folder: Path) -> Outcome:
    before = set(os.listdir(folder))
    kept, errors = folder.with_name("out"), folder.with_name("err")
    reader, out = -1, os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    err = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    if job.output == FULL:
        out = os.open(FULL, os.O_WRONLY)
    if job.output == FIRST_LINE:
        reader, out = os.pipe()
    began = time.monotonic()
    pid, begun = _fork(job, folder, out, err)
    os.read(begun, 1)
    if job.interrupt:
        time.sleep(job.delay)
        os.kill(pid, job.interrupt)
    for descriptor in (begun, out, err):
        os.close(descriptor)
    text = _first_line(reader) if reader >= 0 else ""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    seconds = time.monotonic() - began
    new = sorted(set(os.listdir(folder)) - before)
    return Outcome(code, text or kept.read_text(), errors.read_text(), new, seconds)


def _first_line(reader: int) -> str:
    """The output up to its first line feed; then the pipe is closed."""
    with os.fdopen(reader, "rb") as pipe:
        return pipe.readline().decode()


def _import_what_commands_use() -> None:
    for name in ("pandas", "pyarrow.csv", "pyarrow.parquet", "allocbench.api"):
        import_module(name)
    for command in COMMANDS:
        command.load()
    gc.collect()
    gc.freeze()  # a collection would copy the memory of every fork


def main() -> None:
    _import_what_commands_use()
    source, scratch = map(Path, sys.argv[1:])
    outcomes = []
    for number, job in enumerate(json.load(sys.stdin)):
        folder = scratch / str(number) / "folder"
        shutil.copytree(source, folder)
        outcomes.append(asdict(_outcome(Job(**job), folder)))
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
