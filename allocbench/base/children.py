# SPDX-License-Identifier: Apache-2.0
"""Run a program, pass on the signals that this process gets meanwhile, and run hooks in it.

Hooks are files that every Python of the program runs around its import of torch. A hook file may
define

- `before_torch(package: Path)`, called before torch's own code runs; `package` is torch's folder;
- `after_torch(torch: ModuleType)`, called when torch has been imported;
- `AFTER: dict[str, Callable[[ModuleType], None]]`, functions to call when other modules have been
  imported, by the name of the module;
- `REFUSED: dict[str, str]`, packages whose import fails, with the message of the ImportError.

It runs in the program's installation of Python, where only the standard library is certain.
"""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    code: its exit code as a shell gives it, 128 + N after signal N. signal: the last SIGTERM or
    SIGHUP that this process got meanwhile and passed on, or None.
    """

    code: int
    signal: int | None = None


def refusal(command: Sequence[str]) -> str | None:
    """Why a command cannot be started, in one line; None if it can."""
    name = command[0]
    if shutil.which(name) is not None:
        return None
    if os.sep in name and os.path.isfile(name):
        return f"{name}: you may not execute this file (chmod +x makes it executable)"
    return f"{name}: no such program"


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    stdout: int | None = None,
    stderr: int | None = None,
) -> Ended:
    """Run a command until it ends.

    stdout, stderr: file descriptors; None for those of this process. A terminal sends interrupts to
    the command as well, so this process ignores them; SIGTERM and SIGHUP are passed on. This
    process then goes on when the command has ended. Raises OSError if it cannot be started.
    """
    process = subprocess.Popen(command, env=environment, stdout=stdout, stderr=stderr)
    with _signals_of(process) as passed_on:
        code = process.wait()
    return Ended(code if code >= 0 else 128 - code, passed_on[-1] if passed_on else None)


@contextmanager
def _signals_of(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Gives the signals that are passed on. Only the main thread gets signals."""
    passed_on: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield passed_on
        return

    def pass_on(number: int, _: object) -> None:
        passed_on.append(number)
        process.send_signal(number)

    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored, as by nohup: by both
            before[number] = signal.signal(number, pass_on)
    try:
        yield passed_on
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_FOLDER = Path(__file__).parent / "hook"
_VARIABLE = "ALLOCBENCH_HOOKS"


def hook_variables(file: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that add a hook to the environment of a program, after the hooks it has."""
    files = json.loads(environment.get(_VARIABLE, "[]"))
    path = environment.get("PYTHONPATH", "").split(os.pathsep)
    others = [entry for entry in path if entry and entry != str(_FOLDER)]
    return {
        _VARIABLE: json.dumps([*files, *({str(file)} - set(files))]),
        "PYTHONPATH": os.pathsep.join([str(_FOLDER), *others]),
    }
