# SPDX-License-Identifier: Apache-2.0
"""The hook of programs on null GPUs: loads the libraries, stops the program at its limits, counts.

The variable ALLOCBENCH_NULL says what to do (see `allocbench.null_gpu.launch`). The package runs in
the program's installation of Python, where its name is `allocbench_inside`. Only the standard
library may be used here.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from . import known_values
from .collectives import Collectives, Messages, Objects, be_alone, launch_alone
from .dispatcher import Dispatcher, UnknownObjectsError
from .following import Follower, HostCopies
from .guesses import Guesses
from .processes import Running
from .reads import Reads
from .workspaces import Workspaces

_AGAIN = 0.05  # seconds
_GRACE = 10.0
"""Seconds that a process has to end after its time limit."""
_BACKWARD, _PATIENCE = b"pt_autograd", 10_000  # names of PyTorch's threads; milliseconds
_REFUSED = "{} calls NVIDIA's libraries itself, which the null GPU does not have"
_CALLERS = ("cudf", "cuml", "cupy", "numba.cuda", "pycuda", "rmm", "tensorrt")
_UNINTERRUPTED = ("allocbench_inside", "allocbench_recording_hook")  # modules
_UNRELATED = (OSError, ImportError, NameError, SyntaxError)
"""Exceptions that do not depend on values that a program computed."""
_OF_LIBRARIES = re.compile(
    r"(CUDA|CUBLAS|cuDNN|cuFFT|cusolver|cuSPARSE|NCCL|Triton)\b.{,8}?error", re.I
)
"""Messages of exceptions that report an error of the driver or of NVIDIA's libraries."""
REFUSED = {name: _REFUSED.format(name) for name in _CALLERS}
"""Packages that contain NVIDIA's libraries, or call them without PyTorch."""


class Process:
    """One process. It must be created before torch is imported, to replace NVIDIA's libraries."""

    def __init__(self, told: dict[str, Any], package: Path) -> None:
        self._told, self._pid, self._steps = told, os.getpid(), 0
        self.alone = bool(told["ranks"])
        os.environ |= told["ranks"]  # a launcher may have set others
        self._optimizer: int | None = None
        self._running = Running(Path(told["folder"]))
        folder = self._libraries(package)
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        self._core = _core(told["core"])
        settings = told["settings"] | about["settings"]
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        self._core.null_configure(text.encode())
        self._loaded = [ctypes.CDLL(str(folder / name)) for name in about["libraries"]]
        os.environ.setdefault("TRITON_LIBCUDA_PATH", str(folder))
        self._reads = Reads(self._core, told["values"], told["number"], told["share"])
        self._workspaces = Workspaces(self._core)

    def watch(self, torch: ModuleType) -> None:
        """Count reads and steps from now on; torch has been imported."""
        self._torch = torch
        self._reads.watch(torch)
        self.copies = HostCopies(torch, self._core)
        dispatcher = Dispatcher(torch, self._core)
        follower = Follower(torch, dispatcher, self.copies, self._reads)
        self._follower = follower  # kept as long as PyTorch can call it
        Guesses(torch, self._core, follower, self.copies, self._reads).follow()
        self._workspaces.watch(torch)
        atexit.register(self._leave)
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._on_step)
        if torch.distributed.is_available():
            messages = Messages(torch, self.alone)
            Objects(torch, messages).watch()
            Collectives(torch, follower, self.copies, messages).follow()
            if self.alone:
                be_alone(torch)
        try:
            follower.follow()
        except UnknownObjectsError as error:
            text = f"no values are followed with PyTorch {torch.__version__}: {error}"
            print(f"allocbench: warning: {text}", file=sys.stderr, flush=True)
        if self._told["seconds"]:
            self._limit()
            torch.cuda._lazy_call(self._limit_fork)

    def _limit(self) -> None:
        """End this process at the time limit of the program."""
        signal.signal(signal.SIGALRM, self._on_alarm)
        left = max(self._running.begin() + self._told["seconds"] - time.time(), _AGAIN)
        signal.setitimer(signal.ITIMER_REAL, left, _AGAIN)
        end = threading.Timer(left + _GRACE, self._end)
        end.daemon = True
        end.start()

    def _limit_fork(self) -> None:
        """The same for a process that was forked, from its first use of a GPU on."""
        if os.getpid() != self._pid:
            with suppress(ValueError):  # not the main thread
                self._limit()

    def _libraries(self, package: Path) -> Path:
        """The folder of the libraries for this torch, created if it does not exist."""
        here = Path(__file__).parents[1]
        files = [package / "version.py", package / "lib" / "libtorch_cuda.so", self._told["core"]]
        files += [here / name for name in ("stubs.py", "libraries.json", "functions.txt")]
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
            if str(frame.f_globals.get("__name__", "")).startswith(_UNINTERRUPTED):
                # Called from outside of Python, where an exception is lost, or writing.
                signal.setitimer(signal.ITIMER_REAL, _AGAIN)
                return
            frame = frame.f_back
        signal.setitimer(signal.ITIMER_REAL, 0)
        _tell_recording()
        self._running.wait_for_children()
        raise SystemExit(0)

    def _end(self) -> None:
        """End the process: its main thread waits outside of Python, or has caught the exception."""
        self._running.wait_for_children()
        if recording := _tell_recording():
            for write in recording.write_at_end:
                write()
        self._leave()
        os._exit(0)

    def _without_kernels(self) -> str:
        """The version of PyTorch if it was built without kernels for the card, else ""."""
        capability = int(self._told["settings"]["compute_capability"])
        found = re.findall(r"(sm|compute)_(\d+)", self._torch._C._cuda_getArchFlags() or "")
        for kind, number in found:
            is_close = kind == "compute" or int(number) // 10 == capability // 10
            if is_close and int(number) <= capability:
                return ""
        return str(self._torch.__version__) if found else ""

    def _leave(self) -> None:
        """Write the counts for `allocbench.null_gpu.launch.summary`."""
        if os.getpid() != self._pid:
            return self._running.end()  # a child of a fork, which has a time limit of its own
        if self._told["seconds"]:
            signal.setitimer(signal.ITIMER_REAL, 0)  # Python no longer handles it from here on
        # Python ends threads that ask for its lock from now on, which aborts the process if PyTorch
        # was destroying what a backward pass left. The lock is free during this call.
        self._core.null_wait_for_threads(_BACKWARD, _PATIENCE)
        counters = (ctypes.c_uint64 * 6)()
        self._core.null_counters(counters)
        reads = self._reads
        report = {"reads": reads.sites, "shapes": reads.shapes, "chosen": reads.chosen}
        report |= {"unused": reads.unused, "without_kernels": self._without_kernels()}
        report |= {"kernels": counters[5], "unknown": self._workspaces.unknown()}
        report |= {"workspace": self._workspaces.bound(), "forgone": self._workspaces.forgone()}
        tried = self._torch.backends.cudnn.benchmark and self._workspaces.has_convolutions()
        report |= {"benchmark": bool(tried)}
        self._core.null_outside.restype = ctypes.c_char_p
        held = self._core.null_outside().decode().splitlines()
        of_libraries = (line.partition(" ") for line in held)
        report |= {"outside": {library: int(size) for size, _, library in of_libraries}}
        report |= {"shared": bool(self._core.null_shared_blocks())}
        report |= {"unrelated": _is_unrelated(getattr(sys, "last_value", None))}
        path = Path(self._told["folder"]) / f"{self._pid}-{time.time_ns()}.null.json"
        partial = path.with_suffix(".partial")
        try:
            partial.write_text(json.dumps(report), encoding="utf-8")
            partial.rename(path)
        except OSError:
            pass  # the process that started the program is gone
        self._running.end()


_process: Process


def before_torch(package: Path) -> None:
    """Load the libraries in place of NVIDIA's."""
    global _process
    _process = Process(json.loads(os.environ["ALLOCBENCH_NULL"]), package)


def after_torch(torch: ModuleType) -> None:
    """Start counting, and set the limits."""
    _process.watch(torch)


def _tell_recording() -> ModuleType | None:
    """Tell the recording of this process, if there is one, that the process is stopped."""
    recording = sys.modules.get("allocbench_recording_hook")
    if recording is not None:
        vars(recording)["stopped"] = True
    return recording


def _is_unrelated(error: BaseException | None) -> bool:
    """Whether an exception does not depend on values that the program computed."""
    if isinstance(error, AttributeError):  # None can be the result of a choice by a value
        return getattr(error, "obj", None) is not None
    return isinstance(error, _UNRELATED) or _OF_LIBRARIES.match(str(error)) is not None


def _is_safe(folder: Path) -> bool:
    """Whether nobody but this user and root can change what is in a folder."""
    for path in (folder, *folder.iterdir()):
        found = path.lstat()
        others = stat.S_IWGRP | stat.S_IWOTH
        writable = not stat.S_ISLNK(found.st_mode) and found.st_mode & others
        if writable or found.st_uid not in (os.getuid(), 0):
            return False
    return True


def _core(path: str) -> ctypes.CDLL:
    """The native library, with the types of functions that take addresses and bytes."""
    core = ctypes.CDLL(path)
    word, pointer = ctypes.c_uint64, ctypes.c_void_p
    core.null_known.argtypes = core.null_follow.argtypes = word, pointer, word
    core.null_forget.argtypes = word, word
    return core


def _know_packed(masking: ModuleType) -> None:
    is_compiling = sys.modules["torch"].compiler.is_compiling
    known_values.know_packed(masking, is_compiling, _process.copies)


def _launch(launcher: ModuleType) -> None:
    if _process.alone:
        launch_alone(launcher)


def _measure_kernels(config: ModuleType) -> None:
    """Let Inductor measure kernels as in a first run, which takes memory, and not remember it."""
    config.autotune_local_cache = False  # type: ignore[attr-defined]


AFTER = {
    "torch._inductor.config": _measure_kernels,
    "torch.distributed.launcher.api": _launch,
    "transformers.generation.utils": known_values.end_at_length,
    "transformers.masking_utils": _know_packed,
}
