# SPDX-License-Identifier: Apache-2.0
"""The driver of the null GPU, for tests of the code that uses a real GPU through CUDA's driver.

Kernels and events end at once, device memory is addresses alone, and the rules of the driver hold:
see `null_gpu/native`. `control.cpp` there has what tests ask of it and tell it.

`python -m tests.null_driver` writes it into a folder and prints the folder.
"""

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from allocbench.null_gpu import elf, launch, stubs

ROOT = Path(__file__).parents[1]
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
"""What null_outstanding() counts, in its order."""
CAPACITY = 1 << 30
NAME = "Null GPU"
OUT_OF_MEMORY, ILLEGAL_ADDRESS = 2, 700
NOT_READY = 600
SETTINGS: Mapping[str, object] = {
    "name": NAME,
    "memory": CAPACITY,
    "context": 0,
    "count": 2,
    "cuda_version": 12040,
}
"""Two GPUs of 1 GiB whose contexts take no memory."""


def make_driver(into: Path) -> None:
    """Write the driver alone into a folder, with all functions that the null GPU offers.

    A process that has the folder in LD_LIBRARY_PATH finds it.
    """
    core = launch.core()
    functions = stubs.libraries_for(elf.Imports(), elf.exported(core))[stubs.DRIVER]
    library = elf.shared_library(stubs.DRIVER, stubs.CORE_SONAME, functions)
    (into / stubs.DRIVER).write_bytes(library)
    (into / stubs.CORE_SONAME).symlink_to(core)


@functools.cache
def folder() -> Path:
    """The folder that contains libcuda.so.1."""
    created = Path(tempfile.mkdtemp(prefix="null_driver_"))
    atexit.register(shutil.rmtree, created, ignore_errors=True)
    make_driver(created)
    return created


def lines(settings: Mapping[str, object]) -> str:
    """Settings in the form in which the null GPU reads them."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def environment(
    settings: Mapping[str, object] | None = None, /, **variables: str
) -> dict[str, str]:
    """An environment in which a process loads the null GPU as the driver.

    settings: in addition to SETTINGS, such as `fail` and `report`.
    """
    path = [variables.pop("PYTHONPATH", ""), str(ROOT)]
    own = {
        "ALLOCBENCH_NULL_DRIVER": lines({**SETTINGS, **(settings or {})}),
        "LD_LIBRARY_PATH": str(folder()),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }
    return os.environ | own | variables


def python(
    code: str, *arguments: str, settings: Mapping[str, object] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in its own process on the null GPU's driver.

    It starts without fork: libraries take more locks for one than ThreadSanitizer can hold.
    """
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        close_fds=False,
        env=environment(settings, **variables),
        capture_output=True,
        text=True,
        timeout=600,
    )


def reported(path: Path) -> dict[str, int]:
    """What a process that had the setting `report` still held of the driver when it ended."""
    kinds = (line.split() for line in path.read_text().splitlines())
    return {kind: int(count) for kind, count in kinds}


class Driver:
    """The driver in this process. It stays loaded: a library loaded by name is found again."""

    def __init__(self) -> None:
        self._core = ctypes.CDLL(str(launch.core()))
        self._core.null_configure(lines(SETTINGS).encode())
        self._cuda = ctypes.CDLL(str(folder() / stubs.DRIVER))
        self._core.null_calls.restype = ctypes.c_uint64
        self._forgotten = 0

    def outstanding(self) -> dict[str, int]:
        """Resources held from the driver, without counts of zero."""
        counts = (ctypes.c_uint64 * len(KINDS))()
        self._core.null_outstanding(counts)
        result = dict(zip(KINDS, counts, strict=True))
        result["abandoned"] -= self._forgotten
        return {kind: count for kind, count in result.items() if count}

    def forget(self) -> None:
        """Forget resources that were abandoned with their context."""
        self._forgotten += self.outstanding().get("abandoned", 0)

    def used(self) -> int:
        """Bytes of the first GPU in use; each allocation takes whole pages of 2 MiB."""
        counters = (ctypes.c_uint64 * 6)()
        self._core.null_counters(counters)
        return counters[1]

    def calls(self, name: str) -> int:
        """Number of calls of one function in this process."""
        return int(self._core.null_calls(name.encode()))

    def fail(self, name: str = "", index: int = 0, error: int = ILLEGAL_ADDRESS) -> None:
        """Fail the `index`-th call from now on, or every call if 0; without a name, fail none."""
        self._core.null_fail(f"{name}:{index}:{error}".encode() if name else b"")

    def slow(self, name: str, seconds: float) -> None:
        """Set how long each call of a function takes; an empty name resets this."""
        self._core.null_slow(name.encode(), ctypes.c_double(seconds))

    def set_capacity(self, size: int) -> None:
        """Bytes of each GPU, for devices opened from now on."""
        self._core.null_resize(ctypes.c_size_t(size))

    def hold(self, stream: int, hold: bool = True, device: int = 0) -> None:
        """Queue work on a stream and keep it from finishing, or let it finish."""
        self._core.null_hold(ctypes.c_void_p(stream), device, int(hold))

    def busy(self, stream: int, device: int = 0) -> bool:
        """Whether work on a stream is not finished."""
        with self._on(device):
            status = self._cuda.cuStreamQuery(ctypes.c_void_p(stream))
        assert status in (0, NOT_READY)
        return bool(status)

    @contextmanager
    def new_stream(self, device: int) -> Iterator[int]:
        """The handle of a stream of a GPU, made as a program would."""
        stream = ctypes.c_void_p()
        with self._on(device):
            self._check(self._cuda.cuStreamCreate(ctypes.byref(stream), 1))
            yield stream.value or 0
            self._check(self._cuda.cuStreamDestroy_v2(stream))

    @contextmanager
    def capturing(self, stream: int, device: int = 0, mode: int = 0) -> Iterator[None]:
        """Capture a stream, in CUDA's global mode; raises RuntimeError if that became invalid."""
        handle, graph = ctypes.c_void_p(stream), ctypes.c_void_p()
        with self._on(device):
            self._check(self._cuda.cuStreamBeginCapture_v2(handle, mode))
            try:
                yield
            finally:
                error = self._cuda.cuStreamEndCapture(handle, ctypes.byref(graph))
            if error:
                raise RuntimeError(f"the capture is invalid: {error}")

    def accessible(self, address: int, device: int) -> bool:
        """Whether a GPU may access a mapped page, or the pool of a block."""
        cuda, pool_handle = self._cuda, 17
        flags, place = ctypes.c_ulonglong(), (ctypes.c_int * 2)(1, device)
        pointer, pool = ctypes.c_ulonglong(address), ctypes.c_void_p()
        self._check(cuda.cuPointerGetAttribute(ctypes.byref(pool), pool_handle, pointer))
        if pool.value:
            self._check(cuda.cuMemPoolGetAccess(ctypes.byref(flags), pool, place))
        else:
            self._check(cuda.cuMemGetAccess(ctypes.byref(flags), place, pointer))
        return flags.value == 3

    def is_memory(self, address: int) -> bool:
        """Whether an address lies in memory that the driver has handed out."""
        memory_type, found = 2, ctypes.c_uint()
        pointer = ctypes.c_ulonglong(address)
        status = self._cuda.cuPointerGetAttribute(ctypes.byref(found), memory_type, pointer)
        return bool(status == 0)

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to the GPU."""
        with self._on(0):
            status = self._cuda.cuMemcpyHtoD_v2(
                ctypes.c_ulonglong(address), data, ctypes.c_size_t(len(data))
            )
        self._check(status)

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes from the GPU."""
        data = ctypes.create_string_buffer(size)
        with self._on(0):
            status = self._cuda.cuMemcpyDtoH_v2(
                data, ctypes.c_ulonglong(address), ctypes.c_size_t(size)
            )
        self._check(status)
        return data.raw

    @contextmanager
    def _on(self, device: int) -> Iterator[None]:
        """Make the context of a GPU current."""
        context = ctypes.c_void_p()
        self._check(self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self._check(self._cuda.cuCtxPushCurrent_v2(context))
        try:
            yield
        finally:
            self._check(self._cuda.cuCtxPopCurrent_v2(ctypes.byref(context)))
            self._check(self._cuda.cuDevicePrimaryCtxRelease_v2(device))

    @staticmethod
    def _check(status: int) -> None:
        assert status == 0, f"error {status} of the driver"


if __name__ == "__main__":
    into = Path(tempfile.mkdtemp(prefix="null_driver_"))
    make_driver(into)
    print(into)
