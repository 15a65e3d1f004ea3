# SPDX-License-Identifier: Apache-2.0
"""Writes the stand-ins for NVIDIA's libraries for one PyTorch into a folder.

    python -m allocbench.null_gpu.stubs TORCH_PACKAGE CORE INTO

CORE is the native library that the functions jump to. The folder appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from allocbench.null_gpu import elf, imports, symbols
from allocbench.null_gpu.torch_build import NullGpuError, TorchBuild, find

CORE_SONAME = "liballocbench_null.so"
ABOUT = "about.json"
DRIVER = "libcuda.so.1"
_WRONG = 2


def make(torch: TorchBuild, core: Path, into: Path) -> None:
    """Write the libraries, and `about.json` with their names and the versions for the core.

    Raises NullGpuError if something is missing or cannot be written.
    """
    try:
        wanted, offered = imports.read(torch.libraries), imports.exported(core)
    except ModuleNotFoundError as error:
        raise NullGpuError(
            "the null GPU needs pyelftools: pip install 'allocbench[null]'"
        ) from error
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
        for file in (ABOUT, *files.values()):
            (partial / file).chmod(
                0o644
            )  # whatever the umask is: programs refuse what others can write
        try:
            partial.rename(into)
        except OSError:  # another process was faster
            shutil.rmtree(partial)
            if not (into / ABOUT).exists():
                raise
    except OSError as error:
        raise NullGpuError(f"{error.filename}: {error.strerror}") from error


def make_driver(core: Path, into: Path) -> None:
    """Write the driver alone into a folder: all functions that the core offers, and the core.

    A process that has the folder in LD_LIBRARY_PATH finds it. The core gets its settings from the
    variable ALLOCBENCH_NULL_DRIVER.
    """
    functions = libraries_for(imports.Imports(), imports.exported(core))[DRIVER]
    (into / DRIVER).write_bytes(elf.shared_library(DRIVER, CORE_SONAME, functions))
    (into / CORE_SONAME).symlink_to(core)


def libraries_for(
    wanted: imports.Imports, offered: set[str]
) -> dict[str, dict[str, tuple[str, elf.Jump]]]:
    """SONAME -> its functions, with the version and the jump of each.

    Each library has the functions that PyTorch and its extensions import, and all that the core
    offers, because Triton and others look them up by name.
    """
    sonames = {name for name in wanted.needed if symbols.is_stubbed(name)}
    sonames |= {library for library, _ in wanted.symbols.values() if symbols.is_stubbed(library)}
    sonames |= set(symbols.ALWAYS)
    by_library = {symbols.library_of(soname): soname for soname in sorted(sonames)}

    functions = defaultdict[str, dict[str, str]](dict)
    for name, (soname, version) in wanted.symbols.items():
        home = soname or by_library.get(symbols.family(name), "")
        if home in sonames:
            functions[home][name] = version
    for name in wanted.named:
        home = by_library.get(symbols.family(name), "")
        if home in symbols.ALWAYS:
            functions[home].setdefault(name, "")
    own = (name.removeprefix("null_") for name in offered if name.startswith("null_"))
    for name in (*own, *symbols.EXTENSIONS):
        home = by_library.get(symbols.family(name), "")
        if home and name not in functions[home]:
            functions[home][name] = next(iter(functions[home].values()), "")
    return {
        soname: {
            name: (version, symbols.jump(name, symbols.library_of(soname), offered))
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
