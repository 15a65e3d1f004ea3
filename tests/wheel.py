# SPDX-License-Identifier: Apache-2.0
"""Check the wheel that `make wheel` has put into a folder, and use it in an empty environment.

Nothing in it may need a newer glibc than its name says, or a C++ library. It is then installed into
a new environment, and used in another folder, with nothing in PATH except for that environment.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

_GLIBC = re.compile(r"GLIBC_([\d.]+)")
_NAME = re.compile(r"-manylinux_(\d+)_(\d+)_\w+\.whl$")
_COMMANDS = (
    ("compare", "gpt2-train", "--device", "sim:80GiB"),
    ("explain", "gpt2-train", "--device", "sim:8GiB"),
    ("list", "devices"),
)


def main() -> int:
    """The exit code: 1 if the wheel needs too much, or does not work."""
    (wheel,) = Path(sys.argv[1]).glob("*.whl")
    named = _NAME.search(wheel.name)
    if named is None:
        print(f"{wheel.name}: no manylinux tag")
        return 1
    most = (int(named[1]), int(named[2]))
    with zipfile.ZipFile(wheel) as archive:
        needs = {
            name: needed(archive.read(name))
            for name in archive.namelist()
            if ".so" in Path(name).name
        }
    wrong = {name: needs[name] - allowed(most, needs[name]) for name in needs}
    for name, versions in needs.items():
        print(f"{name}: {', '.join(sorted(versions))}")
    if not needs or any(wrong.values()):
        print(f"needs more than glibc {most[0]}.{most[1]}: {wrong}")
        return 1
    with tempfile.TemporaryDirectory(prefix="allocbench-wheel-") as folder:
        return used(wheel, Path(folder))


def needed(library: bytes) -> set[str]:
    """The versions of symbols, and the other libraries, that a library needs."""
    elf: Any = ELFFile(io.BytesIO(library))
    found = set[str]()
    for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED"):
        found.add(tag.needed)
    versions = elf.get_section_by_name(".gnu.version_r")
    for _library, symbols in versions.iter_versions() if versions else ():
        found |= {symbol.name for symbol in symbols}
    return found


def allowed(most: tuple[int, int], needs: set[str]) -> set[str]:
    """Those of the needs that a system with this glibc has, without a C++ library."""
    fine = set[str]()
    for need in needs:
        if version := _GLIBC.fullmatch(need):
            if tuple(map(int, version[1].split(".")))[:2] <= most:
                fine.add(need)
        elif re.match(r"lib(c|m|dl|rt|pthread)\.so|ld-linux|liballocbench_null", need):
            fine.add(need)
    return fine


def used(wheel: Path, folder: Path) -> int:
    """Install the wheel in an empty environment and run commands; the exit code."""
    venv.create(folder / "user", with_pip=True)
    binaries = folder / "user" / "bin"
    subprocess.run([binaries / "pip", "install", "--quiet", wheel], check=True)
    (folder / "elsewhere").mkdir()
    environment = {"PATH": str(binaries), "HOME": str(folder), "LC_ALL": "C"}
    for command in _COMMANDS:
        done = subprocess.run(
            [binaries / "allocbench", *command],
            cwd=folder / "elsewhere",
            env=environment,
            capture_output=True,
            text=True,
        )
        print(f"allocbench {' '.join(command)}: exit code {done.returncode}")
        if done.returncode or not done.stdout:
            print(done.stdout + done.stderr)
            return 1
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
