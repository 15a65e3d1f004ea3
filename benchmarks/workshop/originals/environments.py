# SPDX-License-Identifier: Apache-2.0
"""Where the originals come from: packages in folders of their own, sources that the user brings."""

import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
BUILT = ROOT / "build" / "originals"
HERE = Path(__file__).parent


class NotHereError(Exception):
    """Why an original cannot be run on this machine."""


def packages(*requirements: str) -> Path:
    """A folder with packages, without what they depend on; pip installs them once."""
    folder = BUILT / requirements[0].replace("==", "-")
    if not (folder / "done").exists():
        line = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        run([*line, "--target", str(folder), *requirements])
        (folder / "done").touch()
    return folder


def torch(version: str) -> Path:
    """The Python with a CUDA build of PyTorch, which `make test-null TORCH=VERSION` creates."""
    python = ROOT / "build" / "torch" / version / "bin" / "python"
    if not python.exists():
        raise NotHereError(f"no PyTorch {version}: make build/torch/{version}/.done")
    return python


def sources(name: str, repository: str, commit: str) -> Path:
    """The folder of a repository, which the user clones into $SOURCES."""
    folder = Path(os.environ.get("SOURCES", BUILT / "sources")) / name
    if not folder.exists():
        raise NotHereError(f"no sources: git clone {repository} {folder} (seen: {commit[:12]})")
    return folder


def library(source: str, made: str, *arguments: str) -> Path:
    """A shared library of an adapter in this folder, compiled when the adapter is newer."""
    return _compiled(source, made, "-shared", "-fPIC", "-fno-gnu-unique", *arguments)


def program(source: str, made: str, *arguments: str) -> Path:
    """A program of an adapter in this folder."""
    return _compiled(source, made, *arguments)


def _compiled(source: str, made: str, *arguments: str) -> Path:
    file, path = HERE / source, BUILT / made
    if not path.exists() or path.stat().st_mtime < file.stat().st_mtime:
        BUILT.mkdir(parents=True, exist_ok=True)
        default = ("CC", "cc") if source.endswith(".c") else ("CXX", "c++")
        compiler = shlex.split(os.environ.get(*default))
        flags = ["-O2", "-DNDEBUG", "-w", "-fvisibility=hidden"]
        run([*compiler, *flags, str(file), "-o", str(path), *arguments])
    return path


def run(line: Sequence[str], timeout: float | None = None) -> str:
    """The output of a command; raises NotHereError with its last line if it fails."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise NotHereError(f"{Path(line[0]).name}: not within {timeout:g} s") from error
    if done.returncode:
        last = re.sub(r"\S*/", "", (done.stderr.strip() or "no message").splitlines()[-1])
        raise NotHereError(f"{Path(line[0]).name} ended with {done.returncode}: {last[-160:]}")
    return done.stdout


def sha256(file: Path) -> str:
    """The digest of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
