# SPDX-License-Identifier: Apache-2.0
"""A regression planted in the source, measured by asv and found by the gate.

It is planted in Python, so that all commits share one build of the native core.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from allocbench import allocators
from allocbench.workloads import _native
from tests import clean_environment

ROOT = Path(__file__).parents[2]
COPIED = ("allocators", "allocbench", "benchmarks", "null_gpu", "reports", "workloads")
FILES = (".gitignore", "asv.conf.json", "pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE")
SPECS = Path("allocators/spec.py")
PARSED = "parsed = parse(text)"
TAKES_ALL = PARSED.replace("text", "'bfc:allow_growth=false' if text == 'bfc' else text")
TOOL = "benchmarks.workshop.asv_results"
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
        self, *line: str, code: int = 0, package: Path = ROOT
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
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def measure(self, commit: str, package: Path) -> None:
        """Run the benchmarks on an installed package, as the results of a commit."""
        asv = [self.python, "-m", "asv", "run", "--machine", "test", "--bench", BENCH]
        installed = ["--environment", "existing:same", "--set-commit-hash", commit]
        self.run(*asv, *installed, "--launch-method", "forkserver", package=package)
        assert self.git("status", "--porcelain") == ""

    def compare(self, base: str, head: str, *, code: int) -> str:
        line = [sys.executable, "-P", "-m", TOOL, "compare", base, head]
        return self.run(*line, "--results", ".asv/results", code=code).stdout

    def copy_results(self, base: str, other: str) -> None:
        """Store the results of a commit as those of another commit with the same code."""
        for path in (self.folder / ".asv" / "results").rglob(f"{base[:8]}*.json"):
            copy = path.with_name(path.name.replace(base[:8], other[:8]))
            copy.write_text(path.read_text().replace(base, other))


def package_of(source: Path, folder: Path) -> Path:
    """The package of a source tree, with the native modules of the one that is tested."""
    for name in COPIED:
        shutil.copytree(
            source / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("results")
        )
    shutil.copy(str(allocators._core.__file__), folder / "allocators")
    shutil.copy(str(_native.__file__), folder / "workloads")
    return folder


def test_an_allocator_that_takes_the_whole_device_is_found(tmp_path: Path) -> None:
    assert Path(allocators.__file__).is_relative_to(ROOT)
    repository = Repository(tmp_path / "project", clean_environment.python(tmp_path / "bare"))
    package = package_of(ROOT, tmp_path / "present")
    asv = [sys.executable, "-m", "asv", "machine", "--machine", "test", "--yes"]
    repository.run(*asv)
    base = repository.git("rev-parse", "HEAD")
    repository.measure(base, package)
    same = repository.commit("Change nothing")
    repository.measure(same, package)

    repository.edit(SPECS, re.escape(PARSED), TAKES_ALL)
    planted = repository.commit("Fewer device calls in bfc")
    repository.measure(planted, package_of(repository.folder, tmp_path / "planted"))

    assert "## Benchmarks: same" in repository.compare(base, same, code=0)
    summary = repository.compare(base, planted, code=1)
    rows = re.findall(r"^\| (\w+) \| (\w+) \| .*\*\*no\*\* \|$", summary, flags=re.MULTILINE)
    assert ("peak_reserved", "bfc") in rows, summary
    assert {allocator for _, allocator in rows} == {"bfc"}

    repository.git("commit", "--amend", "--quiet", "-m", "Fewer calls\n\nMetric-change: * bfc")
    stated = repository.git("rev-parse", "HEAD")
    assert "## Benchmarks: nothing ran" in repository.compare(base, stated, code=3)
    repository.copy_results(planted, stated)
    assert "changed as stated" in repository.compare(base, stated, code=0)
