# SPDX-License-Identifier: Apache-2.0
"""CuPy, RMM and Numba themselves on the driver of the null GPU.

`make test-packages` installs them into build/packages. Without that folder the tests are skipped,
and they fail where ALLOCBENCH_TEST_PACKAGES demands them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allocbench.null_gpu import device, launch, stubs
from tests.null_driver import make_driver

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "package_programs"
PACKAGES = ROOT / "build" / "packages"


def seen(program: str, folder: Path, on: str = "null:h100,count=2") -> dict[str, Any]:
    """What a program prints as JSON in a process that finds the null GPU's driver."""
    if not PACKAGES.exists():
        if os.environ.get("ALLOCBENCH_TEST_PACKAGES"):
            pytest.fail(f"{PACKAGES} is missing")
        pytest.skip("CuPy, RMM and Numba are not installed: make test-packages")
    make_driver(folder)
    settings = device.read(on).settings() | {"usage": folder / "usage", "cuda_version": 12090}
    told = {
        "core": str(launch.core()),
        "driver": str(folder / stubs.DRIVER),
        "packages": str(PACKAGES),
        "settings": "".join(f"{name}={value}\n" for name, value in settings.items()),
    }
    variables = {
        "LD_LIBRARY_PATH": str(folder),
        "NULL_DRIVER": json.dumps(told),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / f"{program}.py")],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
