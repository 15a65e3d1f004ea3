# SPDX-License-Identifier: Apache-2.0
"""Writes the stand-ins for NVIDIA's libraries for one PyTorch into a folder.

    python -m allocbench.null_gpu.stubs TORCH_PACKAGE CORE INTO

CORE is the native library that the functions jump to. The folder appears whole or not at all.

A function that the native library implements (`null_cudaMalloc`) is used. A function that only
computes counts as a kernel; one that only sets or destroys something succeeds. All others return an
error and are named on standard error.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from allocbench.null_gpu import elf
from allocbench.null_gpu.elf import Jump
from allocbench.null_gpu.torch_build import NullGpuError, TorchBuild, find


@dataclass(frozen=True)
class _Library:
    """What the functions of a library do, as patterns of their names.

    prefix: the beginning of all names. kernels: functions that count as a kernel. harmless: those
    that succeed without doing anything. status: the error of all others; asked: they are called to
    find out whether they work, so that the error is the answer.
    """

    prefix: str = ""
    kernels: str = "(?!)"
    harmless: str = "(?!)"
    status: int = 10  # of most libraries: not supported, or an internal error
    asked: bool = False


@cache
def _libraries() -> Mapping[str, _Library]:
    """Libraries by the beginning of the SONAME; the first whose prefix matches has a function."""
    text = (Path(__file__).parent / "libraries.json").read_text(encoding="utf-8")
    return {name: _Library(**row) for name, row in json.loads(text).items()}


_STUBBED = re.compile(r"lib(cu|nccl|nvrtc|nvshmem|nvToolsExt|nvidia-ml|nvJitLink)")
_ALWAYS = ("libcuda.so.1", "libnvidia-ml.so.1")
"""The driver's libraries, which are opened by name when the program runs."""


def _public() -> list[str]:
    """The functions of the public headers of CUDA, its libraries, NVML, cuDNN and NCCL."""
    text = (Path(__file__).parent / "functions.txt").read_text(encoding="utf-8")
    return text.split()


def is_stubbed(soname: str) -> bool:
    """Whether a library that torch needs is NVIDIA's."""
    return _STUBBED.match(soname) is not None


def family(function: str) -> str:
    """The beginning of the SONAME of the library that a function belongs to, or ""."""
    homes = (name for name, one in _libraries().items() if re.match(one.prefix, function))
    return next(homes, "")


def library_of(soname: str) -> str:
    """The beginning of a SONAME: "libcudart.so.13" -> "libcudart.so"."""
    return soname.partition(".so")[0] + ".so"


def jump(function: str, library: str, offered: set[str]) -> Jump:
    """What a function of a library does, given what the native library offers."""
    own = f"null_{function}"
    if own in offered:
        return Jump(own)
    known = _libraries().get(library, _Library())
    if re.fullmatch(known.harmless, function):
        return Jump("null_harmless")
    if re.fullmatch(known.kernels, function):
        return Jump("null_work")
    return Jump("null_refused" if known.asked else "null_missing", function, known.status)


CORE_SONAME = "liballocbench_null.so"
ABOUT = "about.json"
DRIVER = "libcuda.so.1"
_WRONG = 2


def make(torch: TorchBuild, core: Path, into: Path) -> None:
    """Write the libraries, and `about.json` with their names and the versions for the core.

    Raises NullGpuError if something is missing or cannot be written.
    """
    try:
        wanted, offered = elf.read(torch.libraries), elf.exported(core)
    except ModuleNotFoundError as error:
        raise NullGpuError("the null GPU needs pyelftools: pip install pyelftools") from error
    libraries = libraries_for(wanted, offered)
    files = {soname: _file_of(soname) for soname in libraries}
    about = {
        "libraries": sorted(files.values()),
        "settings": {
            "cuda_version": torch.cuda,
            "cudnn_version": torch.cudnn,
            "nccl_version": torch.nccl,
        },
    }
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{into.name}-", dir=into.parent))
        for soname, functions in libraries.items():
            data = elf.shared_library(soname, CORE_SONAME, functions)
            (partial / files[soname]).write_bytes(data)
        (partial / "libcuda.so").symlink_to(DRIVER)  # what compilers link with
        (partial / ABOUT).write_text(json.dumps(about, indent=1))
        for file in (ABOUT, *files.values()):  # programs refuse what others can write
            (partial / file).chmod(0o644)
        try:
            partial.rename(into)
        except OSError:  # another process was faster
            shutil.rmtree(partial)
            if not (into / ABOUT).exists():
                raise
    except OSError as error:
        raise NullGpuError(f"{error.filename}: {error.strerror}") from error


def libraries_for(wanted: elf.Imports, offered: set[str]) -> dict[str, dict[str, tuple[str, Jump]]]:
    """SONAME -> its functions, with the version and the jump of each.

    Each library has the functions that PyTorch and its extensions import, and all that the core
    offers, because Triton and others look them up by name. Extensions need others than PyTorch:
    a library also has all functions of its public headers, and nvJitLink is there, without any.
    """
    sonames = {name for name in wanted.needed if is_stubbed(name)}
    sonames |= {library for library, _ in wanted.symbols.values() if is_stubbed(library)}
    sonames |= {one.replace("cudart", "nvJitLink") for one in sonames if "libcudart" in one}
    sonames |= set(_ALWAYS)
    by_library = {library_of(soname): soname for soname in sorted(sonames)}

    functions = defaultdict[str, dict[str, str]](dict)
    for name, (soname, version) in wanted.symbols.items():
        home = soname or by_library.get(family(name), "")
        if home in sonames:
            functions[home][name] = version
    for name in wanted.named:
        home = by_library.get(family(name), "")
        if home in _ALWAYS:
            functions[home].setdefault(name, "")
    own = (name.removeprefix("null_") for name in offered if name.startswith("null_"))
    for name in (*own, *_public()):
        home = by_library.get(family(name), "")
        if home and name not in functions[home]:
            functions[home][name] = next(iter(functions[home].values()), "")
    return {
        soname: {
            name: (version, jump(name, library_of(soname), offered))
            for name, version in sorted(functions[soname].items())
        }
        for soname in sorted(sonames)
    }


def _file_of(soname: str) -> str:
    """The file name of a library; loaders find a loaded library by its SONAME.

    If the name of the runtime is in /proc/self/maps, PyTorch loads all libraries of NVIDIA's
    packages, even if others with the same SONAME are loaded.
    """
    return soname.replace("libcudart.so", "libcudart-null.so")


def main() -> int:
    """Write the libraries that the arguments name; an error is one line, with exit code 2."""
    torch, core, into = map(Path, sys.argv[1:])
    try:
        make(find(torch), core, into)
    except NullGpuError as error:
        print(f"error: {error}", file=sys.stderr)
        return _WRONG
    return os.EX_OK


if __name__ == "__main__":
    raise SystemExit(main())
