# SPDX-License-Identifier: Apache-2.0
"""The environment that the training programs run in: a CUDA build of PyTorch and model libraries.

    python -m benchmarks.workshop.truth.environment [VERSION]

makes it in `build/truth/VERSION` (a download of about 0.9 GB), without NVIDIA's libraries.
"""

import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.workshop.truth.rows import TruthError

USUAL = "2.6.0"
"""The PyTorch of the measurements."""
TORCHVISION = {
    "2.5.1": "0.20.1",
    "2.6.0": "0.21.0",
    "2.9.1": "0.24.1",
    "2.11.0": "0.26.0",
    "2.13.0": "0.28.0",
}
"""Versions of PyTorch that the null GPU was tried with -> the matching torchvision."""
TRANSFORMERS = "4.51.3"
"""The version of the measurements; other versions may allocate differently."""
OTHERS = (
    "filelock",
    "typing-extensions",
    "setuptools<81",
    "sympy",
    "networkx",
    "jinja2",
    "fsspec",
    "numpy<2.3",
    "pillow",
)
FOLDER = Path(__file__).parents[3] / "build" / "truth"


def python(version: str) -> Path:
    """The Python with a version of PyTorch, created if missing; raises TruthError."""
    version = version or USUAL
    if version not in TORCHVISION:
        raise TruthError(f"torch {version}: the versions tried are {', '.join(TORCHVISION)}")
    folder = FOLDER / version
    if not (folder / ".done").exists():
        print(f"making {folder} with torch {version}, once", file=sys.stderr, flush=True)
        _make(folder, version)
    return folder / "bin" / "python"


def _make(folder: Path, version: str) -> None:
    venv.create(folder, with_pip=True)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    # Three equals signs: the plain version, not a build for another CUDA version.
    alone = [f"torch==={version}", f"torchvision=={TORCHVISION[version]}"]
    for arguments in (["--no-deps", *alone], [f"transformers=={TRANSFORMERS}", *OTHERS]):
        done = subprocess.run([*install, *arguments], capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip() or "pip failed").splitlines()[-1]
            raise TruthError(f"no environment in {folder}: {last}")
    (folder / ".done").touch()


if __name__ == "__main__":
    try:
        print(python(sys.argv[1] if len(sys.argv) > 1 else USUAL))
    except TruthError as wrong:
        sys.exit(f"error: {wrong}")
