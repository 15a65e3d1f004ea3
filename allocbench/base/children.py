# SPDX-License-Identifier: Apache-2.0
"""Run a program that gets the signals meant for this process."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    stdout: int | None = None,
    stderr: int | None = None,
) -> int:
    """Run a command; returns its exit code as a shell gives it, 128 + N after signal N.

    stdout, stderr: file descriptors; None for those of this process. A terminal sends interrupts to
    the command as well, so this process ignores them; a request to terminate is passed on. This
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
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminated = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGTERM, terminated)
