# SPDX-License-Identifier: Apache-2.0
"""Task: what the checks of tests/null_gpu/programs/limited_checks.py return with one allocator.

Their memory is limited as on a small card, so that they run out of it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from allocbench import allocators
from benchmarks.workshop.gpu import task
from benchmarks.workshop.gpu.provenance import NULL, ROOT

_CHECKS = ROOT / "tests" / "null_gpu" / "programs" / "limited_checks.py"
_LIMIT = 1496  # MiB, those of a card of 2 GiB without a context of 552 MiB
_SMALL = {
    "buddy": "buddy:region=64MiB",
    "free_lists": "free_lists:buffer=64MiB",
    "rmm_pool": "rmm_pool:initial_pool_size=64MiB",
}
"""What they take by default for each stream and graph leaves no room below the limit."""
_NEVER_GROWS = "rmm_arena"
"""A program that needs more memory later fails with it."""
NATIVE = "native"
EVERY = (
    NATIVE,
    *(
        _SMALL.get(info.name, info.name)
        for info in allocators.strategies()
        if info.candidate and info.name != _NEVER_GROWS
    ),
    "caching:expandable_segments=true",
)
"""PyTorch's own allocator, and the strategies that can be recommended."""


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """The exit code, what each check returned, and the result rows of the processes."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "allocbench", "run", "--allocator", arguments.allocator]
        if null := os.environ.get(NULL):
            command += ["--device", null]
        done = subprocess.run(
            [*command, "--json", str(rows), "--", sys.executable, str(_CHECKS), str(_LIMIT)],
            capture_output=True,
            text=True,
        )
        lines = done.stdout.strip().splitlines()
        return {
            "code": done.returncode,
            "returned": json.loads(lines[-1]) if done.returncode == 0 and lines else None,
            "stdout": done.stdout[-2000:],
            "stderr": done.stderr[-6000:],
            "rows": json.loads(rows.read_text()) if rows.exists() else None,
        }


def main() -> None:
    """The command line."""
    parser = task.new_parser(__doc__)
    parser.add_argument("--allocator", required=True)
    task.finish(parser.parse_args(), measure)


if __name__ == "__main__":
    main()
