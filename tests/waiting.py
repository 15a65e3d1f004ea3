# SPDX-License-Identifier: Apache-2.0
"""Waiting for processes."""

import time
from collections.abc import Callable

import psutil


def is_running(pid: int) -> bool:
    """Whether a process has not ended; one that has ended may still be listed."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until(reached: Callable[[], bool]) -> None:
    """Wait for an expected event; the limit only keeps a failing test from waiting forever."""
    deadline = time.monotonic() + 300
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)
