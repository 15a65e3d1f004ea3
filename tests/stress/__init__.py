# SPDX-License-Identifier: Apache-2.0
"""Threads without Python that call the entry points: see threads.cpp, compiled on first use."""

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from allocbench.allocators import _core
from allocbench.allocators.programs import Program

_SOURCE = Path(__file__).with_name("threads.cpp")


class Counts(ctypes.Structure):
    """Calls of all threads together; `freed_of_others` are blocks that another thread allocated."""

    _fields_ = [
        (name, ctypes.c_uint64) for name in ("served", "refused", "freed", "freed_of_others")
    ]
    served: int
    refused: int
    freed: int
    freed_of_others: int


def run(program: Program, threads: int, operations: int, stream: int) -> Counts:
    """`operations` calls on each of `threads` threads; every other thread uses `stream`."""
    names = ("malloc", "free", "use_stream")
    calls = (ctypes.c_void_p(_core.entry_point(f"allocbench_cupy_{name}")) for name in names)
    given = ctypes.c_void_p(program.address), *calls, ctypes.c_void_p(stream)
    counts: Counts = _library().stress(*given, threads, ctypes.c_uint64(operations))
    return counts


@functools.cache
def _library() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix="stress_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    compiler = shutil.which(os.environ.get("CXX", "g++")) or "g++"
    line = [compiler, "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror"]
    line += ["-shared", "-fPIC", "-pthread", "-o", str(folder / "threads.so"), str(_SOURCE)]
    # Without fork: libraries take more locks for one than ThreadSanitizer can hold.
    subprocess.run(line, check=True, close_fds=False)
    library = ctypes.CDLL(str(folder / "threads.so"))
    library.stress.restype = Counts
    return library
