# SPDX-License-Identifier: Apache-2.0
"""The type stub of the native core is up to date with its generator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from allocbench import allocators


def test_the_stub_is_up_to_date(tmp_path: Path) -> None:
    package = Path(allocators.__file__).parent
    fresh = tmp_path / "_core.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "allocbench.allocators._core"]
    subprocess.run([*command, "-o", str(fresh)], check=True, cwd=package.parent)
    assert fresh.read_text() == (package / "_core.pyi").read_text()
