# SPDX-License-Identifier: Apache-2.0
"""The null GPU's own declarations of structs and numbers agree with NVIDIA's headers.

`make test-null` gets the headers of the runtime, the driver and NVML. Those of cuDNN, cuBLAS and
NCCL are in packages of some hundred MB each, which `make test-headers` downloads once.
"""

import os
import subprocess
from pathlib import Path

import pytest

from allocbench.null_gpu.launch import core
from tests.null_gpu import ROOT

SOURCES = Path(__file__).parent / "headers"


def folder_of(header: str, version: str) -> Path:
    """The folder of a header, among the packages that were unpacked."""
    packages = ROOT / "build" / "headers" / version
    found = sorted(packages.glob(f"nvidia/*/include/{header}"))
    if not found:
        variable = "TORCH" if header in ("cuda.h", "nvml.h") else "HEADERS"
        if os.environ.get(f"ALLOCBENCH_TEST_{variable}"):
            pytest.fail(f"{packages} has no {header}")
        pytest.skip(f"{packages} has no {header}: make test-headers")
    return found[0].parent


@pytest.mark.parametrize(
    ("source", "headers", "version"),
    [
        ("cuda", ["cuda.h"], "12"),
        ("cuda", ["cuda.h"], "13"),
        ("nvml", ["nvml.h"], "12"),
        ("nvml", ["nvml.h"], "13"),
        ("cudnn", ["cudnn.h", "cuda.h"], "13"),
        ("libraries", ["cuda.h", "nv/target", "cublasLt.h", "nccl.h"], "13"),
    ],
)
def test_structs_and_numbers(source: str, headers: list[str], version: str, tmp_path: Path) -> None:
    program = tmp_path / source
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-Wall", "-o", str(program)]
    command += ["-I", str(SOURCES), "-I", str(ROOT / "allocators" / "native"), "-I", str(ROOT)]
    for header in headers:
        command += ["-isystem", str(folder_of(header, version))]
    command += ["-idirafter", str(SOURCES / "stand_in")]
    done = subprocess.run(
        [*command, str(SOURCES / f"{source}.cpp"), "-ldl"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    done = subprocess.run([str(program), str(core())], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
