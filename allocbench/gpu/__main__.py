# SPDX-License-Identifier: Apache-2.0
"""`python -m allocbench.gpu`: run the tasks that have no result yet, within a time budget."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from allocbench.allocators import SpecError, cuda_devices
from allocbench.gpu import summary
from allocbench.gpu.provenance import ROOT
from allocbench.gpu.tasks import STAGES, Task

UNFINISHED = 3
RESULTS = ROOT / "benchmarks" / "results" / "gpu"


def main() -> int:
    """The command line; returns the exit code.

    1 if a task failed, 2 for a wrong command line, 3 if the time was too short for all tasks.
    """
    parser = argparse.ArgumentParser(prog="python -m allocbench.gpu", description=__doc__)
    parser.add_argument("--only", default="", help=f"stages to run, from {','.join(STAGES)}")
    parser.add_argument("--match", default="", help="run only tasks whose name contains this")
    parser.add_argument("--into", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--budget", type=float, default=1500, help="time budget in seconds")
    parser.add_argument("--fresh", action="store_true", help="repeat tasks that have a result")
    parser.add_argument("--plan", action="store_true", help="only print the commands")
    parser.add_argument("--dry", action="store_true", help="rehearse with tiny programs on the CPU")
    arguments = parser.parse_args()
    stages = [name for name in arguments.only.split(",") if name] or list(STAGES)
    if unknown := set(stages) - set(STAGES):
        parser.error(f"--only: no stage is called {min(unknown)}; stages: {', '.join(STAGES)}")
    tasks = [task for stage in stages for task in STAGES[stage]() if arguments.match in task.name]
    if not arguments.plan:
        try:
            cuda_devices()
        except SpecError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    return run(tasks, arguments)


def run(tasks: list[Task], arguments: argparse.Namespace) -> int:
    """Run the tasks in order; a task that fails or times out leaves a `.failed` file.

    Afterwards, the README.md of the folder is rewritten from all results.
    """
    begun, failed, unfinished = time.monotonic(), 0, 0
    for n, task in enumerate(tasks, 1):
        output = arguments.into / task.stage / f"{task.name}.json"
        command = task.command(str(output), dry=arguments.dry)
        if arguments.plan:
            print(shlex.join([*(f"{key}={value}" for key, value in task.variables), *command]))
            continue
        left = arguments.budget - (time.monotonic() - begun)
        label = f"[{n}/{len(tasks)}] {task.stage} {task.name}"
        if output.exists() and not arguments.fresh:
            print(f"{label}: has a result")
        elif left <= 0:
            print(f"{label}: no time left")
            unfinished += 1
        else:
            output.parent.mkdir(parents=True, exist_ok=True)
            took, complaint = _run(
                task, command, min(task.seconds, left), output.with_suffix(".log")
            )
            print(f"{label}: {took:.1f} s{': ' + complaint if complaint else ''}", flush=True)
            failed += bool(complaint)
            if complaint:
                failure = {"stage": task.stage, "name": task.name, "failure": complaint}
                output.with_suffix(".failed").write_text(json.dumps(failure) + "\n")
            else:
                output.with_suffix(".failed").unlink(missing_ok=True)
    if not arguments.plan and (text := summary.markdown(arguments.into)):
        (arguments.into / "README.md").write_text(text, encoding="utf-8")
    if failed:
        return 1
    return UNFINISHED if unfinished else 0


def _run(task: Task, command: list[str], seconds: float, log: Path) -> tuple[float, str]:
    """Run a task and write its output to a log.

    Returns the seconds it took, and one line about what went wrong, if anything.
    """
    environment = os.environ | dict(task.variables)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    begun = time.monotonic()
    with log.open("w+", encoding="utf-8", errors="replace") as file:
        # In its own process group, so that a timeout also ends children, which hold GPU memory.
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, start_new_session=True
        )
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return time.monotonic() - begun, f"not done after {seconds:.0f} s; see {log.name}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        file.seek(0)
        lines = file.read().strip().splitlines()
    complaint = "" if code == 0 else f"exit code {code}: {lines[-1:]}; see {log.name}"
    return time.monotonic() - begun, complaint


if __name__ == "__main__":
    sys.exit(main())
