# SPDX-License-Identifier: Apache-2.0
"""Real programs on every allocator, on a GPU or on a null GPU: host latency, peaks, fragmentation.

`device` is a parameter, so the two never share a series. Device calls take no time on a null GPU,
so their cost is not tracked here. The Python that runs allocbench needs a CUDA build of PyTorch, or
CUDA_PYTHON names another one that has it; otherwise everything is n/a.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import common, gpu
from benchmarks.packages import catalog

COLUMNS = {
    "alloc_p50_seconds": "seconds",
    "alloc_p99_seconds": "seconds",
    "free_p50_seconds": "seconds",
    "peak_reserved": "bytes",
    "fragmentation_ratio": "ratio",
    "device_calls": "count",
}
_ERROR = re.compile(r"[\w.]*(?:Error|Exception): ")
DEVICES = {"cuda": (), "null": ("--device", "null:h100")}
_HAS_CUDA = "import importlib.util as u; print((u.find_spec('torch') or exit()).origin)"


def python() -> str | None:
    """A Python with a CUDA build of PyTorch, or None."""
    path = os.environ.get("CUDA_PYTHON", sys.executable)
    try:
        origin = subprocess.run([path, "-c", _HAS_CUDA], capture_output=True, text=True).stdout
    except OSError:
        return None
    library = Path(origin.strip()).parent / "lib" / "libtorch_cuda.so"
    return path if origin.strip() and library.exists() else None


def run(device: str, allocator: str, workload: str) -> common.Cell:
    """The result row of a bundled program that runs on an allocator; the reason if it cannot."""
    interpreter = python()
    if interpreter is None:
        return "no CUDA build of PyTorch: set CUDA_PYTHON to a Python that has one"
    module = catalog.info(workload).module  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as folder:
        package = Path(str(sys.modules["allocbench"].__file__)).parent
        (Path(folder) / "allocbench").symlink_to(package)
        (Path(folder) / "benchmarks").symlink_to(Path(__file__).parent)
        rows = Path(folder) / "rows.json"
        line = [sys.executable, "-P", "-m", "allocbench", "run", *DEVICES[device]]
        line += ["--allocator", allocator, "--json", str(rows), "--"]
        line += [interpreter, "-m", module, "--device", "cuda"]
        environment = os.environ | {"PYTHONPATH": folder}
        done = subprocess.run(line, env=environment, capture_output=True, text=True)
        row = json.loads(rows.read_text())[0] if rows.exists() else None
    return cell_of(done.returncode, row, done.stderr)


def cell_of(code: int, row: dict[str, Any] | None, errors: str) -> common.Cell:
    """What the end of `allocbench run` means; row: its result row, if it has written one."""
    if code == 0 and row is not None:
        return row
    if row is not None and row["failures"]:
        return f"out of memory: requests that failed: {row['failures']:,}"
    lines = errors.strip().splitlines()
    refused = [line for line in lines if line.startswith("error: ")]
    if code == 2 and refused and "Traceback" not in errors:
        return refused[-1].removeprefix("error: ")
    raised = [line for line in lines if _ERROR.match(line)]
    return common.Failed(f"exit code {code}: {(raised or lines or ['no message'])[-1]}")


@common.tracks(**COLUMNS)
class Programs(common.Suite):
    """Runs each program on each allocator in a process of its own."""

    params: common.Params = (tuple(DEVICES), gpu.ALLOCATORS, ("gpt2-train", "llm-decode"))
    param_names = ("device", "allocator", "workload")

    def cell(self, device: str, allocator: str, workload: str) -> common.Cell:
        return run(device, allocator, workload)

    def setup_cache(self) -> object:
        return self.cells()

    setup_cache.timeout = 7200  # type: ignore[attr-defined]
