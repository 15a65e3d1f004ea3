# SPDX-License-Identifier: Apache-2.0
"""Build the sdist and the wheel twice, compare them, and use the wheel in an empty environment.

`make test-release PYTHON=python3.13` runs it with another Python. Nothing is taken from a compiler
cache: both builds compile everything, in folders whose paths differ in length. The exit code is 1
if the packages differ or the installed command fails.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests import source_copy

FOLDERS = ("first", "a/second/one")
COMMAND = ("compare", "gpt2-train", "--device", "sim:80GiB")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="allocbench-release-") as name:
        scratch = Path(name)
        line = ["git", "log", "-1", "--format=%ct"]
        date = subprocess.check_output(line, cwd=source_copy.ROOT, text=True).strip()
        builder = _environment(scratch / "builder", "build")
        for folder in FOLDERS:
            source_copy.update(scratch / folder)
        packages = [_built(scratch / folder, builder, date) for folder in FOLDERS]
        digests = [{file.name: _digest(file) for file in files} for files in packages]
        for file, digest in digests[0].items():
            same = digests[1].get(file) == digest
            print(f"{file}: sha256 {digest}, {'equal' if same else 'DIFFERENT'} in both builds")
        if digests[0] != digests[1]:
            _keep(packages)
            return 1
        wheel = next(file for file in packages[0] if file.suffix == ".whl")
        return _run(wheel, scratch)


def _environment(folder: Path, *packages: str) -> str:
    """The interpreter of a new environment with these packages and what they need."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin/python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def _built(source: Path, python: str, date: str) -> list[Path]:
    """The sdist of a copy of the sources, and the wheel of the sdist, both of this date."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": date, "CCACHE_DISABLE": "1"}
    into = source.parent / f"{source.name}-packages"
    line = [python, "-m", "build", "--outdir", str(into), str(source)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    return sorted(into.iterdir())


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _keep(packages: list[list[Path]]) -> None:
    for number, files in enumerate(packages):
        folder = source_copy.ROOT / "build/release" / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy(file, folder)
    print("both are kept in build/release")


def _run(wheel: Path, scratch: Path) -> int:
    """Install the wheel in an empty environment and run the command in another folder."""
    python = _environment(scratch / "user", str(wheel))
    elsewhere = scratch / "elsewhere"
    elsewhere.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(Path(python).with_name("allocbench")), *COMMAND]
    done = subprocess.run(
        command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=False
    )
    print(f"Python {'.'.join(map(str, sys.version_info[:3]))}: {' '.join(command[1:])}")
    print(done.stdout + done.stderr)
    return int(done.returncode != 0 or "gpt2-train: Best setting" not in done.stdout)


if __name__ == "__main__":
    sys.exit(main())
