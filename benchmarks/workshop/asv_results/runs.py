# SPDX-License-Identifier: Apache-2.0
"""Runs of asv on two commits, and the metric changes that commit messages announce."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from allocbench.errors import UsageError
from allocbench.reports.rows.asv import AsvResult, cells
from benchmarks.workshop.asv_results.gate import Statement

TRAILER = "Metric-change"
CONFIG = "asv.conf.json"
_RESULTS = ".asv/gate"


def commit(name: str) -> str:
    """The full hash of a commit; raises UsageError if git does not know it."""
    return _git(
        "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", of=name
    )


def statements(base: str, head: str) -> list[Statement]:
    """Metric changes that the commits after `base`, up to `head`, announce in trailers.

    Raises UsageError for a trailer that is not one to three words long.
    """
    form = f"%(trailers:key={TRAILER},valueonly)"
    announced = []
    for line in _git("log", f"--format={form}", f"{base}..{head}", of=head).splitlines():
        words = line.split()
        if not words:
            continue
        if len(words) > 3:
            raise UsageError(f"{TRAILER}: {line}: expected METRIC [ALLOCATOR [WORKLOAD]]")
        announced.append(Statement(*words))
    return announced


def measure(commits: Sequence[str], bench: str) -> list[AsvResult]:
    """Run benchmarks on commits and return their results.

    The results are stored apart from the committed ones, and are not measured again. Raises
    UsageError if asv cannot start. If a benchmark failed, or none ran, the cells show it.
    """
    if importlib.util.find_spec("asv") is None:
        raise UsageError("asv is not installed: pip install asv")
    if not Path(CONFIG).is_file():
        raise UsageError(f"{CONFIG}: not found here; run this at the top of the repository")
    asv = [sys.executable, "-P", "-m", "asv"]
    # The fork server of asv passes PYTHONPATH on, which would import code of another commit.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*asv, "machine", "--yes"], check=False, stdout=sys.stderr)
    with _config() as config:
        for commit in commits:
            line = [*asv, "--config", config, "run", f"{commit}^!", "--bench", bench]
            line += ["--skip-existing-successful", "--launch-method", "forkserver", "--show-stderr"]
            code = subprocess.run(line, check=False, stdout=sys.stderr, env=clean).returncode
            if code not in (0, 1, 2):
                raise UsageError(f"{shlex.join(line)}: exit code {code}")
    return cells(_RESULTS) if Path(_RESULTS, "benchmarks.json").exists() else []


@contextmanager
def _config() -> Iterator[str]:
    """A temporary copy of the project's configuration with another results folder."""
    text = re.sub(r"^\s*//.*$", "", Path(CONFIG).read_text(encoding="utf-8"), flags=re.MULTILINE)
    try:
        settings = json.loads(text) | {"results_dir": _RESULTS}
    except ValueError as error:
        raise UsageError(f"{CONFIG}: not JSON: {error}") from error
    with NamedTemporaryFile("w", dir=".", prefix=".asv-", suffix=".json") as file:
        json.dump(settings, file)
        file.flush()
        yield file.name


def _git(*arguments: str, of: str) -> str:
    process = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    if process.returncode:
        why = process.stderr.strip().splitlines()
        raise UsageError(f"{of}: {why[-1] if why else 'no such commit'}")
    return process.stdout.strip()
