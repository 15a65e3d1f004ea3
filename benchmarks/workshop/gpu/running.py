# SPDX-License-Identifier: Apache-2.0
"""Runs tasks, each in a process group, and packs their results."""

import argparse
import json
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from allocbench.base.files import whole_file
from benchmarks.workshop.gpu.provenance import ROOT
from benchmarks.workshop.gpu.sharing import MEMORY
from benchmarks.workshop.gpu.stages import Task
from benchmarks.workshop.gpu.tables import summary

FAILED, UNFINISHED, INTERRUPTED = 1, 3, 130
_AGAIN = 0.05  # seconds


def run(
    tasks: list[Task], into: Path, variables: Mapping[str, str], arguments: argparse.Namespace
) -> int:
    """Run the tasks in order; a task that fails or times out leaves a `.failed` file.

    Up to `arguments.jobs` tasks run at the same time, as long as their GPU memory is at most
    `MEMORY` GiB together; a task that does not fit yet is passed over by later ones that do. A task
    that the budget cuts off counts as not run. Afterwards, also after an interrupt, the README.md
    of the folder is rewritten from all results, and the folder is packed into one archive next to
    it. Returns the exit code.
    """
    begun, failed, unfinished = time.monotonic(), 0, 0
    waiting, running = list(enumerate(tasks, 1)), list[_Running]()
    try:
        while waiting or running:
            free = MEMORY - sum(one.task.gib for one in running)
            next_one = next((one for one in waiting if one[1].gib <= free), None)
            if next_one is None or len(running) >= arguments.jobs:
                ended = _first_to_end(running)
                running.remove(ended)
                complaint, cut_off = ended.end()
                failed += bool(complaint)
                unfinished += cut_off
                continue
            waiting.remove(next_one)
            number, task = next_one
            output = into / task.stage / f"{task.name}.json"
            left = arguments.budget - (time.monotonic() - begun)
            label = f"[{number}/{len(tasks)}] {task.stage} {task.name}"
            if output.exists() and not arguments.fresh:
                print(f"{label}: has a result", flush=True)
            elif left <= 0:
                print(f"{label}: no time left", flush=True)
                unfinished += 1
            else:
                output.parent.mkdir(parents=True, exist_ok=True)
                command = task.command(str(output), dry=arguments.dry)
                limit, log = min(task.seconds, left), output.with_suffix(".log")
                process = Process(command, {**variables, **dict(task.variables)}, limit, log)
                running.append(_Running(task, label, output, process))
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        for one in running:
            one.process.stop()
        pack(into)
    if failed:
        return FAILED
    return UNFINISHED if unfinished else 0


def pack(folder: Path) -> None:
    """Write the README.md of a folder of results, and `FOLDER.tar.gz` with all of its files."""
    if not folder.exists():
        return
    if text := summary.markdown(folder):
        (folder / "README.md").write_text(text, encoding="utf-8")
    archive = folder.with_name(f"{folder.name}.tar.gz")
    with whole_file(archive) as file, tarfile.open(fileobj=file, mode="w:gz") as packed:
        packed.add(folder, folder.name)
    print(f"all results: {archive}", flush=True)


class Process:
    """A process that ends, with its children, after a number of seconds; its output is in a log."""

    def __init__(
        self, command: list[str], variables: Mapping[str, str], seconds: float, log: Path
    ) -> None:
        environment = {**os.environ, **variables}
        environment["PYTHONPATH"] = os.pathsep.join(
            [environment.get("PYTHONPATH", ""), str(ROOT)]
        ).strip(os.pathsep)
        self.limit, self.log = seconds, log
        self.begun = time.monotonic()
        with log.open("w", encoding="utf-8") as file:
            # In its own process group, so that a timeout also ends children, which hold GPU memory.
            self._process = subprocess.Popen(
                command, env=environment, stdout=file, stderr=file, start_new_session=True
            )

    @property
    def is_over(self) -> bool:
        """Whether the process has ended or used up its seconds."""
        return self._process.poll() is not None or time.monotonic() - self.begun >= self.limit

    def stop(self) -> tuple[float, int | None]:
        """End the process if it runs; the seconds that it took, and its exit code.

        The code is None if the process had not ended by itself.
        """
        took, code = time.monotonic() - self.begun, self._process.poll()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return took, code


@dataclass(frozen=True, eq=False)
class _Running:
    task: Task
    label: str
    output: Path
    process: Process

    def end(self) -> tuple[str, bool]:
        """Stop the process and print a line; the complaint, and whether the budget cut it off."""
        took, code = self.process.stop()
        if code is None and self.process.limit < self.task.seconds:
            print(f"{self.label}: {took:.1f} s: cut off by the budget", flush=True)
            return "", True
        complaint = _complaint(code, self.process.limit, self.process.log)
        print(f"{self.label}: {took:.1f} s{complaint and ': ' + complaint}", flush=True)
        self.output.with_suffix(".failed").unlink(missing_ok=True)
        log = self.process.log
        if not complaint and log.stat().st_size == 0:
            log.unlink()
        if complaint:
            failure = {"stage": self.task.stage, "name": self.task.name, "failure": complaint}
            self.output.with_suffix(".failed").write_text(json.dumps(failure) + "\n")
        return complaint, False


def _first_to_end(running: list[_Running]) -> _Running:
    """Wait until a process is over."""
    while True:
        for one in running:
            if one.process.is_over:
                return one
        time.sleep(_AGAIN)


def _complaint(code: int | None, seconds: float, log: Path) -> str:
    """One line about what went wrong with a task, or ""."""
    if code is None:
        return f"not done after {seconds:.0f} s; see {log.name}"
    if code == 0:
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"exit code {code}: {lines[-1:]}; see {log.name}"
