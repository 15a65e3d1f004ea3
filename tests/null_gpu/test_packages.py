# SPDX-License-Identifier: Apache-2.0
"""CuPy, RMM and Numba get memory from an allocator through their own code."""

from pathlib import Path

from tests.null_gpu.packages import seen

RUNTIME = "cudaErrorSymbolNotFound: named symbol not found"
"""What the CUDA runtime says that is linked into CuPy and RMM: the driver of the null GPU has no
answer to cuGetExportTable, whose tables NVIDIA does not document."""
GPU = 85_017_493_504


def test_numba(tmp_path: Path) -> None:
    assert seen("numba_arrays", tmp_path) == {
        "requested": 4 << 20,
        "copied": True,
        "reused": True,
        "beyond": "OutOfMemory: caching: out of memory: asked for 32.00 TiB (35184372088832 ",
        "free": True,
        "total": GPU,
        "shared": "NotImplementedError: memory of an allocator cannot be shared between processes",
        "gpus": [0, 1],
        "threads apart": True,
    }


def test_rmm(tmp_path: Path) -> None:
    assert seen("rmm_resources", tmp_path) == {
        "runtime": f"CUDARuntimeError: {RUNTIME}",
        "resource": "CallbackMemoryResource",
        "requested": 5 << 20,
        "deferred": 1,
        "reused": True,
        "beyond": "MemoryError: std::bad_alloc: out_of_memory: caching: out of memory: asked",
        "threads apart": True,
        "gpus": [[0], [1]],
        "buffer": 1000,
        "after": 0,
    }


def test_cupy(tmp_path: Path) -> None:
    assert seen("cupy_arrays", tmp_path) == {
        "runtime": f"CUDARuntimeError: {RUNTIME}",
        "owner": "CFunctionAllocatorMemory",
        "requested": 5 << 20,
        "apart": True,
        "reused": True,
        "array": 4_000_000,
        "beyond": "CupyOutOfMemory",
        "ours": True,
        "pickled": True,
        "text": "caching: out of memory: asked for 32.00 ",
        "threads apart": True,
        "gpus": [0, 1],
        "using": 1000,
    }
