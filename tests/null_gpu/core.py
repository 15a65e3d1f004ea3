# SPDX-License-Identifier: Apache-2.0
"""The native library alone, in a process: called as PyTorch would, results printed as JSON."""

import json
import subprocess
import sys
from typing import Any

from allocbench.null_gpu.launch import core

_BEFORE = """
import ctypes, json
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint64, c_ulonglong, c_void_p
gpu = ctypes.CDLL({core!r})
gpu.null_configure({settings!r})
seen = {{}}
P = ctypes.POINTER
def context(device=0):
    "Makes a context current, as a program does that uses the driver alone."
    made = c_void_p()
    assert gpu.null_cuInit(0) == 0
    assert gpu.null_cuDevicePrimaryCtxRetain(byref(made), device) == 0
    assert gpu.null_cuCtxPushCurrent_v2(made) == 0
    return made
def malloc(size):
    pointer = c_void_p()
    return gpu.null_cudaMalloc(byref(pointer), c_size_t(size)), pointer
"""
_AFTER = "\nprint(json.dumps(seen))\n"


def seen(program: str, **settings: int | str) -> Any:
    """The values that a program stores in `seen`, with the library as `gpu`."""
    told = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
    text = _BEFORE.format(core=str(core()), settings=told) + program + _AFTER
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
