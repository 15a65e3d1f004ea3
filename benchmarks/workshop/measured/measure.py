# SPDX-License-Identifier: Apache-2.0
"""Run the programs on a GPU, several at a time, and keep what they report."""

import contextlib
import json
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.workshop.measured import gate
from benchmarks.workshop.measured.plan import FIRST, Run
from benchmarks.workshop.measured.predict import fingerprint, now, results

RESULTS = "measured.jsonl"
EVENTS = "measured-events.tar"
_VARIABLE = "MEASURED_EVENTS"
_OUTSIDE = 1 << 30
"""Bytes of a context, libraries and loaded kernels, generously."""
_SPARE = 1.15
"""A measured peak may be higher than predicted by this factor without disturbing the others."""
_TRIALS = 12 << 30
"""Bytes that cuDNN may take in addition while it tries its algorithms."""
_SLOWEST = {"compiled": 240.0}
_USUAL_SLOWEST = 100.0  # seconds
_MOST_EVENT_BYTES = 15 << 20
_ERRORS = 1500  # characters kept of the error output
_PROVENANCE = (
    "import json; from benchmarks.workshop.gpu.provenance import provenance as found; "
    "print(json.dumps(found(dry=False)))"
)
_GRANULE = 512  # bytes; all addresses of PyTorch's allocator are multiples


@dataclass(frozen=True)
class Job:
    """A run, perhaps with a limit in bytes; `need`: bytes of the card that are kept for it."""

    run: Run
    limit: int | None
    need: int

    @property
    def name(self) -> str:
        """The name of the run, and which limit it has."""
        return self.run.name if self.limit is None else f"{self.run.name}@{self.limit}"


@dataclass
class _Started:
    """A process. begun: when it got its memory; until then it imports, and waits."""

    job: Job
    process: subprocess.Popen[bytes]
    output: Path
    events: Path
    begun: float | None = None
    beside: set[str] = field(default_factory=set)

    @property
    def ready(self) -> bool:
        """Whether it waits for memory."""
        return self.begun is None and self.output.stat().st_size > 0

    def too_late(self) -> bool:
        """Whether it has run longer than it may."""
        slowest = _SLOWEST.get(self.job.run.kind, _USUAL_SLOWEST)
        return self.begun is not None and time.monotonic() > self.begun + slowest

    def begin(self) -> None:
        """Let it run."""
        assert self.process.stdin is not None
        self.begun = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self.process.stdin.write(b"\n")
            self.process.stdin.close()


def jobs(runs: list[Run], predicted: Mapping[str, Any]) -> list[Job]:
    """All jobs in order: alone, compiled, without a limit, with one, and those that fill a card."""
    order: list[tuple[int, Job]] = []
    for run in runs:
        said = [found for found in predicted.get(run.name, {}).values() if "error" not in found]
        peak = max((found["peak_reserved"] for found in said), default=20 << 30)
        need = int(peak * _SPARE) + _OUTSIDE + (_TRIALS if "--benchmark" in run.options else 0)
        late = 4 if run.alone and run.name.endswith("-card") else 0 if run.alone else 2
        order.append((1 if run.kind == "compiled" else late, Job(run, None, need)))
        if run.limited and said:
            capacity = said[0]["min_capacity"]
            limits = (int(capacity * share) for share in run.limits)
            order += [(3, Job(run, limit, limit + _OUTSIDE)) for limit in limits]
    return [job for _, job in sorted(order, key=lambda pair: pair[0])]


def measure(
    todo: list[Job],
    into: Path,
    *,
    most_jobs: int,
    memory: int,
    budget: float,
    python: str,
    variables: Mapping[str, str],
    table: Path = FIRST,
) -> int:
    """Run jobs within a time budget in seconds and `memory` bytes of the card; the number left.

    Each result is appended to `into/measured.jsonl` at once; the events are put into one archive. A
    job that has a result there is not repeated.
    """
    into.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + budget
    known = _measured(into / RESULTS, fingerprint(table))
    waiting, started = [job for job in todo if job.name not in known], list[_Started]()
    environment = os.environ | {"OMP_NUM_THREADS": "2", **variables}
    with (
        tempfile.TemporaryDirectory() as name,
        ThreadPoolExecutor(4) as pool,
        (into / RESULTS).open("a" if known else "w", encoding="utf-8") as out,
    ):
        folder = Path(name)
        if not known:
            print(json.dumps(_provenance(environment, table)), file=out, flush=True)
        while started or waiting:
            late = time.monotonic() > deadline
            for one in list(started):
                if late or one.too_late():
                    _end(one.process)
                if one.process.poll() is not None:
                    started.remove(one)
                    row = _row(one)
                    print(json.dumps(row), file=out, flush=True)
                    print(f"{row['name']}: {_short(row)}", flush=True)
                    pool.submit(_pack, one.events)
            if late:
                break
            while waiting and len(started) < most_jobs:
                started.append(_start(waiting.pop(0), python, folder, environment))
            while chosen := _next(started, memory):
                chosen.begin()
                _note_neighbours([other for other in started if other.begun is not None])
            time.sleep(0.05)
        pool.shutdown(wait=True)
        for job in waiting:
            print(json.dumps({"name": job.name, "error": "not started"}), file=out, flush=True)
        _archive(folder, into / (f"again-{len(known)}-{EVENTS}" if known else EVENTS))
    return len(waiting)


def _measured(path: Path, mark: str) -> set[str]:
    """The jobs of a file of measurements of the same programs, by name, that have a result."""
    if not path.exists():
        return set()
    first, *rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    if first["fingerprint"] != mark:
        raise ValueError(f"{path} has measurements of other programs: name another folder")
    return {row["name"] for row in rows if "result" in row}


def _next(started: list[_Started], memory: int) -> _Started | None:
    """The next process that may run now."""
    running = [one.job for one in started if one.begun is not None]
    ready = [one for one in started if one.ready]
    if not ready or any(job.run.alone for job in running):
        return None
    if ready[0].job.run.alone:
        return None if running else ready[0]
    free = memory - sum(job.need for job in running)
    for one in ready:
        if one.job.run.alone:  # those after it wait for it
            return None
        if one.job.need <= free or not running:
            return one
    return None


def _start(job: Job, python: str, folder: Path, environment: dict[str, str]) -> _Started:
    stem = job.name.replace("@", "-")
    output, events = folder / f"{stem}.txt", folder / f"{stem}.json"
    interpreter, *command = job.run.command(python, job.limit)
    with output.open("wb") as file:
        process = subprocess.Popen(
            [interpreter, "-u", gate.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment | {_VARIABLE: str(events)},
            start_new_session=True,
        )
    return _Started(job, process, output, events)


def _note_neighbours(running: list[_Started]) -> None:
    for one in running:
        one.beside |= {other.job.name for other in running if other is not one}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and its workers; each has a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _row(one: _Started) -> dict[str, Any]:
    text = one.output.read_text(encoding="utf-8", errors="replace")
    found = results(text)
    row: dict[str, Any] = {
        "name": one.job.name,
        "run": one.job.run.name,
        "limit": one.job.limit,
        "date": now(),
        "exit_code": one.process.returncode,
        "seconds": round(time.monotonic() - (one.begun or time.monotonic()), 2),
        "beside": sorted(one.beside),
    }
    if found:
        return row | {"result": found[-1]}
    return row | {"error": text[-_ERRORS:] or "no output"}


def _short(row: Mapping[str, Any]) -> str:
    if "error" in row:
        return f"exit code {row['exit_code']}: {row['error'].strip().splitlines()[-1][:150]}"
    last = row["result"]["stages"][-1]
    ran_out = ", out of memory" if row["result"]["oom"] else ""
    return f"{last['peak_reserved'] / 2**20:,.0f} MiB reserved{ran_out}, {row['seconds']} s"


def _pack(path: Path) -> None:
    """Compress the events of a run; addresses become offsets in units of 512 bytes."""
    if not path.exists():
        return
    columns = json.loads(path.read_text(encoding="utf-8"))
    blocks = [
        0 if action == "oom" else place  # there, it is the number of free bytes
        for action, place in zip(columns["action"], columns["address"], strict=True)
    ]
    base = min(filter(None, blocks), default=0)
    columns["address"] = [(place - base) // _GRANULE if place else -1 for place in blocks]
    if not any(columns["stream"]):
        del columns["stream"]
    columns |= {"base": base, "address_unit": _GRANULE}
    text = json.dumps(columns, separators=(",", ":")).encode()
    path.with_suffix(".json.xz").write_bytes(lzma.compress(text, preset=4))
    path.unlink()


def _archive(folder: Path, target: Path) -> None:
    """Put the packed events into one file; the largest are left out if they are too many bytes."""
    total = 0
    with tarfile.open(target, "w") as archive:
        for path in sorted(folder.glob("*.json.xz"), key=lambda path: path.stat().st_size):
            total += path.stat().st_size + 1024  # of its header
            if total > _MOST_EVENT_BYTES:
                print(f"{path.name}: left out of {target.name}", flush=True)
                continue
            archive.add(path, path.name)


def _provenance(environment: Mapping[str, str], table: Path) -> dict[str, Any]:
    """What identifies the measurement, found in a process of its own: it creates a CUDA context."""
    told: dict[str, Any] = {"fingerprint": fingerprint(table), "date": now()}
    told["nvidia_smi"] = _output(["nvidia-smi", "-q", "-d", "MEMORY"], environment)[1]
    code, text = _output([sys.executable, "-c", _PROVENANCE], environment)
    if code:
        return told | {"error": text[-_ERRORS:]}
    told.update(json.loads(text.splitlines()[-1]))
    return told


def _output(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit code of a command, and what it printed."""
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_USUAL_SLOWEST,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout
