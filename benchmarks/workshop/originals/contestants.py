# SPDX-License-Identifier: Apache-2.0
"""The originals: where each comes from, how it is driven, and which of ours is its replica."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.workshop.originals.environments import (
    NotHereError,
    library,
    packages,
    sha256,
    torch,
)
from benchmarks.workshop.originals.subjects import Here, Subject, pytorch


@dataclass(frozen=True)
class Made:
    """An original that can be run: the file that has its code, and what replays through it."""

    file: Path
    subject: Subject

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return sha256(self.file)


@dataclass(frozen=True)
class Allocator:
    """An original allocator.

    source: the package with its version. replica: the spec of ours. make: raises NotHereError.
    preload: the library of the adapter, if it is also preloaded. without: workloads that the
    adapter cannot pass on, with the reason.
    """

    name: str
    source: str
    replica: str
    make: Callable[[], AbstractContextManager[Made]]
    preload: Callable[[], Path] | None = None
    without: Mapping[str, str] = field(default_factory=dict)


TENSORFLOW = "tensorflow-cpu==2.21.0"
ONNXRUNTIME = "onnxruntime==1.31.1"
RMM = ("librmm-cu12==25.4.0", "rapids-logger==0.1.19")
CUDA = ("nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cuda-nvcc-cu12==12.8.93")


def tensorflow() -> Path:
    """TensorFlow's BFCAllocator, as a library with my_malloc and my_free."""
    there = packages(TENSORFLOW) / "tensorflow"
    flags = ["-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=1", f"-I{there / 'include'}", f"-L{there}"]
    links = ["-l:libtensorflow_framework.so.2", "-l:libtensorflow_cc.so.2", f"-Wl,-rpath,{there}"]
    return library("tensorflow_bfc.cpp", "tensorflow_bfc.so", *flags, *links)


def _tensorflow_code() -> Path:
    return packages(TENSORFLOW) / "tensorflow" / "libtensorflow_framework.so.2"


def onnxruntime() -> Path:
    """ONNX Runtime's BFCArena, as a library with my_malloc and my_free."""
    flags = ["-std=c++17", f'-DLIBRARY="{_onnxruntime_code()}"', "-Wl,-z,lazy", "-ldl"]
    return library("onnxruntime_arena.cpp", "onnxruntime_arena.so", *flags)


def _onnxruntime_code() -> Path:
    return next(packages(ONNXRUNTIME).glob("onnxruntime/capi/libonnxruntime.so.*"))


def rmm(resource: str) -> Path:
    """A memory resource of RMM, as a library with my_malloc and my_free."""
    there, cuda = packages(*RMM), packages(*CUDA) / "nvidia"
    inside = there / "librmm" / "include"
    folders = [inside, inside / "rapids", inside / "rapids" / "libcudacxx"]
    folders += [there / "rapids_logger" / "include"]
    folders += [cuda / part / "include" for part in ("cuda_runtime", "cuda_nvcc")]
    logger = there / "rapids_logger" / "lib64"
    flags = ["-std=c++17", "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"]
    flags += [f"-DRESOURCE={resource}", *(f"-I{folder}" for folder in folders)]
    links = [f"-L{logger}", "-lrapids_logger", f"-Wl,-rpath,{logger}"]
    return library("rmm.cpp", f"{resource}.so", *flags, *links)


def _external(
    file: Callable[[], Path], of: Callable[[], Path]
) -> Callable[[], AbstractContextManager[Made]]:
    return lambda: nullcontext(Made(of(), Here(str(file()))))


def _pytorch(version: str) -> Allocator:
    @contextmanager
    def make() -> Iterator[Made]:
        python = torch(version)
        (file,) = python.parents[1].glob("lib/python3*/site-packages/torch/lib/libc10_cuda.so")
        with pytorch(python) as subject:
            yield Made(file, subject)

    replica = f"caching:version={version.rpartition('.')[0]}"
    without = {"ping-pong": "its blocks are freed on other streams than they were allocated for"}
    name, source = f"PyTorch {version}", f"torch=={version}"
    return Allocator(name, source, replica, make, without=without)


def _rmm(name: str) -> Allocator:
    resource = f"{name}_memory_resource"
    header = f"librmm/include/rmm/mr/device/{resource}.hpp"
    make = _external(partial(rmm, resource), lambda: packages(*RMM) / header)
    return Allocator(f"RMM {name}", RMM[0], f"rmm_{name}", make)


def _cupy() -> AbstractContextManager[Made]:
    raise NotHereError("it contains a CUDA runtime of its own, which needs NVIDIA's driver")


ALLOCATORS = (
    *map(_pytorch, ("2.5.1", "2.9.1", "2.11.0", "2.13.0", "2.14.1")),
    Allocator(
        "TensorFlow BFCAllocator", TENSORFLOW, "bfc", _external(tensorflow, _tensorflow_code)
    ),
    Allocator(
        "ONNX Runtime BFCArena",
        ONNXRUNTIME,
        "bfc:preset=onnxruntime",
        _external(onnxruntime, _onnxruntime_code),
        preload=onnxruntime,
    ),
    *map(_rmm, ("pool", "arena")),
    Allocator("CuPy MemoryPool", "cupy-cuda12x==14.2.0", "cupy_pool", _cupy),
)
