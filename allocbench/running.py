# SPDX-License-Identifier: Apache-2.0
"""Somebody else's program on a chosen allocator: how the settings get in, and the numbers out.

`allocbench run` starts the program with a variable and with `shim/` on the path of modules. Every
Python process of it that imports torch chooses the allocator right afterwards, before it can touch
CUDA, and leaves what it saw in a folder when it ends.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import multiprocessing.util
import os
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.base.whole_file import whole_file

_VARIABLE = "ALLOCBENCH_RUN"
_FILES = "ALLOCBENCH_FILES"
_SHIM = Path(__file__).parent / "shim"
WRONG = 2
"""Exit code of a process that cannot have the allocator."""


@dataclass(frozen=True)
class Settings:
    """What the processes of a program are told."""

    spec: str
    folder: str
    record: bool
    poison: bool = False


@dataclass(frozen=True)
class Report:
    """What one process has seen of one GPU.

    row: metrics under the names of a result row. extra: what a row has no column for.
    trace: the arrays of a trace, where one was recorded.
    """

    pid: int
    ordinal: int
    gpu: str
    torch: str
    row: dict[str, Any]
    extra: dict[str, Any]
    trace: dict[str, NDArray[Any]] | None


def environment(settings: Settings, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment for a program that is to run with these settings, made of another."""
    from allocbench.allocators import _core

    # The program may run in an environment of its own: nothing else of this one may be seen there.
    files = {
        "allocbench": str(Path(__file__).with_name("__init__.py")),
        "allocbench.allocators._core": str(_core.__file__),
    }
    path = [str(_SHIM), inherited.get("PYTHONPATH", "")]
    return {
        **inherited,
        _VARIABLE: json.dumps(asdict(settings)),
        _FILES: json.dumps(files),
        "PYTHONPATH": os.pathsep.join(entry for entry in path if entry),
    }


def reports(folder: str | Path) -> Iterator[Report]:
    """What the processes of a program have left, by process and GPU."""
    for path in sorted(Path(folder).glob("*.json")):
        with path.open(encoding="utf-8") as file:
            told = json.load(file)
        trace = None
        if (arrays := path.with_suffix(".npz")).exists():
            with np.load(arrays) as found:
                trace = {name: found[name] for name in found.files}
        yield Report(**told, trace=trace)


def native_only(folder: str | Path) -> list[str]:
    """What the program asked for that PyTorch has with its own allocator alone."""
    lines = (path.read_text(encoding="utf-8") for path in Path(folder).glob("*.native-only"))
    return sorted({line for text in lines for line in text.splitlines()})


def await_torch() -> None:
    """Choose the allocator of the settings as soon as torch has been imported.

    Called in a process of the program; does nothing in one that has no settings.
    """
    if _VARIABLE in os.environ:
        sys.meta_path.insert(0, _After("torch", _choose))


class _After(MetaPathFinder):
    """Calls back once, when the module of a name has been imported."""

    def __init__(self, name: str, call: Callable[[], None]) -> None:
        self._name, self._call = name, call

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The spec that others find, with a loader that calls back afterwards."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            load(module)
            self._call()

        vars(spec.loader)["exec_module"] = exec_module
        return spec


def _choose() -> None:
    from allocbench.allocators import SpecError
    from allocbench.allocators import torch as plugged

    settings = Settings(**json.loads(os.environ[_VARIABLE]))
    try:
        program = plugged.use(settings.spec, poison=settings.poison)
    except SpecError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(WRONG)
    atexit.register(_leave, program, settings, os.getpid())
    # A child of a fork that uses the GPU itself: multiprocessing ends it without atexit.
    multiprocessing.util.register_after_fork(
        program, lambda program: _leave_in_child(program, settings)
    )


def _leave_in_child(program: Any, settings: Settings) -> None:
    used = {use.ordinal for use in program.uses()}  # by the parent, before the fork
    multiprocessing.util.Finalize(
        None, _leave, args=(program, settings, os.getpid(), used), exitpriority=-100
    )


def _leave(program: Any, settings: Settings, pid: int, inherited: Collection[int] = ()) -> None:
    """Write what was seen, each file whole or not at all, the arrays first."""
    import torch

    from allocbench.allocators import torch_native_only

    if os.getpid() != pid:
        return  # a child of a fork
    for feature in torch_native_only.met:
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
        told = {
            "pid": os.getpid(),
            "ordinal": use.ordinal,
            "gpu": use.gpu,
            "torch": str(torch.__version__),
            "row": use.row(),
            "extra": {
                "requests": use.stats.allocations,
                "frees": use.stats.frees,
                "deferred_frees": use.seen.deferred,
                "gpu_peak_used": use.gpu_peak_used,
                "peak_reserved_for_graphs": use.seen.totals.graphs.peak,
            },
        }
        with whole_file(Path(settings.folder) / f"{stem}.json") as file:
            file.write(json.dumps(told).encode())
