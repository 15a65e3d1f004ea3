# SPDX-License-Identifier: Apache-2.0
"""A command -> traces of what PyTorch's allocator was asked for on GPUs while it ran.

The command is not touched: every Python that starts below it runs `hook/sitecustomize.py`, which
has PyTorch keep its allocator's history and writes it down when the process ends. There is one
trace for each GPU of each process; processes that are killed leave none.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allocbench.workloads.files import read
from allocbench.workloads.trace import Trace

HOOK = Path(__file__).parent / "hook"
STACKS = {"none": "", "lines": "python", "operators": "all"}
"""What allocs may be labelled with -> which stacks PyTorch has to keep for it."""


class RecordError(RuntimeError):
    """A command cannot be recorded; one line says why."""


@dataclass(frozen=True)
class Machine:
    """GPUs that are not this machine's. environment: what makes a program see them."""

    name: str
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Recorded:
    """What came of a command: its exit code, as a shell has it, and traces by their names.

    A name says what tells a trace from the others: "" for a lone one, else "rank0-gpu1".
    """

    code: int
    traces: Mapping[str, Trace]
    complaints: Sequence[str]


def has_cuda() -> bool:
    """Whether there is an NVIDIA driver with at least one device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 == driver.cuDeviceGetCount(ctypes.byref(count)) and count.value > 0


def record(
    command: Sequence[str],
    labels: str = "none",
    last: int | None = None,
    path: Sequence[str] = (),
    quiet: bool = False,
    machine: Machine | None = None,
) -> Recorded:
    """Run a command to its end with this process's standard streams, and read what it left.

    labels: what allocs are labelled with, a key of STACKS. last: how many of the newest events
    of each process to keep; all of them when None. path: where its Python looks for modules
    before all else. quiet: whether its standard output is dropped. machine: GPUs that the command
    shall see instead of this machine's.

    Raises RecordError when there is no GPU to see or the command cannot be started, and TraceError
    for a snapshot that cannot be read.
    """
    if machine is None and not has_cuda():
        raise RecordError(
            "no CUDA device: a recording needs an NVIDIA GPU and its driver, or a null GPU: "
            "--device null:h100"
        )
    with tempfile.TemporaryDirectory() as folder:
        inherited = os.environ | (machine.environment if machine else {})
        environment = inherited | {
            "PYTHONPATH": os.pathsep.join(
                filter(None, (str(HOOK), *path, inherited.get("PYTHONPATH")))
            ),
            "ALLOCBENCH_RECORD": folder,
            "ALLOCBENCH_STACKS": STACKS[labels],
            "ALLOCBENCH_LAST": str(last or ""),
        }
        code = _run(command, environment, subprocess.DEVNULL if quiet else None)
        complaints = [path.read_text() for path in sorted(Path(folder).glob("*.error"))]
        traces = _traces(Path(folder), command, machine.name if machine else None)
        return Recorded(code, traces, complaints)


def _run(command: Sequence[str], environment: Mapping[str, str], stdout: int | None) -> int:
    """The exit code of a command, as a shell has it; an interrupt is the command's to handle."""
    try:
        process = subprocess.Popen(command, env=environment, stdout=stdout)
    except OSError as error:
        raise RecordError(f"{command[0]}: {error.strerror}") from error
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def _traces(folder: Path, command: Sequence[str], machine: str | None) -> dict[str, Trace]:
    """The traces of all snapshots in a folder, by what tells them apart.

    machine: what provenance calls the devices; what they call themselves when None.
    """
    found = dict[str, Trace]()
    for number, path in enumerate(sorted(folder.glob("*.pickle"))):
        about = json.loads(path.with_suffix(".json").read_text())
        process = f"rank{about['rank']}" if about["rank"] else f"process{number}"
        for device, name in about["devices"].items():
            trace = read(path, device=int(device))
            called = machine or f"{trace.provenance.device} {name}"
            found[f"{process}-gpu{device}"] = _with_provenance(trace, about, called, command)
    return found if len(found) != 1 else {"": next(iter(found.values()))}


def _with_provenance(
    trace: Trace, about: Mapping[str, Any], device: str, command: Sequence[str]
) -> Trace:
    kept = trace.provenance
    extra = {**kept.extra, "process": about["command"]}
    if about["rank"]:
        extra["rank"] = about["rank"]
    return replace(
        trace,
        provenance=replace(
            kept,
            name="",
            kind="recorded",
            source=shlex.join(command),
            torch=about["torch"],
            device=device,
            date=datetime.date.today().isoformat(),
            extra=extra,
        ),
    )
