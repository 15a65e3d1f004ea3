# SPDX-License-Identifier: Apache-2.0
"""How a program gets null GPUs: the environment of its processes, and the files they leave."""

import json
import os
import re
import shlex
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from allocbench.allocators import SpecError
from allocbench.base import units
from allocbench.base.children import hook_variables
from allocbench.base.files import cache
from allocbench.base.spec import parse_option
from allocbench.null_gpu.device import NullDevice, is_null, read
from allocbench.null_gpu.inside.processes import RUNNING
from allocbench.null_gpu.inside.reads import OUTSIDE_PYTHON
from allocbench.null_gpu.stubs import CORE_SONAME
from allocbench.null_gpu.torch_build import NullGpuError, check_host
from allocbench.workloads.recording import Machine

VARIABLE = "ALLOCBENCH_NULL"
_HOOK = Path(__file__).parent / "inside" / "__init__.py"
_ROOT = Path(__file__).parents[2]
_REPORT = ".null.json"  # of a process
_SITES = 3  # named in a note
_NOWHERE = "no line that it names read a computed value"
_BENCHMARK = (
    "cudnn.benchmark is on: the first time that a convolution runs, cuDNN tries algorithms with"
    " much of the memory that is free, and PyTorch then gives it back. On a GPU, the reserved peak"
    " can therefore be higher than here, but the program needs no more"
)
_WITHOUT_KERNELS = (
    "was built without kernels for this card, on which the program will fail; the bytes are those"
    " of a build that has them"
)


@dataclass(frozen=True)
class Limits:
    """When to stop a program that would not end by itself; None: never. Seconds of real time.

    values: the results of reads of computed values, by a name in the reading line, "FILE:LINE" or
    "*"; all others are `number`. share: of the elements of a mask that it selects, if nothing is
    known of it.
    """

    steps: int | None = None
    seconds: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    number: float = 0.0
    share: float = 0.5


def values_of(values: Sequence[str] | None) -> dict[str, float]:
    """The values by name of "NAME=NUMBER" each; raises SpecError for another form."""
    read = dict[str, float]()
    for text in values or ():
        try:
            name, number = parse_option(text)
            read[name] = float(number)
        except ValueError as error:  # SpecSyntaxError is one
            raise SpecError(f"--value {text}: write NAME=NUMBER, such as loss=1.0") from error
    return read


@dataclass(frozen=True)
class Summary:
    """What the processes of a program recorded.

    reads: reads of values that a kernel would have computed, by call site. kernels: launched.
    shapes: the reads that a shape depends on, by call site. chosen: number of reads that returned a
    value chosen by the user. unused: the names of such values that no process read. unknown:
    requests of NVIDIA's libraries for a workspace that got 0 bytes, by rule of `workspaces.json`.
    workspace: bytes that one of them may ask for on a real GPU. forgone: convolutions that did
    without their workspace, such as for lack of memory. benchmark: whether cuDNN tries algorithms.
    shared: whether PyTorch's allocator waited for another stream before it reused a block.
    without_kernels: the version of PyTorch if it was built without kernels for the card, else "".
    outside: bytes that libraries held on a GPU outside of PyTorch, by library, when they were most;
    of the process that held most.
    unrelated: whether each process that read values ended with an exception that does not depend on
    them, such as a missing file.
    """

    reads: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, int] = field(default_factory=dict)
    kernels: int = 0
    chosen: int = 0
    unknown: Mapping[str, int] = field(default_factory=dict)
    workspace: int = 0
    forgone: int = 0
    benchmark: bool = False
    shared: bool = False
    unrelated: bool = False
    unused: Sequence[str] = ()
    without_kernels: str = ""
    outside: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Session:
    """One program on null GPUs or, without a machine, on this machine's GPUs.

    notes: lines for the user; reads: the one on reads of computed values if these can be why the
    program failed, or ""; found: whether a process of the program used the null GPU. They and the
    summary are available after the session. folder: where its processes write.
    """

    machine: Machine | None
    folder: Path = Path()
    notes: list[str] = field(default_factory=list)
    reads: str = ""
    summary: Summary = field(default_factory=Summary)
    found: bool = True

    def stop(self) -> None:
        """End the processes, as at the time limit that they must have."""
        for path in self.folder.glob(f"*{RUNNING}"):
            with suppress(ProcessLookupError):
                os.kill(int(path.stem), signal.SIGALRM)


@contextmanager
def session(device: str | None, limits: Limits) -> Iterator[Session]:
    """Null GPUs of a spec for one program; None: this machine's GPUs.

    Raises SpecError for an invalid spec or limits without a null GPU, and NullGpuError if a null
    GPU is not possible; if the reason is the program's PyTorch, at the end of the block.
    """
    if device is None:
        if limits != Limits():
            raise SpecError("--steps, --timeout and --value are for null GPUs: --device null:h100")
        yield Session(None)
        return
    if not is_null(device):
        raise SpecError(f"--device {device}: write null:CARD, or leave it out for a real GPU")
    described = read(device)
    with tempfile.TemporaryDirectory(prefix="allocbench-", ignore_cleanup_errors=True) as folder:
        machine = Machine(described.name, environment(described, folder, limits))
        made = Session(machine, Path(folder))
        yield made
        if (refused := Path(folder) / "refused").exists():
            raise NullGpuError(refused.read_text(encoding="utf-8"))
        made.summary = found = summary(folder)
        made.found = any(Path(folder).glob(f"*{_REPORT}"))
        made.notes = notes(found, limits)
        made.reads = "" if found.unrelated else next(iter(_notes_on_reads(found, limits)), "")


def core() -> Path:
    """The native library; raises NullGpuError if it was not built."""
    from allocbench.allocators import _core

    path = Path(str(_core.__file__)).with_name(CORE_SONAME)
    if not path.exists():
        raise NullGpuError(f"{path} is missing: allocbench was built without the null GPU")
    return path


def environment(
    device: NullDevice, folder: str | Path, limits: Limits | None = None
) -> dict[str, str]:
    """The environment of a program that sees the device, added to this process's own.

    folder: where its processes write what `summary` reads. Raises NullGpuError if a null GPU is not
    possible.
    """
    check_host()
    settings: dict[str, Any] = {
        "settings": device.settings() | {"usage": str(Path(folder).resolve() / "usage")},
        "core": str(core()),
        "cache": str(cache() / "null-gpu"),
        "python": sys.executable,
        "path": str(_ROOT),
        "folder": str(folder),
        **asdict(limits or Limits()),
        "ranks": dict[str, str](),
    }
    if device.world is not None:
        settings["ranks"] = {
            "RANK": str(device.rank),
            "LOCAL_RANK": str((device.rank or 0) % device.count),
            "WORLD_SIZE": str(device.world),
            "LOCAL_WORLD_SIZE": str(min(device.count, device.world)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
        }
    return {
        VARIABLE: json.dumps(settings),
        "PATH": os.pathsep.join((_smi(folder), *filter(None, [os.environ.get("PATH")]))),
        **(hooks := hook_variables(_HOOK, os.environ)),
        **_preloaded(core(), hooks["PYTHONPATH"]),
        # The processes in which torch.compile would compile find no libraries of the null GPU.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # On a host whose processors are busy, threads that wait by spinning take most of the time.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        **settings["ranks"],
    }


def _preloaded(library: Path, path: str) -> dict[str, str]:
    """The variables that keep the hook first on Python's path: see `native/preload.cpp`."""
    others = os.environ.get("LD_PRELOAD", "")
    if re.search(r"[\s:]", str(library)) or str(library) in others:  # these separate libraries
        return {}
    folder = path.partition(os.pathsep)[0]
    return {"LD_PRELOAD": f"{others} {library}".strip(), "ALLOCBENCH_HOOK_FOLDER": folder}


def _smi(folder: str | Path) -> str:
    """A folder that has nvidia-smi."""
    programs = Path(folder).resolve() / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    script = programs / "nvidia-smi"
    answers = shlex.join((sys.executable, "-I", str(_HOOK.with_name("nvidia_smi.py"))))
    script.write_text(f'#!/bin/sh\nexec {answers} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return str(programs)


def summary(folder: str | Path) -> Summary:
    """The records of a program's processes in a folder, added up."""
    paths = sorted(Path(folder).glob(f"*{_REPORT}"))
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in paths]

    def total(name: str) -> Counter[str]:
        return sum((Counter(report[name]) for report in reports), Counter[str]())

    unused = [set[str](report["unused"]) for report in reports]
    held = [report["outside"] for report in reports]
    return Summary(
        reads=total("reads"),
        shapes=total("shapes"),
        kernels=sum(report["kernels"] for report in reports),
        chosen=sum(report["chosen"] for report in reports),
        unknown=total("unknown"),
        workspace=max((report["workspace"] for report in reports), default=0),
        forgone=sum(report["forgone"] for report in reports),
        benchmark=any(report["benchmark"] for report in reports),
        shared=any(report["shared"] for report in reports),
        unrelated=all(report["unrelated"] or not report["reads"] for report in reports),
        unused=sorted(set.intersection(*unused)) if unused else [],
        without_kernels=max((report["without_kernels"] for report in reports), default=""),
        outside=max(held, key=lambda sizes: sum(sizes.values()), default={}),
    )


def notes(summary: Summary, limits: Limits | None = None) -> list[str]:
    """Notes for the user on what the null GPU did not know, one per line."""
    version = summary.without_kernels
    return [
        *([f"PyTorch {version} {_WITHOUT_KERNELS}"] if version else []),
        *_notes_on_reads(summary, limits or Limits()),
        *(f"--value {name} has no effect: {_NOWHERE}" for name in summary.unused),
        *_notes_on_workspaces(summary.unknown),
        *([_BENCHMARK] if summary.benchmark else []),
        *(
            f"{library} held {units.size(size)} of the GPU's memory outside of PyTorch"
            for library, size in summary.outside.items()
        ),
    ]


def _notes_on_workspaces(unknown: Mapping[str, int]) -> list[str]:
    if not unknown:
        return []
    total = sum(unknown.values())
    calls = f"{total:,} call{'s' * (total > 1)}"
    counts = sorted(unknown.items(), key=lambda item: (-item[1], item))
    by_rule = ", ".join(f"{rule} {count:,}" for rule, count in counts)
    return [
        f"{calls} of NVIDIA's libraries got a workspace of 0 bytes, mostly"
        f" because its size is not known (allocbench list workspaces): {by_rule}"
    ]


def _notes_on_reads(summary: Summary, limits: Limits) -> list[str]:
    """On reads, and on the shapes that depend on masks of which nothing is known."""
    lines, reads_only = list[str](), Counter(summary.reads) - Counter(summary.shapes)
    if total := reads_only.total():
        values = f"{'all of them' if total > 1 else 'which was'} {limits.number:g}"
        if summary.chosen:
            others = f", the others {limits.number:g}" if summary.chosen < total else ""
            values = f"{summary.chosen:,} of them set by --value{others}"
            if total == 1:
                values = "set by --value"
        reads = f"{total:,} reads of computed values" if total > 1 else "1 read of a computed value"
        lines.append(f"{reads}, {values}; {_most(reads_only)}")
    if summary.shapes:
        count = sum(summary.shapes.values())
        shapes = f"{count:,} shapes depend" if count > 1 else "1 shape depends"
        lines.append(
            f"{shapes} on masks of computed values, of which {limits.share:.0%} of the elements"
            f" count as selected; {_most(summary.shapes)}"
        )
    return lines


def place_of(site: str) -> str:
    """What names a call site in --value: "train.py:88", or an operator outside of Python."""
    return site.removeprefix(OUTSIDE_PYTHON).partition(" ")[0]


def _most(counts: Mapping[str, int]) -> str:
    """ "12 at train.py:88 loss.item(), 5 at ...": the sites with the highest counts."""
    first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_SITES]
    return ", ".join(f"{count:,} at {site}" for site, count in first)
