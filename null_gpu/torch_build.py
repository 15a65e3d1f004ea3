# SPDX-License-Identifier: Apache-2.0
"""The PyTorch in a folder: its version, CUDA's version and those of NVIDIA's libraries."""

import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from allocbench.base.errors import UserError

OLDEST, NEWEST = (2, 5), (2, 15)
"""The versions of PyTorch that are accepted."""


class NullGpuError(UserError):
    """A null GPU is not possible; the message is one line."""


@dataclass(frozen=True)
class TorchBuild:
    """A PyTorch built for CUDA. Versions are numbers as reported by the libraries."""

    folder: Path
    version: str
    cuda: int
    cudnn: int
    nccl: int

    @property
    def libraries(self) -> Path:
        """The folder of its shared libraries."""
        return self.folder / "lib"


def check_host() -> None:
    """Raise NullGpuError if the null GPU cannot run."""
    system, machine = sys.platform, platform.machine()
    if system != "linux" or machine != "x86_64":
        raise NullGpuError(f"the null GPU needs Linux on x86_64; this is {system} on {machine}")


def find(folder: Path) -> TorchBuild:
    """The PyTorch whose package is in a folder; raises NullGpuError if it is not suitable."""
    check_host()
    text = (folder / "version.py").read_text(encoding="utf-8")
    version = _quoted(text, "__version__")
    cuda = _quoted(text, "cuda")
    if not cuda or not (folder / "lib" / "libtorch_cuda.so").exists():
        raise NullGpuError(
            f"torch {version} in {folder.parent} is not built for CUDA, which the null GPU needs: "
            f"pip install --no-deps torch==={version.partition('+')[0]} from PyPI"
        )
    release = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if not OLDEST <= release <= NEWEST:
        raise NullGpuError(
            f"torch {version} in {folder.parent}: the null GPU works with torch "
            f"{'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}"
        )
    major, minor = (int(part) for part in cuda.split(".")[:2])
    wanted = dict(_requirements(folder.parent))
    return TorchBuild(
        folder=folder,
        version=version,
        cuda=major * 1000 + minor * 10,
        cudnn=_number(wanted.get("cudnn", "9.10.2")),
        nccl=_number(wanted.get("nccl", "2.27.5")),
    )


def _quoted(text: str, name: str) -> str:
    match = re.search(rf"^{name}\s*(?::[^=]*)?=\s*'([^']*)'", text, re.MULTILINE)
    return match[1] if match else ""


def _requirements(site: Path) -> Iterator[tuple[str, str]]:
    """The versions of NVIDIA's libraries that torch was built with: "cudnn", "9.20.0.48"."""
    for metadata in sorted(site.glob("torch-*.dist-info/METADATA")):
        for line in metadata.read_text(encoding="utf-8").splitlines():
            if match := re.match(r"Requires-Dist: nvidia-(\w+)-cu\d+ ?\(?==([\d.]+)", line):
                yield match[1], match[2]


def _number(version: str) -> int:
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    return major * 10000 + minor * 100 + patch
