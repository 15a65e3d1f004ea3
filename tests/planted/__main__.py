# SPDX-License-Identifier: Apache-2.0
"""Plant each bug in a copy of the source, build it, and run the tests that must fail.

The copy is build/planted. The exit code is 1 if a bug is not found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests import clean_environment
from tests.planted.bugs import BUGS, Bug

ROOT = Path(__file__).parents[2]
_FOLDER = ROOT / "build/planted"


def main() -> int:
    source = _FOLDER / "source"
    _copy(source)
    if not (_FOLDER / "bin").exists():
        clean_environment.python(_FOLDER / "bin")
    python = str(_FOLDER / "bin/bin/python")
    _build(source)
    tests = sorted({test for bug in BUGS for test in bug.tests})
    before = _run(python, source, tests)
    if before.returncode:
        sys.exit(f"the tests fail without a planted bug:\n{before.stdout}")
    table = Table("planted bug", "file", "found by")
    missed = 0
    for bug in BUGS:
        test = _found_by(bug, python, source)
        missed += not test
        table.add_row(bug.name, bug.file, test or "NOTHING")
    _build(source)
    Console(width=160).print(table)
    return int(missed > 0)


def _copy(source: Path) -> None:
    """The files of the working tree that git knows; unchanged files keep their times."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    for name in filter(None, listed):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            if not target.is_symlink():
                target.symlink_to(os.readlink(ROOT / name))
        elif not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
            shutil.copy(ROOT / name, target)


def _build(source: Path) -> None:
    line = ["make", "in-place", f"PYTHON={sys.executable}"]
    done = subprocess.run(line, cwd=source, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])


def _found_by(bug: Bug, python: str, source: Path) -> str:
    """The first test that fails with the bug, or the signal that ended the tests."""
    file = source / bug.file
    text = file.read_text(encoding="utf-8")
    if text.count(bug.old) != 1:
        sys.exit(f"{bug.name}: its place in {bug.file} occurs {text.count(bug.old)} times")
    file.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
    try:
        if bug.is_native:
            _build(source)
        done = _run(python, source, bug.tests)
    finally:
        file.write_text(text, encoding="utf-8")
    if done.returncode < 0:
        return f"{bug.tests[0]}: signal {-done.returncode}"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else ""


def _run(
    python: str, source: Path, tests: list[str] | tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )


if __name__ == "__main__":
    sys.exit(main())
