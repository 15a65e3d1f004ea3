# SPDX-License-Identifier: Apache-2.0
"""Task: what the driver answers in every scenario, each in a process of its own."""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.workshop.gpu import task
from benchmarks.workshop.gpu.driver.scenarios import SCENARIOS, TOGETHER

_SECONDS = 25
"""The time limit of a scenario."""


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """For each scenario: the exit code, the seconds, the lines, and what it wrote as an error."""
    chosen = [name for name in SCENARIOS if arguments.match in name]
    with ThreadPoolExecutor(8) as pool:
        together = {name: pool.submit(_run, name) for name in chosen if name in TOGETHER}
        results = {name: future.result() for name, future in together.items()}
    results |= {name: _run(name) for name in chosen if name not in TOGETHER}
    return {"scenarios": {name: results[name] for name in chosen}}


def _run(name: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.workshop.gpu.driver.scenarios", name]
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, errors = process.communicate(timeout=_SECONDS)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        code = None
    complete = [line for line in out.splitlines() if line.startswith("{") and line.endswith("}")]
    seconds = time.monotonic() - begun
    print(f"{name}: {seconds:.1f} s, exit code {code}, {len(complete)} lines", flush=True)
    return {
        "exit_code": code,
        "seconds": round(seconds, 2),
        "lines": [json.loads(line) for line in complete],
        "errors": errors[-2000:],
    }


if __name__ == "__main__":
    parser = task.new_parser(__doc__)
    parser.add_argument("--match", default="", help="only scenarios whose names contain this")
    task.finish(parser.parse_args(), measure)
