# SPDX-License-Identifier: Apache-2.0
"""Run by every Python that starts below `allocbench record`: records what PyTorch allocates.

Python imports a module of this name at its start; this folder is first on its path. Nothing but
the standard library may be used here, for the recorded program has its own installation. The
program must not notice: whatever goes wrong is written down, and passes.

In the environment, ALLOCBENCH_RECORD names the folder for snapshots, ALLOCBENCH_STACKS is empty,
"python" or "all", and ALLOCBENCH_LAST the number of newest events to keep, or empty for all.
"""

from __future__ import annotations

import atexit
import importlib.machinery
import importlib.util
import json
import os
import pickle
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = os.environ.get("ALLOCBENCH_RECORD", "")


class Recording:
    """The recording of one process, from PyTorch's first use of a GPU to the process's end."""

    def __init__(self, torch: Any, folder: Path) -> None:
        self._torch, self._process, self._written = torch, os.getpid(), False
        self._path = folder / f"{time.time_ns()}-{self._process}.pickle"

    def start(self) -> None:
        """Have PyTorch keep the history of its allocator; called when it has initialised CUDA."""
        stacks, last = os.environ.get("ALLOCBENCH_STACKS"), os.environ.get("ALLOCBENCH_LAST")
        try:
            self._torch.cuda.memory._record_memory_history(
                context="alloc" if stacks else None,
                stacks=stacks or "python",
                max_entries=int(last) if last else sys.maxsize,
            )
        except Exception as error:
            self._complain(error)
            return
        from multiprocessing import util  # not before: most processes have no need of it

        atexit.register(self.write)
        util.Finalize(self, self.write, exitpriority=0)  # a forked worker ends without atexit

    def write(self) -> None:
        """Leave a snapshot, and what there is to know of this process, in the folder; once."""
        if self._written or os.getpid() != self._process:
            return
        self._written = True
        try:
            torch, temporary = self._torch, self._path.with_suffix(".tmp")
            snapshot = torch.cuda.memory._snapshot()
            with temporary.open("wb") as file:
                pickle.dump(snapshot, file)
            used = [
                device
                for device, events in enumerate(snapshot["device_traces"])
                if any(event["action"] == "alloc" for event in events)
            ]
            about = {
                "command": sys.argv,
                "rank": os.environ.get("RANK", ""),
                "torch": torch.__version__,
                "devices": {device: torch.cuda.get_device_name(device) for device in used},
            }
            self._path.with_suffix(".json").write_text(json.dumps(about))
            temporary.replace(self._path)
        except Exception as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        self._path.with_suffix(".error").write_text(f"{type(error).__name__}: {error}")


class Finder:
    """Finds torch as the finders after it do, and arranges for its recording once it is there."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._looking = folder, False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """What the others find for torch, made to start a recording; None for all else."""
        if name != "torch" or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._arrange(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _arrange(self, torch: Any) -> None:
        def start() -> None:
            Recording(torch, self._folder).start()

        # Not at once: a program that forks must not find CUDA initialised.
        torch.cuda._lazy_call(start)


def run_the_programs_own() -> None:
    """Run the sitecustomize that this one stands before, if there is one."""
    here = Path(__file__).parent.resolve()
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if FOLDER:
    sys.meta_path.insert(0, Finder(Path(FOLDER)))
    run_the_programs_own()
