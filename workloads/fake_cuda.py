# SPDX-License-Identifier: Apache-2.0
"""A fake "cuda" device for a CPU build of PyTorch: compiles and loads fake_cuda.cpp."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".cpp")


class CaptureError(RuntimeError):
    """A program cannot be captured; the message is one line with the reason."""


def load() -> None:
    """Prepare this process, into which torch must not have been imported yet, and import torch.

    Raises CaptureError if torch is missing, already imported or built for CUDA, or if fake_cuda.cpp
    cannot be compiled or loaded.
    """
    if "torch" in sys.modules:
        raise CaptureError("torch is already imported; the fake device must be loaded first")
    if built_for_cuda():
        raise CaptureError(
            "fake tensors need a CPU build of torch, and this build is for CUDA: "
            "capture on a null GPU instead"
        )
    torch_folder = _torch_folder()
    libraries = torch_folder / "lib"
    names = ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so")
    shim = _compiled(torch_folder)
    try:
        for library in (*(libraries / name for name in names), shim):
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise CaptureError(f"cannot load the fake device: {error}") from error

    import torch

    # A GPU would answer False; otherwise autocast disables itself with only a warning.
    vars(torch.cuda.amp.common)["amp_definitely_not_available"] = lambda: False
    vars(torch.cuda)["is_bf16_supported"] = lambda: True


def built_for_cuda() -> bool:
    """Whether the installed PyTorch is built for CUDA. Raises CaptureError if there is none."""
    return (_torch_folder() / "lib" / "libtorch_cuda.so").exists()


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise CaptureError("capture needs PyTorch: pip install torch")
    return Path(spec.origin).parent


def _compiled(torch_folder: Path) -> Path:
    """The shim compiled for this version of torch, from the user's cache or compiled now."""
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    version = importlib.metadata.version("torch")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "allocbench"
    shim = cache / f"fake_cuda-{version}-{digest}.so"
    if shim.exists():
        return shim
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise CaptureError("capture needs a C++20 compiler: install g++, or set CXX")
    temporary = shim.with_suffix(f".{os.getpid()}.tmp")
    command = [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", str(_SOURCE)]
    command += ["-isystem", str(torch_folder / "include"), "-L", str(torch_folder / "lib")]
    command += ["-lc10", "-ltorch_cpu", "-o", str(temporary)]
    try:
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run(command, check=True, capture_output=True, text=True)
        temporary.replace(shim)
    except OSError as error:
        raise CaptureError(f"{error.filename}: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        complaint = next((line for line in error.stderr.splitlines() if "error" in line), "")
        raise CaptureError(f"{compiler} cannot compile {_SOURCE.name}: {complaint}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return shim
