# SPDX-License-Identifier: Apache-2.0
"""Run a command and record what its processes request from PyTorch's GPU allocator.

The command is not changed: each of its Python processes runs `recording_hook.py`, which has PyTorch
keep the history of its allocator, and writes it to a file when the process ends. There is one trace
for each GPU of each process. A process that is killed leaves none.
"""

import ctypes
import datetime
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from allocbench.base import children
from allocbench.base.children import Ended, hook_variables
from allocbench.base.errors import UserError
from allocbench.base.text import command_text, without_secrets
from allocbench.workloads.files import read
from allocbench.workloads.module_hook import OUTPUT_SHAPES, PARAMETER_SHAPES
from allocbench.workloads.trace import Trace

_HOOK = Path(__file__).with_name("recording_hook.py")
PEAK_RESERVED = "peak_reserved"
"""Key in a provenance's `extra`: the most bytes that PyTorch's allocator reserved, as it says."""
_MODULES = Path(__file__).with_name("module_hook.py")
_OPENED = Path(__file__).with_name("opened_files_hook.py")
STACKS = {"none": "", "lines": "python", "operators": "all"}
"""Label of allocs -> the stacks that PyTorch must keep for it."""


Opened: TypeAlias = tuple[str, tuple[int, int, int] | None]
"""A file and its status."""


class RecordError(UserError):
    """A command cannot be recorded. The message is one line."""


@dataclass(frozen=True)
class Machine:
    """GPUs that this machine does not have. environment: variables that make a program see them."""

    name: str
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Recorded:
    """The exit code of a command, as in a shell, and its traces by name.

    The name of a trace is "" if it is the only one, otherwise for example "rank0-gpu1".
    files: the interpreters and libraries of the recorded processes. opened: the files that the
    Python processes of the command read, imported ones included, with size, time of the last change
    of the content, and time of the last change of anything (ns) at that moment; None: it did not
    exist. signal: the SIGTERM or SIGHUP that this process got meanwhile and passed on, or None.
    """

    code: int
    traces: Mapping[str, Trace]
    complaints: Sequence[str]
    files: frozenset[str] = frozenset()
    opened: Sequence[Opened] = ()
    signal: int | None = None


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
    machine: Machine | None = None,
    keep: Path | None = None,
    steps: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> Recorded:
    """Run a command with the standard streams of this process, and read its recordings.

    labels: how allocs are labeled, a key of STACKS. last: number of newest events of each process
    to keep; None keeps all. path: folders that its Python searches for modules first. machine:
    GPUs that the command sees instead of this machine's. steps: optimizer steps after which each
    process ends, None for no limit. stdout, stderr: file
    descriptors for the output of the command; None: those of this process. keep: a folder for the
    memory snapshots themselves. variables: environment variables to add to those of this process.

    Raises RecordError if there is no GPU or the command cannot be started, and TraceError for a
    snapshot that cannot be read.
    """
    if machine is None and not has_cuda():
        raise RecordError(
            "no CUDA device: a recording needs an NVIDIA GPU and its driver, or a null GPU: "
            "--device null:h100"
        )
    # A process that goes on, such as a tracker of multiprocessing, may write into it to the end.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        inherited = {**os.environ, **(variables or {}), **(machine.environment if machine else {})}
        modules = os.pathsep.join(filter(None, (*path, inherited.get("PYTHONPATH"))))
        environment = inherited | {
            **_hooks({**inherited, "PYTHONPATH": modules}, STACKS[labels]),
            "ALLOCBENCH_RECORD": folder,
            "ALLOCBENCH_STACKS": STACKS[labels],
            "ALLOCBENCH_LAST": str(last or ""),
            "ALLOCBENCH_STEPS": str(steps or ""),
        }
        ended = _run(command, environment, stdout, stderr)
        complaints = [path.read_text() for path in sorted(Path(folder).glob("*.error"))]
        try:
            traces = _traces(Path(folder), command, machine.name if machine else None)
        finally:  # a snapshot that cannot be read is worth keeping
            if keep is not None:
                for snapshot in Path(folder).glob("*.pickle"):
                    shutil.move(snapshot, keep)
        told = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
        files = frozenset(file for about in told for file in about["files"])
        return Recorded(ended.code, traces, complaints, files, _opened(Path(folder)), ended.signal)


def _hooks(environment: Mapping[str, str], stacks: str) -> dict[str, str]:
    """The variables for the hooks; modules are visible in the stacks only."""
    added = dict[str, str]()
    for hook in (_OPENED, _HOOK, *((_MODULES,) if stacks else ())):
        added |= hook_variables(hook, {**environment, **added})
    return added


def _run(
    command: Sequence[str], environment: Mapping[str, str], stdout: int | None, stderr: int | None
) -> Ended:
    try:
        return children.run(command, environment, stdout, stderr)
    except OSError as error:
        raise RecordError(f"{command[0]}: {error.strerror}") from error


def _opened(folder: Path) -> list[Opened]:
    lines = [line for path in folder.glob("*.opened") for line in path.read_text().splitlines()]
    return [(path, status and tuple(status)) for path, status in map(json.loads, lines)]


def program_name(command: Sequence[str]) -> str:
    """What a command's program is called: the stem of its script, else its module or first word."""
    script = next((word for word in command if word.endswith(".py")), "")
    modules = [word for option, word in pairwise(command) if option == "-m"]
    return Path(script).stem if script else modules[0] if modules else Path(command[0]).stem


def _traces(folder: Path, command: Sequence[str], machine: str | None) -> dict[str, Trace]:
    """The traces of all snapshots in a folder by name.

    machine: the name of the devices in the provenance; None: the names that they report.
    """
    traces = dict[str, Trace]()
    for number, path in enumerate(sorted(folder.glob("*.pickle"))):
        about = json.loads(path.with_suffix(".json").read_text())
        process = f"rank{about['rank']}" if about["rank"] else f"process{number}"
        for device, name in about["devices"].items():
            trace = read(path, device=int(device))
            device_name = machine or f"{trace.provenance.device} {name}"
            reserved = {PEAK_RESERVED: about["reserved"][device]}
            told = {**about, "extra": reserved}
            traces[f"{process}-gpu{device}"] = _with_provenance(trace, told, device_name, command)
    return traces if len(traces) != 1 else {"": next(iter(traces.values()))}


def _with_provenance(
    trace: Trace, about: Mapping[str, Any], device: str, command: Sequence[str]
) -> Trace:
    provenance = trace.provenance
    extra = {
        **provenance.extra,
        **about["extra"],
        "process": without_secrets(about["command"]),
        "features": about["features"],
    }
    found = {OUTPUT_SHAPES: about["shapes"], PARAMETER_SHAPES: about["parameters"]}
    extra |= {key: shapes for key, shapes in found.items() if shapes}
    if about["rank"]:
        extra |= {"rank": about["rank"], "world": about["world"]}
    coverage = trace.coverage
    if coverage.ends == "open":  # the snapshot was written when the process ended
        coverage = replace(coverage, ends="stopped" if about["stopped"] else "exit")
    return replace(
        trace.relabeled(about["operators"]),
        coverage=coverage,
        provenance=replace(
            provenance,
            name="",
            kind="recorded",
            source=command_text(command),
            torch=about["torch"],
            device=device,
            date=datetime.date.today().isoformat(),
            extra=extra,
        ),
    )
