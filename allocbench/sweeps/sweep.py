# SPDX-License-Identifier: Apache-2.0
"""Many runs in many processes, on this machine or on a Dask cluster."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from importlib import import_module
from multiprocessing import resource_tracker
from typing import Any

import pandas as pd

from allocbench.base.errors import needs_extra
from allocbench.base.text import one_line
from allocbench.errors import UsageError
from allocbench.replays import experiment
from allocbench.replays.experiment import Effort
from allocbench.replays.runner import Row
from allocbench.reports.rows.bundle import Key, Record, frame, key_of
from allocbench.sweeps.file import (
    Runner,
    append,
    attempt,
    code_version,
    died,
    fingerprint,
    open_records,
)
from allocbench.workloads import Trace

# A warning would say that /dev/shm cannot be used; `_starting` makes it an error.
with needs_extra("sweep"), warnings.catch_warnings(action="ignore"):
    from joblib import cpu_count
    from joblib.externals.loky import ProcessPoolExecutor

_PR_SET_PDEATHSIG, _SAFE_PATH = 1, "PYTHONSAFEPATH"
BYTES_ALONE = Effort(passes=0)
"""No host time: runs share the processors."""


def measure(trace: Trace, key: Key, effort: Effort) -> Row:
    """The result row of a run; raises an error if this code is not the key's."""
    if key.code != code_version():
        raise RuntimeError(f"this worker runs {code_version()}, not {key.code}")
    row, _ = experiment.run(trace, key.allocator, key.device, effort, workload=key.workload)
    return row


def sweep(
    traces: Mapping[str, Trace],
    specs: Sequence[str],
    devices: Sequence[str],
    path: str,
    effort: Effort = BYTES_ALONE,
    *,
    workers: int = 0,
    scheduler: str | None = None,
    retry: bool = False,
    total: Callable[[int], None] = lambda runs: None,
    done: Callable[[Key], None] = lambda key: None,
    runner: Runner = measure,
) -> pd.DataFrame:
    """Run every trace through every allocator on every device, and return all rows of the file.

    Runs that are already in `path` are skipped, including failed ones unless `retry` is set. Each
    result is written to `path` when it arrives. A run that raises, or whose process dies, becomes a
    row with an error: see `reports.rows.runs.frame`. An interrupt, an error or the end of this
    process also ends its workers.

    workers: processes of this machine; 0: one per processor. scheduler: the address of a Dask
    scheduler, whose workers are used instead; needs the extra `cluster`. total: called once with
    the number of runs to make. done: called with each run when it ends. Host times are measured
    while other runs are in progress.

    Raises UsageError if the file or the scheduler cannot be used, or when the scheduler or all its
    workers are gone; the results before that are in the file.
    """
    records = open_records(path)
    finished = {key_of(record).identity for record in records if not (retry and record["error"])}
    code = code_version()
    keys = {
        key.identity: (key, trace)
        for name, trace in traces.items()
        for mark in [fingerprint(trace)]
        for device in devices
        for key in [Key(name, mark, spec, device, code) for spec in specs]
    }
    todo = [pair for identity, pair in keys.items() if identity not in finished]
    total(len(todo))
    results = (
        on_cluster(todo, effort, runner, scheduler)
        if scheduler
        else _on_processes(todo, effort, runner, workers or cpu_count())
    )
    with closing(results):
        for record in results:
            append(path, record)
            records.append(record)
            done(key_of(record))
    return frame(records)


def _on_processes(
    todo: Sequence[tuple[Key, Trace]], effort: Effort, runner: Runner, workers: int
) -> Generator[Record]:
    """The records as they arrive. Runs in progress when a process died are repeated one by one."""
    left = dict(todo)
    while left:
        try:
            with _processes(workers) as pool:
                for record in _finished(pool, list(left.items()), effort, runner, workers):
                    del left[key_of(record)]
                    yield record
        except BrokenProcessPool:
            for key in list(left)[:workers]:  # they are started in this order
                yield _alone(key, left.pop(key), effort, runner)


def _alone(key: Key, trace: Trace, effort: Effort, runner: Runner) -> Record:
    try:
        with _processes(1) as pool:
            return next(_finished(pool, [(key, trace)], effort, runner, 1))
    except BrokenProcessPool as error:
        return died(key, trace, error)


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    os.getcwd()  # each process begins in the current folder
    with _starting(workers):
        pool = ProcessPoolExecutor(workers, initializer=_end_with, initargs=(os.getpid(),))
    try:
        yield pool
    finally:
        pool.shutdown(kill_workers=True)


@contextmanager
def _starting(workers: int) -> Iterator[None]:
    """Raise UsageError if the system refuses what processes need.

    Processes that start in it import no module of the current folder before they are told their
    path.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    except OSError as error:
        processes = "a process" if workers == 1 else f"{workers} processes"
        raise UsageError(
            f"--workers {workers}: the system cannot start {processes}: {error.strerror or error}; "
            "they need space in /dev/shm, open files (ulimit -n) and processes (ulimit -u)"
        ) from error
    finally:
        del os.environ[_SAFE_PATH]
        os.environ |= {_SAFE_PATH: before} if before is not None else {}


def _end_with(parent: int) -> None:
    """Have this process killed when its parent ends for any reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the call
            os._exit(1)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay an interrupt until the block ends; processes started in it never receive one.

    A terminal sends Ctrl-C to every process; this one ends the others.
    """
    resource_tracker.ensure_running()  # started later, it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _finished(
    pool: Executor, todo: Sequence[tuple[Key, Trace]], effort: Effort, runner: Runner, workers: int
) -> Iterator[Record]:
    with _starting(workers), _uninterrupted():
        futures: list[Future[Record]] = [
            pool.submit(attempt, runner, trace, key, effort) for key, trace in todo
        ]
    for future in as_completed(futures):
        yield future.result()


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
