# SPDX-License-Identifier: Apache-2.0
"""Unpack the headers of NVIDIA's packages: `get.py FOLDER PACKAGE==VERSION...`.

Each package is downloaded from PyPI, one after the other, and only its headers are kept.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def get(package: str, into: Path) -> None:
    """Unpack the headers of a package; raises SystemExit if it cannot be downloaded."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        if subprocess.run([*command, "--dest", folder, package]).returncode:
            sys.exit(f"error: {package} cannot be downloaded")
        for wheel in Path(folder).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                names = [name for name in archive.namelist() if "/include/" in name]
                archive.extractall(into, names)


if __name__ == "__main__":
    for wanted in sys.argv[2:]:
        get(wanted, Path(sys.argv[1]))
