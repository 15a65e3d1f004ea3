# SPDX-License-Identifier: Apache-2.0
"""Task: what the driver and PyTorch say about a GPU, and what its libraries take beside PyTorch."""

# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import ctypes
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.workshop.gpu import task

_ATTRIBUTES = 150  # more than CUDA 13 has
_SMI = (
    *("memory.total", "memory.used", "memory.free", "memory.reserved", "driver_version"),
    *("clocks.max.sm", "clocks.max.memory", "clocks.sm", "ecc.mode.current", "mig.mode.current"),
    *("persistence_mode", "compute_mode", "pci.bus_id", "vbios_version"),
)


def measure(_arguments: argparse.Namespace) -> dict[str, Any]:
    """Attributes, properties, and bytes in use after each first use of a library."""
    used_before = _smi(*(f"--query-gpu={','.join(_SMI)}", "--format=csv,nounits"))
    driver = _driver()
    import torch

    properties = torch.cuda.get_device_properties(0)
    steps = []
    for name, use in _uses():
        use()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        reserved = torch.cuda.memory_reserved()
        steps.append(
            {"after": name, "free": free, "total": total, "reserved": reserved}
            | {"beside": total - free - reserved}
        )
    return {
        "smi_before": used_before,
        "smi_after": _smi(*(f"--query-gpu={','.join(_SMI)}", "--format=csv,nounits")),
        "smi_processes": _smi("--query-compute-apps=pid,used_memory", "--format=csv,nounits"),
        "driver": driver,
        "properties": {
            name: value if isinstance(value, int | float | str) else str(value)
            for name in dir(properties)
            if not name.startswith("_") and not callable(value := getattr(properties, name))
        },
        "cudnn": torch.backends.cudnn.version(),
        "steps": steps,
        "maps": _nvidia_maps(),
    }


def _smi(*arguments: str) -> str | None:
    try:
        return subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=30
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None


def _driver() -> dict[str, Any]:
    """Attributes by number, bytes and name of the first device; no context is created."""
    cuda = ctypes.CDLL("libcuda.so.1")
    version, device, value = (ctypes.c_int() for _ in range(3))
    total, name = ctypes.c_size_t(), ctypes.create_string_buffer(256)
    codes = [
        cuda.cuInit(0),
        cuda.cuDriverGetVersion(ctypes.byref(version)),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device),
        cuda.cuDeviceGetName(name, len(name), device),
    ]
    attributes = {}
    for number in range(1, _ATTRIBUTES + 1):
        code = cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        attributes[number] = None if code else value.value
    return {
        "codes": codes,
        "version": version.value,
        "total": total.value,
        "name": name.value.decode(),
        "attributes": attributes,
    }


def _uses() -> Iterator[tuple[str, Callable[[], Any]]]:
    """What a program does first, in an order that loads one library after the other."""
    import torch
    from torch.nn import functional
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.ones(*shape, dtype=dtype, device="cuda", requires_grad=True)

    def attention(backend: SDPBackend) -> None:
        q = ones(2, 4, 256, 64, dtype=torch.bfloat16)
        with sdpa_kernel(backend):
            functional.scaled_dot_product_attention(q, q, q).sum().backward()

    def convolution() -> None:
        functional.conv2d(ones(8, 16, 32, 32), ones(32, 16, 3, 3)).sum().backward()

    yield "context", torch.cuda.init
    yield "an empty tensor", lambda: torch.empty(1, device="cuda")
    yield "a kernel", lambda: torch.ones(1, device="cuda")
    yield "elementwise kernels", lambda: (ones(1000) * 2).relu().sum().item()
    yield "random numbers", lambda: torch.randn(1000, device="cuda")
    yield "cuBLAS, float32", lambda: ones(512, 512) @ ones(512, 512)
    yield (
        "cuBLAS, bfloat16",
        lambda: ones(512, 512, dtype=torch.bfloat16) @ ones(512, 512, dtype=torch.bfloat16),
    )
    yield "cuBLASLt", lambda: functional.linear(ones(64, 512), ones(512, 512), ones(512))
    yield "flash attention", lambda: attention(SDPBackend.FLASH_ATTENTION)
    yield "efficient attention", lambda: attention(SDPBackend.EFFICIENT_ATTENTION)
    yield "cuDNN, convolution", convolution
    yield "cuDNN, attention", lambda: attention(SDPBackend.CUDNN_ATTENTION)
    yield "sort", lambda: ones(100_000).sort()
    yield "cuFFT", lambda: torch.fft.fft(ones(64, 256))
    yield "cuSOLVER", lambda: torch.linalg.inv(torch.eye(64, device="cuda"))
    yield "cuSPARSE", lambda: torch.eye(64, device="cuda").to_sparse() @ ones(64, 8)
    yield "cuDNN, LSTM", lambda: torch.nn.LSTM(64, 64).cuda()(ones(4, 2, 64))
    yield "a captured graph", _graph
    yield "a stream", lambda: torch.cuda.Stream().synchronize()


def _graph() -> None:
    import torch

    graph, x = torch.cuda.CUDAGraph(), torch.ones(1000, device="cuda")
    with torch.cuda.graph(graph):
        x.add_(1)
    graph.replay()


def _nvidia_maps() -> list[str]:
    """The lines of this process's memory map that are files of the driver."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if "nvidia" in line][:400]


if __name__ == "__main__":
    task.finish(task.new_parser(__doc__).parse_args(), measure)
