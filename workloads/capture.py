# SPDX-License-Identifier: Apache-2.0
"""Capture the GPU allocations of a PyTorch program under fake tensors, with any CPU build.

Fake tensors have shapes, types and lifetimes but no data; the "cuda" device that they are on
computes nothing (fake_cuda.cpp). The trace contains the storages that operators return, with their
exact sizes and lifetimes, but not the temporary memory (workspaces) that a CUDA kernel would
allocate. `workloads.gpu_capture` captures this memory too, with a CUDA build of PyTorch on a GPU or
a null GPU; `workloads.alignment` measures how well two captures agree.

    python -m allocbench.workloads.capture allocbench.workloads.models.gpt2 -o gpt2.parquet
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from allocbench.workloads import fake_cuda
from allocbench.workloads.fake_cuda import CaptureError
from allocbench.workloads.files import read, write
from allocbench.workloads.program import Program
from allocbench.workloads.trace import Provenance, Trace, TraceError

__all__ = ["CaptureError", "capture", "capture_here"]


def capture(module: str, name: str = "", date: str = "") -> Trace:
    """Capture the full configuration of a module's `PROGRAM` in a fresh Python process.

    module: dotted name of a module with a `PROGRAM` (see allocbench.workloads.program).
    name, date: for the provenance; default: the module's own name, and today.

    Raises CaptureError if torch or a compiler is missing, if torch is built for CUDA, if the
    program fails, or if it did not run the operators that it expects.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.parquet"
        command = [sys.executable, "-m", "allocbench.workloads.capture", module, "-o", str(path)]
        command += ["--name", name, "--date", date]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
        if process.returncode:
            complaint = (process.stderr.strip() or f"exit code {process.returncode}").splitlines()[
                -1
            ]
            raise CaptureError(complaint.removeprefix("error: "))
        return read(path)


def capture_here(module: str, name: str = "", date: str = "") -> Trace:
    """Like `capture`, but in this process, into which torch must not have been imported yet."""
    fake_cuda.load()
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from allocbench.workloads import recorder as hooks

    program = _program(module)
    with FakeTensorMode():
        recorder = hooks.record(lambda mark: program.run(program.full, "cuda", mark), "cuda")
    missing, unwanted = program.expects - recorder.seen, program.forbids & recorder.seen
    if missing or unwanted:
        faults = [f"{operator} did not run" for operator in sorted(missing)]
        faults += [f"{operator} ran" for operator in sorted(unwanted)]
        raise CaptureError(f"{module} took an unexpected path: {', '.join(faults)}")
    return recorder.trace(
        Provenance(
            name=name or module.rpartition(".")[2],
            kind="captured",
            source=module,
            model=program.model,
            torch=torch.__version__.partition("+")[0],
            device="cuda (fake tensors)",
            date=date or datetime.date.today().isoformat(),
            seed=program.seed,
            extra={"config": asdict(program.full)},
        )
    )


def _program(module: str) -> Program[Any]:
    try:
        program = importlib.import_module(module).PROGRAM
    except (ImportError, AttributeError) as error:
        raise CaptureError(f"{module} is not a module with a PROGRAM: {error}") from error
    if not isinstance(program, Program):
        raise CaptureError(f"{module}.PROGRAM is not an allocbench.workloads.program.Program")
    return program


def main() -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m allocbench.workloads.capture", description=__doc__
    )
    parser.add_argument("module", help="dotted name of a module with a PROGRAM")
    parser.add_argument("-o", "--output", required=True, help="output file, .parquet or .csv")
    parser.add_argument("--name", default="", help="name of the trace; default: the module's name")
    parser.add_argument("--date", default="", help="date of the capture; default: today")
    arguments = parser.parse_args()
    try:
        trace = capture_here(arguments.module, arguments.name, arguments.date)
        write(trace, arguments.output)
    except (CaptureError, TraceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
