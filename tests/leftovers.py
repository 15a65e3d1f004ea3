# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: the run fails when a process that it started is still there at its end."""

import ctypes
import sys
import time
from collections.abc import Generator

import psutil
import pytest

_PR_SET_CHILD_SUBREAPER = 36
_SECONDS_TO_END = 20.0  # a process that was asked to end may need a while on a busy machine
_HELPERS = ("resource_tracker import main",)  # of multiprocessing: they end with their parent


def pytest_configure(config: pytest.Config) -> None:
    """Become the parent of every descendant whose own parent ends, so that none is lost."""
    if not hasattr(config, "workerinput"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Look for processes once fixtures are torn down and the workers of pytest-xdist are gone."""
    yield
    if hasattr(session.config, "workerinput"):
        return
    deadline = time.monotonic() + _SECONDS_TO_END
    while (left := _running()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process, command in left:
        sys.stderr.write(f"\nstill running at the end: {process.pid} {command}\n")
        process.kill()
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _running() -> list[tuple[psutil.Process, str]]:
    """Every descendant that has not ended, with its command line."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            ended = process.status() == psutil.STATUS_ZOMBIE
            command = " ".join(process.cmdline()) or process.name()
        except psutil.NoSuchProcess:
            continue
        if not ended and not any(helper in command for helper in _HELPERS):
            found.append((process, command))
    return found
