# SPDX-License-Identifier: Apache-2.0
"""Many runs in many processes."""

import ctypes
import os
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from multiprocessing import resource_tracker

import pandas as pd

from allocbench.base.errors import needs_extra
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
    """The result row of a run."""
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
    retry: bool = False,
    total: Callable[[int], None] = lambda runs: None,
    done: Callable[[Key], None] = lambda key: None,
    runner: Runner = measure,
) -> pd.DataFrame:
    """Run every trace through every allocator on every device, and return all rows of the file.

    Runs that are already in `path`, with all that the effort asks for, are skipped; so are failed
    ones unless `retry` is set. Each result is written to `path` when it arrives. A run that raises,
    or whose process dies, becomes a row with an error: see `bundle.frame` in `reports.rows`. An
    interrupt, an error or the end of this process also ends its workers.

    workers: processes; 0: one per processor. total: called once with the number of runs to make.
    done: called with each run when it ends. Host times are measured while other runs are in
    progress.

    Raises UsageError if the file cannot be used, or if the system cannot start the processes; the
    results before that are in the file.
    """
    records = open_records(path)
    finished = {
        key_of(record).identity
        for record in records
        if (not retry if record["error"] else _answers(record["row"], effort))
    }
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
    with closing(_on_processes(todo, effort, runner, workers or cpu_count())) as results:
        for record in results:
            append(path, record)
            records.append(record)
            done(key_of(record))
    return frame(records)


def _answers(row: Row, effort: Effort) -> bool:
    """Whether a row has what an effort measures. One of which that is not known has not."""
    return row.get("unavailable") is not None or (
        (row.get("passes") or 0) >= effort.passes
        and (not effort.capacity or row.get("min_capacity") is not None)
    )


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
