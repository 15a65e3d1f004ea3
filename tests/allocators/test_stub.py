# SPDX-License-Identifier: Apache-2.0
"""The type stubs of the native modules are up to date with their generator."""

import subprocess
import sys
from pathlib import Path

import pytest

from allocbench import allocators, workloads


@pytest.mark.parametrize(("package", "name"), [(allocators, "_core"), (workloads, "_native")])
def test_the_stub_is_up_to_date(package: object, name: str, tmp_path: Path) -> None:
    folder = Path(str(vars(package)["__file__"])).parent
    fresh = tmp_path / f"{name}.pyi"
    module = f"{vars(package)['__name__']}.{name}"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", module]
    subprocess.run([*command, "-o", str(fresh)], check=True, cwd=folder.parent)
    assert fresh.read_text() == (folder / f"{name}.pyi").read_text()
