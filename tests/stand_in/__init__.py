# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the CUDA driver, compiled on first use by a test: see state.hpp.

It is in a temporary folder while the tests run, out of reach of anything installed.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCES = Path(__file__).parent
_NATIVE = SOURCES.parents[1] / "allocators" / "native"
_SHARED = _NATIVE / "null_gpu" / "virtual_memory.cpp"
"""What the stand-in and the null GPU have in common."""
MODULES = str(SOURCES / "modules")
"""The folder of stand-ins for Python packages, for processes that must not load the real ones."""
KINDS = (
    "segments",
    "reservations",
    "memory",
    "mappings",
    "pools",
    "pooled",
    "events",
    "streams",
    "contexts",
    "bytes",
    "abandoned",
)
CAPACITY = 1 << 30
OUT_OF_MEMORY, ILLEGAL_ADDRESS = 2, 700


@functools.cache
def folder() -> Path:
    """The folder that contains libcuda.so.1."""
    created = Path(tempfile.mkdtemp(prefix="stand_in_"))
    atexit.register(shutil.rmtree, created, ignore_errors=True)
    return compile_into(created)


def compile_into(created: Path) -> Path:
    """Compile libcuda.so.1 into a folder; returns the folder."""
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror"]
    command += ["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1"]
    command += ["-I", str(_NATIVE), "-o", str(created / "libcuda.so.1"), str(_SHARED)]
    command += map(str, sorted(SOURCES.glob("*.cpp")))
    subprocess.run(command, check=True)
    return created


def environment(**variables: str) -> dict[str, str]:
    """An environment in which a process loads the stand-in as the driver."""
    path = [variables.pop("PYTHONPATH", ""), str(SOURCES.parents[1])]
    own = {"LD_LIBRARY_PATH": str(folder()), "PYTHONPATH": os.pathsep.join(filter(None, path))}
    return os.environ | own | variables


def python(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in its own process on the stand-in."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, env=environment(**variables), capture_output=True, text=True, timeout=600
    )


class Driver:
    """The stand-in in this process. It stays loaded: a library loaded by name is found again."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(folder() / "libcuda.so.1"))
        self._library.stand_in_outstanding.restype = ctypes.c_size_t
        self._library.stand_in_calls.restype = ctypes.c_uint64
        self._library.stand_in_fail.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]
        self._library.stand_in_set_capacity.argtypes = [ctypes.c_size_t]
        self._library.stand_in_hold.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
        self._library.stand_in_accessible.argtypes = [ctypes.c_ulonglong, ctypes.c_int]
        self._library.stand_in_new_stream.restype = ctypes.c_void_p
        self._library.stand_in_is_memory.argtypes = [ctypes.c_ulonglong]
        self._library.cuStreamBeginCapture_v2.argtypes = [ctypes.c_void_p, ctypes.c_int]

    def outstanding(self) -> dict[str, int]:
        """Resources held from the driver, without counts of zero."""
        result = {kind: self._library.stand_in_outstanding(kind.encode()) for kind in KINDS}
        return {kind: count for kind, count in result.items() if count}

    def calls(self, name: str) -> int:
        """Number of calls of one function in this process."""
        return int(self._library.stand_in_calls(name.encode()))

    def fail(self, name: str = "", index: int = 0, error: int = ILLEGAL_ADDRESS) -> None:
        """Fail the `at`-th call from now on, or every call if 0; without a name, fail none."""
        self._library.stand_in_fail(name.encode(), index, error)

    def hold(self, stream: int, hold: bool = True, device: int = 0) -> None:
        """Queue work on a stream and keep it from finishing, or let it finish."""
        self._library.stand_in_hold(stream, int(hold), device)

    def busy(self, stream: int, device: int = 0) -> bool:
        """Whether work on a stream is not finished."""
        return bool(self._library.stand_in_busy(ctypes.c_void_p(stream), device))

    def slow(self, name: str, seconds: float) -> None:
        """Set how long each call of a function takes; an empty name resets this."""
        self._library.stand_in_slow(name.encode(), ctypes.c_double(seconds))

    def new_stream(self, device: int) -> int:
        """The handle of a stream that a program made."""
        return int(self._library.stand_in_new_stream(device))

    def forget(self) -> None:
        """Forget resources that were abandoned with their context."""
        self._library.stand_in_forget()

    def accessible(self, address: int, device: int) -> bool:
        """Whether a GPU may access a mapped page, or the pool of a block."""
        return bool(self._library.stand_in_accessible(address, device))

    def is_memory(self, address: int) -> bool:
        """Whether an address lies in memory that the driver has handed out."""
        return bool(self._library.stand_in_is_memory(address))

    @contextmanager
    def capturing(self, stream: int, device: int = 0, mode: int = 0) -> Iterator[None]:
        """Capture a stream, in CUDA's global mode; raises RuntimeError if that became invalid."""
        library, context = self._library, ctypes.c_void_p()
        library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        library.cuCtxPushCurrent_v2(context)
        try:
            assert library.cuStreamBeginCapture_v2(stream, mode) == 0
            try:
                yield
            finally:
                error = library.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(context))
            if error:
                raise RuntimeError(f"the capture is invalid: {error}")
        finally:
            library.cuCtxPopCurrent_v2(ctypes.byref(context))
            library.cuDevicePrimaryCtxRelease_v2(device)

    def set_capacity(self, size: int) -> None:
        """Bytes of each GPU, for devices opened from now on."""
        self._library.stand_in_set_capacity(size)
