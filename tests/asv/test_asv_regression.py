# SPDX-License-Identifier: Apache-2.0
"""A regression planted in a strategy's source, measured by asv and found by the gate.

One build, without optimisation: what is counted does not depend on it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from allocbench import allocators
from tests import clean_environment

ROOT = Path(__file__).parents[2]
COPIED = ("allocators", "allocbench", "benchmarks", "reports", "workloads")
FILES = (".gitignore", "asv.conf.json", "pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE")
HEADER = Path("allocators/native/strategies/bfc.hpp")
GIVE = "return timestamped_frees_ ? timestamps_.free(address) : pool_.give(address);"
NEVER_COALESCE = """if (timestamped_frees_) return timestamps_.free(address);
    Block const given = pool_.allocated(address);
    if (given.size != 0) pool_.admit(pool_.withhold(address));
    return given;"""
BENCH = "FastMemory.track_(peak_reserved|overhead|device_calls)"


class Repository:
    """A small copy of this project as a git repository, and asv over its commits."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder, self.python = folder, python
        left_out = shutil.ignore_patterns("results", "__pycache__", "*.so", "*.pyc")
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=left_out)
        for name in FILES:
            shutil.copy(ROOT / name, folder)
        self.edit(
            Path("benchmarks/common.py"),
            r"(?s)ALLOCATORS = \(.*?\)",
            r'ALLOCATORS = ("bfc", "buddy")',
        )
        self.edit(
            Path("benchmarks/common.py"),
            r"FAST_WORKLOADS = \(.*?\)",
            'FAST_WORKLOADS = ("gpt2-train",)',
        )
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("add", "--all")
        self.commit("Begin")

    def edit(self, path: Path, old: str, new: str) -> None:
        text, edits = re.subn(old, new, (self.folder / path).read_text(), count=1)
        assert edits == 1
        (self.folder / path).write_text(text)

    def git(self, *arguments: str) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        return self.run("git", *who, *arguments).stdout.strip()

    def commit(self, message: str) -> str:
        self.git("commit", "--all", "--allow-empty", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")

    def run(
        self, *line: str, code: int | None = 0, package: Path = ROOT
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "HOME": str(self.folder.parent),
            "PYTHONPATH": str(package),
            "ASV_PYTHONPATH": str(package),
        }
        done = subprocess.run(
            line,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
        )
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done

    def measure(self, commit: str, package: Path) -> None:
        """Run the benchmarks on an installed package, as the results of a commit."""
        asv = [self.python, "-m", "asv", "run", "--machine", "test", "--bench", BENCH]
        installed = ["--environment", "existing:same", "--set-commit-hash", commit]
        self.run(*asv, *installed, "--launch-method", "forkserver", package=package)
        assert self.git("status", "--porcelain") == ""

    def compare(self, base: str, head: str, *, code: int) -> str:
        line = [sys.executable, "-P", "-m", "allocbench", "asv-compare", base, head]
        return self.run(*line, "--results", ".asv/results", code=code).stdout


def present(folder: Path) -> Path:
    """The package that is tested, with its extension, in one place."""
    for name in COPIED:
        shutil.copytree(
            ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("results")
        )
    shutil.copy(str(allocators._core.__file__), folder / "allocators")
    return folder


def installed(repository: Repository, folder: Path) -> Path:
    """Build the repository's package and unpack it."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    plain = ["-Ccmake.build-type=None", "-Ccmake.define.CMAKE_CXX_FLAGS=-O0"]
    # Files compiled together read headers once. Names that clash make it fail: then each by itself.
    together = [f"-Ccmake.define.CMAKE_UNITY_BUILD{more}" for more in ("=ON", "_BATCH_SIZE=12")]
    if repository.run(*pip, *plain, *together, ".", code=None).returncode:
        repository.run(*pip, *plain, "-Ccmake.define.CMAKE_UNITY_BUILD=OFF", ".")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "package")
    return folder / "package"


def test_a_strategy_that_no_longer_coalesces_is_found(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert Path(allocators.__file__).is_relative_to(ROOT)
    repository = Repository(tmp_path / "project", clean_environment.python(tmp_path / "bare"))
    package = present(tmp_path / "present")
    asv = [sys.executable, "-m", "asv", "machine", "--machine", "test", "--yes"]
    repository.run(*asv)
    base = repository.git("rev-parse", "HEAD")
    repository.measure(base, package)
    same = repository.commit("Change nothing")
    repository.measure(same, package)

    repository.edit(HEADER, re.escape(GIVE), NEVER_COALESCE)
    planted = repository.commit("Faster frees in bfc")
    package = installed(repository, tmp_path_factory.mktemp("planted"))
    repository.measure(planted, package)

    assert "## Benchmarks: same" in repository.compare(base, same, code=0)
    summary = repository.compare(base, planted, code=1)
    rows = re.findall(r"^\| (\w+) \| (\w+) \| .*\*\*no\*\* \|$", summary, flags=re.MULTILINE)
    assert ("peak_reserved", "bfc") in rows, summary
    assert {allocator for _, allocator in rows} == {"bfc"}

    repository.git("commit", "--amend", "--quiet", "-m", "Faster frees\n\nMetric-change: * bfc")
    stated = repository.git("rev-parse", "HEAD")
    assert "## Benchmarks: nothing ran" in repository.compare(base, stated, code=3)
    repository.measure(stated, package)
    assert "changed as stated" in repository.compare(base, stated, code=0)
