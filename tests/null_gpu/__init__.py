# SPDX-License-Identifier: Apache-2.0
"""The null GPU: its parts, and programs of a CUDA build of PyTorch on it.

The build is in its own environment, which `make test-null` creates. Tests that need it are skipped
without it, and fail if ALLOCBENCH_TEST_TORCH names a version that is missing. Older versions are
tested only if they are named there.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from allocbench.null_gpu import device, launch

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
VERSIONS = ("2.13.0", "2.14.1", "2.11.0", "2.9.1", "2.5.1")
NEWEST = VERSIONS[0]


def python(version: str = NEWEST) -> str:
    """The Python that has a CUDA build of this PyTorch; skips the test if it is not tested."""
    path = ROOT / "build" / "torch" / version / "bin" / "python"
    named = version in os.environ.get("ALLOCBENCH_TEST_TORCH", "").split()
    if not named and (version != NEWEST or not path.exists()):
        pytest.skip(f"needs a CUDA build of PyTorch {version}: make test-null TORCH={version}")
    if not path.exists():
        pytest.fail(f"{path} is missing")
    return str(path)


def needs(package: str, version: str = NEWEST) -> None:
    """Skip the test if a package is not installed with this PyTorch."""
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
    if subprocess.run([python(version), "-c", code]).returncode:
        if version in os.environ.get("ALLOCBENCH_TEST_TORCH", "").split():
            pytest.fail(f"{package} is missing next to PyTorch {version}")
        pytest.skip(f"no {package} next to PyTorch {version}: make test-null TORCH={version}")


def seen(
    program: str,
    folder: Path,
    *arguments: str,
    on: str = "null:h100",
    version: str = NEWEST,
    limits: launch.Limits | None = None,
    **variables: str,
) -> dict[str, Any]:
    """The JSON that one of the programs printed on a null GPU."""
    environment = os.environ | launch.environment(device.read(on), folder, limits) | variables
    command = [python(version), str(PROGRAMS / f"{program}.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@cache
def allocbench() -> list[str]:
    return [sys.executable, "-m", "allocbench"]


def asked(*arguments: str, code: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command of allocbench in a process of its own, which must end with this exit code."""
    line = [*allocbench(), *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == code, done.stderr
    return done


def recorded(
    path: Path,
    program: str,
    *arguments: str,
    version: str = NEWEST,
    options: str = "",
    code: int = 0,
) -> subprocess.CompletedProcess[str]:
    """`allocbench record` of one of the programs, into a file."""
    line = ["record", "-o", str(path), *(options or "--device null:h100").split()]
    program = str(PROGRAMS / f"{program}.py")
    return asked(*line, "--", python(version), program, *arguments, code=code)
