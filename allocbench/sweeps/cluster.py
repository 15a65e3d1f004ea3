# SPDX-License-Identifier: Apache-2.0
"""The runs of a sweep on the workers of a Dask cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from allocbench.base.errors import needs_extra
from allocbench.base.text import one_line
from allocbench.errors import UsageError
from allocbench.replays.experiment import Effort
from allocbench.reports.rows.bundle import Key, Record
from allocbench.sweeps.file import Runner, attempt, died
from allocbench.workloads import Trace

_CONNECT_SECONDS = 10
_POLL_SECONDS = 0.05  # between looks for results
_CHECK_SECONDS = 2  # between questions to the scheduler
_NO_WORKER_SECONDS = 60  # that a cluster may be without any worker


class _ClusterLostError(Exception):
    """No result can be expected; the message says why."""


def on_cluster(
    todo: Sequence[tuple[Key, Trace]], effort: Effort, runner: Runner, address: str
) -> Generator[Record]:
    """The records as they arrive from the workers of a Dask scheduler; each trace is sent once.

    Runs whose worker died are repeated one by one. Raises UsageError without the extra `cluster`,
    if no scheduler responds, or when the scheduler or all workers are gone.
    """
    finished = 0
    with _without_log(), _connected(address) as client:
        try:
            for record in _records(client, todo, effort, runner):
                finished += 1
                yield record
        except _ClusterLostError as lost:
            raise UsageError(
                f"--scheduler {address}: {lost}; {finished:,} of {len(todo):,} runs are finished"
                " and stored; the same command continues with the others"
            ) from lost


@contextmanager
def _without_log() -> Iterator[None]:
    """The client logs no tracebacks of lost connections, which become an error of one line."""
    log = logging.getLogger("distributed.client")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


def _connected(address: str) -> Any:
    """A client of the scheduler; raises UsageError."""
    try:
        return _distributed().Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = one_line(str(error)) or type(error).__name__
        raise UsageError(f"--scheduler {address}: no scheduler responds: {reason}") from error


def _distributed() -> Any:
    """The package; raises UsageError if it is not installed."""
    try:
        with needs_extra("cluster"):
            return import_module("distributed")
    except ModuleNotFoundError as error:
        raise UsageError(f"--scheduler: {error}") from error


def _records(
    client: Any, todo: Sequence[tuple[Key, Trace]], effort: Effort, runner: Runner
) -> Iterator[Record]:
    traces: dict[str, Any] = {}

    def submit(key: Key, trace: Trace) -> Any:
        if key.trace not in traces:  # a task, because scattered data dies with its worker
            traces[key.trace] = client.submit(_itself, trace, pure=False)
        return client.submit(attempt, runner, traces[key.trace], key, effort, pure=False)

    again: list[tuple[Key, Trace]] = []
    runs = {submit(key, trace): (key, trace) for key, trace in todo}
    for future in _ended(client, list(runs)):
        run = runs.pop(future)
        result = _result(client, future)
        if isinstance(result, BaseException):  # its worker died, perhaps because of another run
            again.append(run)
        else:
            yield result
    for key, trace in again:
        (future,) = _ended(client, [submit(key, trace)])
        result = _result(client, future)
        yield died(key, trace, result) if isinstance(result, BaseException) else result


def _itself(trace: Trace) -> Trace:
    return trace


def _ended(client: Any, futures: list[Any]) -> Iterator[Any]:
    """The futures as they end. Raises _ClusterLostError when none can end any more."""
    waiting = _distributed().as_completed(futures, loop=client.loop)
    watch = _Watch(client)
    while not waiting.is_empty():
        batch = waiting.next_batch(block=False)
        yield from batch
        if not batch:
            time.sleep(_POLL_SECONDS)
            watch.check()


def _result(client: Any, future: Any) -> Record | BaseException:
    """What an ended future has. Raises _ClusterLostError if its end is that of the connection."""
    try:
        record: Record = future.result()
    except (Exception, _distributed().CancelledError) as failure:
        if getattr(failure, "reason", "") == "scheduler-connection-lost":
            raise _ClusterLostError("the scheduler closed the connection") from failure
        _workers(client)
        return failure
    return record


class _Watch:
    """Asks the scheduler from time to time whether it has workers."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._asked = self._with_workers = time.monotonic()

    def check(self) -> None:
        """Raises _ClusterLostError without a scheduler, or a while after the last worker."""
        now = time.monotonic()
        if now - self._asked < _CHECK_SECONDS:
            return
        self._asked = now
        if _workers(self._client):
            self._with_workers = now
        elif now - self._with_workers >= _NO_WORKER_SECONDS:
            raise _ClusterLostError(f"it has had no worker for {_NO_WORKER_SECONDS} seconds")


def _workers(client: Any) -> int:
    """The number of workers. Raises _ClusterLostError if the client has no scheduler any more."""
    if client.status != "running":
        raise _ClusterLostError("the scheduler closed the connection")
    try:
        return len(client.nthreads())
    except (OSError, ValueError) as error:
        reason = one_line(str(error)) or type(error).__name__
        raise _ClusterLostError(f"the scheduler does not respond: {reason}") from error
