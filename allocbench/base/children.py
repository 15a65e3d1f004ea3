# SPDX-License-Identifier: Apache-2.0
"""Run a program that gets the signals meant for this process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


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
) -> int:
    """Run a command; returns its exit code as a shell gives it, 128 + N after signal N.

    stdout, stderr: file descriptors; None for those of this process. A terminal sends interrupts to
    the command as well, so this process ignores them; SIGTERM and SIGHUP are passed on. This
    process then goes on when the command has ended. Raises OSError if it cannot be started.
    """
    process = subprocess.Popen(command, env=environment, stdout=stdout, stderr=stderr)
    with _signals_of(process):
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_of(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Only the main thread gets signals, and can handle them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored, as by nohup: by both
            before[number] = signal.signal(number, lambda one, _: process.send_signal(one))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
