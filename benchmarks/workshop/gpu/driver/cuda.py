# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver through ctypes: calls by name, with their status; work that lasts."""

import ctypes
import json
import time
from typing import Any

from benchmarks.workshop.gpu.driver.kernels import PTX

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MISSING = -1
"""The status of a function that the driver does not have."""
_SPIN_SECONDS = 0.1


class Cuda:
    """The driver that a process finds by its name; the real one, or that of the null GPU.

    Integers are passed as 64 bits, which x86-64 and AArch64 also accept for narrower ones.
    """

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        try:
            self._null: Any = ctypes.CDLL("liballocbench_null.so")
        except OSError:
            self._null = None
        self._functions: dict[str, ctypes.c_void_p] = {}
        self._busy_until = 0.0

    @property
    def real(self) -> bool:
        """Whether it is not the driver of the null GPU."""
        return self._null is None

    def call(self, name: str, *arguments: Any) -> int:
        """The status of a call."""
        try:
            function = getattr(self.library, name)
        except AttributeError:
            return MISSING
        wide = [ctypes.c_uint64(one) if isinstance(one, int) else one for one in arguments]
        return int(function(*wide))

    def need(self, name: str, *arguments: Any) -> None:
        """Make a call that must succeed; raises RuntimeError."""
        if status := self.call(name, *arguments):
            raise RuntimeError(f"{name}: error {status}")

    def number(self, name: str, *arguments: Any) -> tuple[int, int]:
        """The status of a call, and the number that it writes to its first argument."""
        value = ctypes.c_uint64()
        return self.call(name, ctypes.byref(value), *arguments), value.value

    def handle(self, name: str, *arguments: Any) -> int:
        """What a call that must succeed writes to its first argument; raises RuntimeError."""
        status, value = self.number(name, *arguments)
        if status:
            raise RuntimeError(f"{name}: error {status}")
        return value

    def open(self, device: int = 0) -> int:
        """Initialize the driver and make the primary context of a device current."""
        self.need("cuInit", 0)
        context = self.handle("cuDevicePrimaryCtxRetain", device)
        self.need("cuCtxPushCurrent_v2", context)
        return context

    def free_bytes(self) -> int:
        """The free bytes of the whole GPU."""
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        self.need("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def alloc(self, size: int) -> int:
        """The address of a cuMemAlloc that must succeed."""
        return self.handle("cuMemAlloc_v2", size)

    def stream(self, flags: int = 1) -> int:
        """A new stream; by default, one that does not wait for the default stream."""
        return self.handle("cuStreamCreate", flags)

    def launch(self, name: str, stream: int, blocks: int, threads: int, *values: Any) -> int:
        """Launch a kernel of `kernels.PTX`; values: ctypes of its parameters. The status."""
        if name not in self._functions:
            module = self.handle("cuModuleLoadData", PTX)
            function = self.handle("cuModuleGetFunction", module, name.encode())
            self._functions[name] = ctypes.c_void_p(function)
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values)
        )
        grid = (blocks, 1, 1, threads, 1, 1, 0)
        return self.call("cuLaunchKernel", self._functions[name], *grid, stream, pointers, None)

    def load_kernels(self) -> None:
        """Load the kernels now: loading may wait for the GPU."""
        for name in ("spin", "count_wrong"):
            if name not in self._functions:
                self.launch(name, 0, 1, 1, *_NOTHING[name])
        self.need("cuCtxSynchronize")

    def busy(self, stream: int) -> None:
        """Queue work on a stream that lasts a tenth of a second, or until `idle` on a null GPU."""
        if self._null is not None:
            self._null.null_hold(ctypes.c_void_p(stream), 0, 1)
            return
        nanoseconds = ctypes.c_uint64(int(_SPIN_SECONDS * 1e9))
        if status := self.launch("spin", stream, 1, 1, nanoseconds):
            raise RuntimeError(f"spin: error {status}")
        self._busy_until = time.monotonic() + _SPIN_SECONDS + 0.05

    def idle(self, stream: int) -> None:
        """Wait until the work of `busy` has ended, without a call that synchronizes."""
        if self._null is not None:
            self._null.null_hold(ctypes.c_void_p(stream), 0, 0)
        else:
            time.sleep(max(0.0, self._busy_until - time.monotonic()))


_NOTHING: dict[str, tuple[Any, ...]] = {
    "spin": (ctypes.c_uint64(0),),
    "count_wrong": (*(ctypes.c_uint64(0),) * 2, ctypes.c_uint32(0), ctypes.c_uint64(0)),
}


def line(label: str, status: int | None = None, *, raw: Any = None, **values: Any) -> None:
    """Print what a call returned.

    values: are compared with those of another driver; raw: are not, such as an address.
    """
    content: dict[str, Any] = {"label": label}
    if status is not None:
        content["status"] = status
    content |= values
    if raw is not None:
        content["raw"] = raw
    print(json.dumps(content), flush=True)


def alignment(address: int) -> int:
    """The largest power of two that divides an address, at most 2 MiB; 0 for no address."""
    return min(address & -address, 2 * MIB)
