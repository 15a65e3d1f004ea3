# SPDX-License-Identifier: Apache-2.0
"""`python -m allocbench.gpu`: run what has not been run yet, as far as the time goes."""

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

    1 when a task failed, 2 for a wrong command line, 3 when the time did not suffice for all tasks.
    """
    parser = argparse.ArgumentParser(prog="python -m allocbench.gpu", description=__doc__)
    parser.add_argument("--only", default="", help=f"stages, of {','.join(STAGES)}")
    parser.add_argument("--match", default="", help="run only tasks whose name contains this")
    parser.add_argument("--into", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--budget", type=float, default=1500, help="seconds in which to end")
    parser.add_argument("--fresh", action="store_true", help="run again what has been run")
    parser.add_argument("--plan", action="store_true", help="print the commands, run nothing")
    parser.add_argument(
        "--dry", action="store_true", help="tiny programs on the processor: tries all but the GPU"
    )
    wanted = parser.parse_args()
    stages = [name for name in wanted.only.split(",") if name] or list(STAGES)
    if unknown := set(stages) - set(STAGES):
        parser.error(f"--only: no stage is called {min(unknown)}; stages: {', '.join(STAGES)}")
    tasks = [task for stage in stages for task in STAGES[stage]() if wanted.match in task.name]
    if not wanted.plan:
        try:
            cuda_devices()
        except SpecError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    return run(tasks, wanted)


def run(tasks: list[Task], wanted: argparse.Namespace) -> int:
    """Run the tasks in order; one that fails, or takes too long, leaves a file that says so.

    The folder's README.md is written anew from all the results that are there.
    """
    begun, failed, unfinished = time.monotonic(), 0, 0
    for n, task in enumerate(tasks, 1):
        output = wanted.into / task.stage / f"{task.name}.json"
        command = task.command(str(output), dry=wanted.dry)
        if wanted.plan:
            print(shlex.join([*(f"{key}={value}" for key, value in task.variables), *command]))
            continue
        left = wanted.budget - (time.monotonic() - begun)
        label = f"[{n}/{len(tasks)}] {task.stage} {task.name}"
        if output.exists() and not wanted.fresh:
            print(f"{label}: done before")
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
    if not wanted.plan and (text := summary.markdown(wanted.into)):
        (wanted.into / "README.md").write_text(text, encoding="utf-8")
    if failed:
        return 1
    return UNFINISHED if unfinished else 0


def _run(task: Task, command: list[str], seconds: float, log: Path) -> tuple[float, str]:
    """Run a task, and write all of its output to a log.

    Returns the seconds that it took, and in a line what went wrong.
    """
    environment = os.environ | dict(task.variables)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    begun = time.monotonic()
    with log.open("w+", encoding="utf-8", errors="replace") as file:
        # A group of its own: a timeout ends the children of the task too, which hold GPU memory.
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
