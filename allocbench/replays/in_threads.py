# SPDX-License-Identifier: Apache-2.0
"""Calls that run in threads, for work that spends its time in native code without the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TypeVar

Result = TypeVar("Result")


class StoppedError(Exception):
    """The result of a call is no longer wanted."""


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def results(calls: Sequence[Callable[..., Result]], *, at_once: int) -> Iterator[Iterator[Result]]:
    """The results of calls, in order; at most `at_once` of them run at the same time.

    Each call gets a function as `proceed` and calls it now and then: it raises StoppedError after
    the result is no longer wanted. If at_once is 1, each call runs in this thread when its result
    is asked for. The exception of a call is raised in place of its result. At its end, the block
    waits for the calls that run; those that have not begun are dropped.
    """
    threads = min(at_once, len(calls))
    if threads <= 1:
        yield (call(proceed=_nothing) for call in calls)
        return
    ended = Event()

    def proceed() -> None:
        if ended.is_set():
            raise StoppedError

    with ThreadPoolExecutor(threads) as pool:
        try:
            futures = [pool.submit(call, proceed=proceed) for call in calls]
            yield (future.result() for future in futures)
        finally:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _nothing() -> None:
    pass
