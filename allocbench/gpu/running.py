# SPDX-License-Identifier: Apache-2.0
"""Runs tasks one after the other, each in a process group, and packs their results."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from allocbench.base.whole_file import whole_file
from allocbench.gpu import summary
from allocbench.gpu.provenance import ROOT
from allocbench.gpu.tasks import Task

FAILED, UNFINISHED, INTERRUPTED = 1, 3, 130


def run(
    tasks: list[Task], into: Path, variables: Mapping[str, str], arguments: argparse.Namespace
) -> int:
    """Run the tasks in order; a task that fails or times out leaves a `.failed` file.

    A task that the budget cuts off counts as not run. Afterwards, also after an interrupt, the
    README.md of the folder is rewritten from all results, and the folder is packed into one archive
    next to it. Returns the exit code.
    """
    begun, failed, unfinished = time.monotonic(), 0, 0
    try:
        for n, task in enumerate(tasks, 1):
            output = into / task.stage / f"{task.name}.json"
            left = arguments.budget - (time.monotonic() - begun)
            label = f"[{n}/{len(tasks)}] {task.stage} {task.name}"
            if output.exists() and not arguments.fresh:
                print(f"{label}: has a result", flush=True)
                continue
            if left <= 0:
                print(f"{label}: no time left", flush=True)
                unfinished += 1
                continue
            output.parent.mkdir(parents=True, exist_ok=True)
            command = task.command(str(output), dry=arguments.dry)
            limit, log = min(task.seconds, left), output.with_suffix(".log")
            took, code = _run(command, {**variables, **dict(task.variables)}, limit, log)
            if code is None and limit < task.seconds:
                print(f"{label}: {took:.1f} s: cut off by the budget", flush=True)
                unfinished += 1
                continue
            complaint = _complaint(code, limit, log)
            print(f"{label}: {took:.1f} s{complaint and ': ' + complaint}", flush=True)
            failed += bool(complaint)
            output.with_suffix(".failed").unlink(missing_ok=True)
            if complaint:
                failure = {"stage": task.stage, "name": task.name, "failure": complaint}
                output.with_suffix(".failed").write_text(json.dumps(failure) + "\n")
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
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


def _run(
    command: list[str], variables: Mapping[str, str], seconds: float, log: Path
) -> tuple[float, int | None]:
    """Run a task and write its output to a log; the seconds it took, and its exit code.

    The code is None if the task took longer than `seconds`.
    """
    environment = {**os.environ, **variables}
    environment["PYTHONPATH"] = os.pathsep.join(
        [environment.get("PYTHONPATH", ""), str(ROOT)]
    ).strip(os.pathsep)
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        # In its own process group, so that a timeout also ends children, which hold GPU memory.
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, start_new_session=True
        )
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return time.monotonic() - begun, None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return time.monotonic() - begun, code


def _complaint(code: int | None, seconds: float, log: Path) -> str:
    """One line about what went wrong with a task, or ""."""
    if code is None:
        return f"not done after {seconds:.0f} s; see {log.name}"
    if code == 0:
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"exit code {code}: {lines[-1:]}; see {log.name}"
