# SPDX-License-Identifier: Apache-2.0
"""Run an unmodified program on a chosen allocator: pass settings in, get reports out.

`allocbench run` starts the program with `hook/use_allocator.py`. Each of its Python processes
that imports torch chooses the allocator right after the import, before CUDA is used, and writes a
report to a folder when it ends. For PyTorch's own allocator, `hook/native_statistics.py` writes
the reports.
"""

import atexit
import json
import multiprocessing.util
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.base.children import hook_variables
from allocbench.base.files import whole_file

_VARIABLE = "ALLOCBENCH_RUN"
_FILES = "ALLOCBENCH_FILES"
_HOOKS = Path(__file__).parent / "hook"
_HOOK = _HOOKS / "use_allocator.py"
_NATIVE_VARIABLE = "ALLOCBENCH_NATIVE"
_NATIVE_HOOK = _HOOKS / "native_statistics.py"
WRONG = 2
"""Exit code of a process that cannot use the allocator."""


@dataclass(frozen=True)
class RunSettings:
    """What to do in the processes of a program."""

    spec: str
    folder: str
    record: bool
    poison: bool = False


@dataclass(frozen=True)
class Report:
    """What one process did on one GPU.

    row: metrics, named like the columns of a result row. extra: values without a column; fewer with
    PyTorch's own allocator. trace: the arrays of a trace, if one was recorded.
    """

    pid: int
    ordinal: int
    gpu: str
    torch: str
    row: dict[str, Any]
    extra: dict[str, Any]
    trace: dict[str, NDArray[Any]] | None


def environment(settings: RunSettings, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment for a program that runs with these settings."""
    from allocbench.allocators import _core

    # The program may have its own installation, which must not see anything else of this one.
    files = {
        "allocbench": str(Path(__file__).parents[1] / "__init__.py"),
        "allocbench.allocators._core": str(_core.__file__),
    }
    return {
        **inherited,
        _VARIABLE: json.dumps(asdict(settings)),
        _FILES: json.dumps(files),
        **hook_variables(_HOOK, inherited),
    }


def native_environment(folder: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment for a program that keeps PyTorch's own allocator and writes reports."""
    return {**inherited, _NATIVE_VARIABLE: folder, **hook_variables(_NATIVE_HOOK, inherited)}


def reports(folder: str | Path) -> Iterator[Report]:
    """The reports of the processes of a program, by process and GPU."""
    for path in sorted(Path(folder).glob("*.json")):
        with path.open(encoding="utf-8") as file:
            content = json.load(file)
        trace = None
        if (arrays := path.with_suffix(".npz")).exists():
            with np.load(arrays) as columns:
                trace = {name: columns[name] for name in columns.files}
        yield Report(**content, trace=trace)


def complaints(folder: str | Path) -> list[str]:
    """Why processes wrote no report, one line each."""
    return [path.read_text(encoding="utf-8") for path in sorted(Path(folder).glob("*.error"))]


def native_only(folder: str | Path) -> list[str]:
    """Features that the program used and that only PyTorch's own allocator has."""
    lines = (path.read_text(encoding="utf-8") for path in Path(folder).glob("*.native-only"))
    return sorted({line for text in lines for line in text.splitlines()})


def choose() -> None:
    """Make PyTorch use the allocator of the settings; called in a process of the program."""
    from allocbench.allocators import SpecError
    from allocbench.allocators import torch as adapter

    settings = RunSettings(**json.loads(os.environ[_VARIABLE]))
    try:
        program = adapter.use(settings.spec, poison=settings.poison)
    except SpecError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(WRONG)
    atexit.register(_leave, program, settings, os.getpid())
    # A forked child that uses the GPU also reports; multiprocessing ends it without atexit.
    multiprocessing.util.register_after_fork(
        program, lambda program: _leave_in_child(program, settings)
    )


def _leave_in_child(program: Any, settings: RunSettings) -> None:
    used = {use.ordinal for use in program.uses()}  # by the parent, before the fork
    multiprocessing.util.Finalize(
        None, _leave, args=(program, settings, os.getpid(), used), exitpriority=-100
    )


def _leave(program: Any, settings: RunSettings, pid: int, inherited: Collection[int] = ()) -> None:
    """Write the reports of this process, the arrays first."""
    import torch

    from allocbench.allocators.torch import met

    if os.getpid() != pid:
        return  # a child of a fork
    for feature in met:
        path = Path(settings.folder) / f"{os.getpid()}.native-only"
        with path.open("a", encoding="utf-8") as file:
            file.write(feature + "\n")
    for use in program.uses():
        if use.ordinal in inherited:
            continue
        stem = f"{os.getpid()}-{use.ordinal}"
        if settings.record:
            recording = program.recording(use.ordinal)
            arrays = {name: getattr(recording, name) for name in ("op", "block", "size", "stream")}
            np.savez(Path(settings.folder) / f"{stem}.npz", **arrays)
        report = {
            "pid": os.getpid(),
            "ordinal": use.ordinal,
            "gpu": use.gpu,
            "torch": str(torch.__version__),
            "row": use.row(),
            "extra": {
                "requests": use.stats.allocations,
                "frees": use.stats.frees,
                "deferred_frees": use.program.deferred,
                "gpu_peak_used": use.gpu_peak_used,
                "peak_reserved_for_graphs": use.program.totals.graphs.peak,
            },
        }
        with whole_file(Path(settings.folder) / f"{stem}.json") as file:
            file.write(json.dumps(report).encode())
