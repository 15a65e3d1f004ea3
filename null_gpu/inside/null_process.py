# SPDX-License-Identifier: Apache-2.0
"""The hook of programs on null GPUs: loads the libraries, stops the program at its limits, counts.

The variable ALLOCBENCH_NULL says what to do (see `allocbench.null_gpu.launch`). Only the standard
library may be used here.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

_AGAIN = 0.05  # seconds
_BACKWARD, _PATIENCE = b"pt_autograd", 10_000  # names of PyTorch's threads; milliseconds
_REFUSED = "{} calls NVIDIA's libraries itself, which the null GPU does not have"
_CALLERS = ("cudf", "cuml", "cupy", "numba.cuda", "pycuda", "rmm", "tensorrt")
_UNRELATED = (OSError, ImportError, NameError, SyntaxError)
"""Exceptions that do not depend on values that a program computed."""
REFUSED = {name: _REFUSED.format(name) for name in _CALLERS}
"""Packages that contain NVIDIA's libraries, or call them without PyTorch."""


class Process:
    """One process. It must be created before torch is imported, to replace NVIDIA's libraries."""

    def __init__(self, told: dict[str, Any], package: Path) -> None:
        self._told, self._pid, self._steps = told, os.getpid(), 0
        self._optimizer: int | None = None
        folder = self._libraries(package)
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        self._core = ctypes.CDLL(told["core"])
        settings = told["settings"] | about["settings"]
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        self._core.null_configure(text.encode())
        self._loaded = [ctypes.CDLL(str(folder / name)) for name in about["libraries"]]
        os.environ.setdefault("TRITON_LIBCUDA_PATH", str(folder))
        known, libraries = _sibling("null_known"), _sibling("null_libraries")
        self._reads = _sibling("null_reads").Reads(self._core, told["values"], known, libraries)
        self._workspaces = _sibling("null_workspaces").Workspaces(self._core)

    def watch(self, torch: ModuleType) -> None:
        """Count reads and steps from now on; torch has been imported."""
        self._torch = torch
        self._reads.watch(torch)
        host = _sibling("null_host_copies")
        self.copies = host.HostCopies(torch, self._core)
        null_functions = _sibling("null_functions")
        functions = null_functions.Functions(torch, self.copies.end)
        names, follow = _sibling("null_names"), _sibling("null_follow")
        follower = follow.Follower(torch, names, functions, self.copies, self._reads)
        follower.follow()
        draws = _sibling("null_random").Draws(torch, follower, self.copies, host.MOST)
        draws.follow(functions, names)
        null_sparse = _sibling("null_sparse")
        null_sparse.count_distinct(functions, self.copies, self._reads)
        null_sparse.count_padding(functions, self.copies, follower)
        _sibling("null_lengths").copy_lengths(torch, functions)
        _sibling("null_writes").Writes(torch, functions, self.copies).watch()
        _sibling("null_sizes").know_sizes(torch, names, functions, follower)
        kinds = (torch.nn.Parameter, torch.Tensor, torch._C.TensorBase)
        _sibling("null_subscript").replace(self._core, kinds, follower.subscript())
        _sibling("null_routing").send_evenly(torch, functions, follower, self.copies)
        self._workspaces.watch(torch)
        atexit.register(self._leave)
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._on_step)
        if torch.distributed.is_available():
            alone, replace = self._told["alone"], null_functions.replace_in
            messages = _sibling("null_messages").Messages(torch, alone)
            _sibling("null_objects").Objects(torch, messages, replace).watch()
            null_collectives = _sibling("null_collectives")
            null_collectives.Collectives(torch, functions, self.copies, messages).watch()
            if alone:
                _sibling("null_peers").be_alone(torch, replace)
        if self._told["seconds"]:
            signal.signal(signal.SIGALRM, self._on_alarm)
            signal.setitimer(signal.ITIMER_REAL, self._told["seconds"], _AGAIN)

    def _libraries(self, package: Path) -> Path:
        """The folder of the libraries for this torch, created if it does not exist."""
        files = [package / "version.py", package / "lib" / "libtorch_cuda.so", self._told["core"]]
        marks = []
        for file in map(Path, files):
            there = file.stat() if file.exists() else None
            marks.append((str(file), there and (there.st_size, there.st_mtime_ns)))
        digest = hashlib.sha256(repr(marks).encode()).hexdigest()[:16]
        folder = Path(self._told["cache"]) / f"torch-{digest}"
        if folder.exists() and not _is_safe(folder):
            shutil.rmtree(folder, ignore_errors=True)
        if not (folder / "about.json").exists():
            self._make(package, folder)
        if not _is_safe(folder):
            self._refuse(f"{folder}: not used, because another user can write to it; remove it")
        return folder

    def _make(self, package: Path, folder: Path) -> None:
        removed = ("PYTHONPATH", "PYTHONHOME", "ALLOCBENCH_NULL", "LD_PRELOAD")
        environment = {key: text for key, text in os.environ.items() if key not in removed}
        environment["PYTHONPATH"] = self._told["path"]
        command = [self._told["python"], "-P", "-m", "allocbench.null_gpu.stubs"]
        command += [str(package), str(self._told["core"]), str(folder)]
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
        if process.returncode:
            last = (process.stderr.strip() or "error: no null GPU").splitlines()[-1]
            self._refuse(last.removeprefix("error: "))

    def _refuse(self, why: str) -> NoReturn:
        refused = Path(self._told["folder"]) / "refused"  # read by `launch.session`
        refused.write_text(why, encoding="utf-8")
        raise SystemExit(2)

    def _on_step(self, optimizer: object, *_arguments: object) -> None:
        """Stop the program after its maximum number of optimizer steps.

        Only the first optimizer that steps counts, as in a recording.
        """
        if self._optimizer is None:
            self._optimizer = id(optimizer)
        if self._optimizer != id(optimizer):
            return
        self._steps += 1
        if self._steps == self._told["steps"]:
            raise SystemExit(0)

    def _on_alarm(self, *_arguments: object) -> None:
        """Stop the program; it may take as long as it needs to end."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if str(frame.f_globals.get("__name__", "")).startswith("allocbench_null"):
                return  # called from outside of Python, where an exception is lost
            frame = frame.f_back
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise SystemExit(0)

    def _leave(self) -> None:
        """Write the counts for `allocbench.null_gpu.launch.summary`."""
        if os.getpid() != self._pid:
            return  # a child of a fork
        if self._told["seconds"]:
            signal.setitimer(signal.ITIMER_REAL, 0)  # Python no longer handles it from here on
        # Python ends threads that ask for its lock from now on, which aborts the process if PyTorch
        # was destroying what a backward pass left. The lock is free during this call.
        self._core.null_wait_for_threads(_BACKWARD, _PATIENCE)
        counters = (ctypes.c_uint64 * 6)()
        self._core.null_counters(counters)
        reads = self._reads
        report = {"reads": reads.sites, "shapes": reads.shapes, "chosen": reads.chosen}
        report |= {"unused": reads.unused}
        report |= {"kernels": counters[5], "unknown": self._workspaces.unknown()}
        report |= {"shared": bool(self._core.null_shared_blocks())}
        report |= {"unrelated": isinstance(getattr(sys, "last_value", None), _UNRELATED)}
        path = Path(self._told["folder"]) / f"{self._pid}-{time.time_ns()}.null.json"
        partial = path.with_suffix(".partial")
        try:
            partial.write_text(json.dumps(report), encoding="utf-8")
            partial.rename(path)
        except OSError:
            pass  # the process that started the program is gone


_process: Process


def before_torch(package: Path) -> None:
    """Load the libraries in place of NVIDIA's."""
    global _process
    _process = Process(json.loads(os.environ["ALLOCBENCH_NULL"]), package)


def after_torch(torch: ModuleType) -> None:
    """Start counting, and set the limits."""
    _process.watch(torch)


def _is_safe(folder: Path) -> bool:
    """Whether nobody but this user and root can change what is in a folder."""
    for path in (folder, *folder.iterdir()):
        found = path.lstat()
        others = stat.S_IWGRP | stat.S_IWOTH
        writable = not stat.S_ISLNK(found.st_mode) and found.st_mode & others
        if writable or found.st_uid not in (os.getuid(), 0):
            return False
    return True


def _sibling(name: str) -> ModuleType:
    """Import a file of this folder, which is not on the module path."""
    spec = importlib.util.spec_from_file_location(
        f"allocbench_{name}", Path(__file__).with_name(f"{name}.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # torch.compile looks up modules whose functions it meets
    spec.loader.exec_module(module)
    return module


def _end_generation(utils: ModuleType) -> None:
    _sibling("null_transformers").end_at_length(utils)


def _know_packed(masking: ModuleType) -> None:
    is_compiling = sys.modules["torch"].compiler.is_compiling
    _sibling("null_transformers").know_packed(masking, is_compiling, _process.copies)


def _count_steps_from_one(optimizer: ModuleType) -> None:
    _sibling("null_optimizers").count_from_one(optimizer)


AFTER = {
    "torch.optim.optimizer": _count_steps_from_one,
    "transformers.generation.utils": _end_generation,
    "transformers.masking_utils": _know_packed,
}
