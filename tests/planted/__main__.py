# SPDX-License-Identifier: Apache-2.0
"""Plant each bug in a copy of the sources, build the copy, and run the tests that must fail.

The copy is in build/planted. The exit code is 1 if a bug was not found, or was found for another
reason than the expected one. `--only WORDS` plants the bugs whose names contain the words.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import clean_environment, source_copy
from tests.planted.bugs import BUGS, DRAWN, Bug

FOLDER = source_copy.ROOT / "build/planted"
MODULES = {"_core": "allocators", "_native": "workloads"}
"""Native modules and the packages that they belong to."""
NULL_GPU = "null_gpu", "liballocbench_null.so"
"""The target of the null GPU's library and its file, which is used from beside `_core`."""
_EXTENSION = sysconfig.get_config_var("EXT_SUFFIX")
_RUNTIMES = {"thread": "libtsan.so", "address,undefined": "libasan.so"}
_MOST_SECONDS = 1200  # of one test run


@dataclass(frozen=True)
class Found:
    """The test that failed and what it said; empty texts if none did."""

    test: str
    said: str


@dataclass(frozen=True)
class Copy:
    """The copy of the sources, and an interpreter that imports it."""

    source: Path
    python: str

    def build(self, sanitize: str) -> None:
        """Compile the native modules with `-fsanitize=sanitize`, or without if it is empty."""
        folder = FOLDER / "native" / (sanitize or "plain")
        native = self._command("nanobind", "--cmake_dir")
        _must_run(
            *("cmake", "-S", str(self.source), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release"),
            *(f"-DPython_EXECUTABLE={self.python}", f"-Dnanobind_DIR={native}"),
            f"-DSANITIZE={sanitize}",
        )
        targets = ("--target", *MODULES, NULL_GPU[0])
        targets += ("--parallel", str(len(os.sched_getaffinity(0))))
        _must_run("cmake", "--build", str(folder), *targets)
        for module, package in MODULES.items():
            built = next(file for file in folder.glob(f"{module}*.so") if file.is_file())
            _replace(built, f"{self.source}/{package}/{module}{_EXTENSION}")
        _replace(folder / NULL_GPU[1], f"{self.source}/allocators/{NULL_GPU[1]}")

    def test(self, tests: tuple[str, ...], sanitize: str) -> subprocess.CompletedProcess[str]:
        """Run tests on the copy until one fails."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.source),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
        }
        line = [self.python, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests]
        if sanitize:
            environment |= {
                "LD_PRELOAD": f"{_runtime(_RUNTIMES[sanitize])} {_runtime('libstdc++.so')}",
                "ASAN_OPTIONS": "detect_leaks=0",
                "TSAN_OPTIONS": "halt_on_error=1",
            }
            # A sanitizer ends the process; what it says must not be in the memory of pytest.
            line = ["setarch", platform.machine(), "-R", *line, "--capture=no"]
        return subprocess.run(
            line,
            cwd=self.source,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_MOST_SECONDS,
        )

    @contextmanager
    def planted(self, bug: Bug) -> Iterator[None]:
        """The bug is in the copy within the block."""
        file = self.source / bug.file
        text = file.read_text(encoding="utf-8")
        if text.count(bug.old) != 1:
            sys.exit(f"{bug.name}: its place in {bug.file} occurs {text.count(bug.old)} times")
        file.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(text, encoding="utf-8")

    def _command(self, module: str, *arguments: str) -> str:
        return subprocess.check_output([self.python, "-m", module, *arguments], text=True).strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--only", action="append", metavar="WORDS", help="bugs of such names")
    only = parser.parse_args().only or [""]
    bugs = [bug for bug in (*BUGS, *DRAWN) if any(words in bug.name for words in only)]
    if not bugs:
        parser.error(f"no bug has {only} in its name")
    copy = _copied()
    missed = 0
    for sanitize in sorted({bug.sanitize for bug in bugs}):
        group = [bug for bug in bugs if bug.sanitize == sanitize]
        copy.build(sanitize)
        print(f"built with {sanitize or 'no'} sanitizer; testing without a bug", flush=True)
        _expect_success(copy, group, sanitize)
        for bug in group:
            found = _plant(copy, bug)
            missed += not found.test
            told = f"found by {found.test}" if found.test else "NOT FOUND"
            print(f"{bug.name}: {told}: {found.said}", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} planted bugs were found")
    return int(missed > 0)


def _copied() -> Copy:
    source = FOLDER / "source"
    source_copy.update(source)
    if not (FOLDER / "bin").exists():
        clean_environment.python(FOLDER / "bin")
    return Copy(source, str(FOLDER / "bin/bin/python"))


def _expect_success(copy: Copy, bugs: list[Bug], sanitize: str) -> None:
    tests = tuple(sorted({test for bug in bugs for test in bug.tests}))
    done = copy.test(tests, sanitize)
    if done.returncode:
        sys.exit(f"the tests fail without a planted bug:\n{done.stdout}{done.stderr}")


def _plant(copy: Copy, bug: Bug) -> Found:
    with copy.planted(bug):
        copy.build(bug.sanitize)  # compiles what this bug and the one before it changed
        done = copy.test(bug.tests, bug.sanitize)
    output = done.stdout + done.stderr
    reason = re.search(bug.reason, output, re.MULTILINE)
    if done.returncode == 0 or reason is None:
        return Found("", f"exit code {done.returncode}\n{output[-3000:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return Found(failed[1] if failed else bug.tests[0], reason[0])


def _replace(built: Path, target: str) -> None:
    """A process may still map the old file."""
    Path(target).unlink(missing_ok=True)
    shutil.copy(built, target)


def _runtime(library: str) -> str:
    return subprocess.check_output(["g++", f"-print-file-name={library}"], text=True).strip()


def _must_run(*line: str) -> None:
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(line)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


if __name__ == "__main__":
    sys.exit(main())
