# SPDX-License-Identifier: Apache-2.0
"""A run of tests that leaves a process behind fails, and names the process."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LEAVES = """
import subprocess, sys
line = [sys.executable, "-c", "import time; time.sleep(600)", "left-behind"]

def test_leaves_a_process():
    {what}
"""
CHILD = "subprocess.Popen(line)"
ORPHAN = 'subprocess.run(["sh", "-c", \'"$@" &\', "sh", *line], start_new_session=True)'
NONE = "process = subprocess.Popen(line); process.kill(); process.wait()"


@pytest.mark.parametrize(
    ("what", "workers", "code"),
    [(NONE, "0", 0), (CHILD, "0", 1), (ORPHAN, "0", 1), (ORPHAN, "2", 1)],
    ids=["none", "child", "orphan", "orphan of a worker"],
)
def test_a_leftover_process_fails_the_run(
    what: str, workers: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("quick.py").write_text(
        "from tests.leftovers import *\nfrom tests import leftovers\n"
        "leftovers._SECONDS_TO_END = 2.0\n"
    )
    Path("test_it.py").write_text(LEAVES.format(what=what))
    Path("pytest.ini").write_text("[pytest]\n")
    line = [sys.executable, "-m", "pytest", "-p", "quick", "-n", workers, "test_it.py"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    found = [one for one in done.stderr.splitlines() if one.startswith("still running at the end")]
    assert len(found) == code
    assert all(one.endswith("left-behind") for one in found)
