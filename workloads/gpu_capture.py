# SPDX-License-Identifier: Apache-2.0
"""Capture a module's `PROGRAM` on a GPU, real or null: the requests to PyTorch's own allocator.

The trace holds what CUDA kernels and libraries allocate for themselves too, which a capture under
fake tensors does not see.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from allocbench.workloads.fake_cuda import CaptureError
from allocbench.workloads.ordering import ordered
from allocbench.workloads.recording import Machine, Recorded, record
from allocbench.workloads.relabeling import relabeled
from allocbench.workloads.trace import MARK, Trace

_PACKAGE = Path(str(sys.modules["allocbench"].__file__)).parent
_OF_PYTORCH = (
    "Optimizer.step#",
    "Optimizer.zero_grad#",
)  # annotations of PyTorch, not of the program
_FIND = """
import importlib.util as util
from pathlib import Path
spec = util.find_spec("torch")
print(Path(spec.origin).parent if spec and spec.origin else "")
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that can run programs. torch: the folder of its PyTorch, or None."""

    path: str
    torch: Path | None

    @property
    def is_built_for_cuda(self) -> bool:
        """Whether its PyTorch is."""
        return self.torch is not None and (self.torch / "lib" / "libtorch_cuda.so").exists()


def interpreter(path: str = sys.executable) -> Interpreter:
    """The properties of a Python; raises CaptureError if it is not a Python."""
    try:
        process = subprocess.run([path, "-c", _FIND], capture_output=True, text=True)
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror}") from error
    if process.returncode:
        raise CaptureError(f"{path}: is not a Python interpreter: exit code {process.returncode}")
    folder = process.stdout.strip()
    return Interpreter(path, Path(folder) if folder else None)


def capture_on_gpu(
    module: str,
    name: str = "",
    date: str = "",
    machine: Machine | None = None,
    python: str = sys.executable,
    keep: Path | None = None,
) -> Trace:
    """The trace of the full configuration of a module's `PROGRAM`, labeled with operators.

    module: dotted name of a module with a `PROGRAM` (see allocbench.workloads.program).
    name, date: for the provenance; default: the module's own name, and today.
    machine: the null GPU that runs it; None: this machine's GPU.
    python: the interpreter with the PyTorch to use. It needs nothing else.
    keep: a folder for PyTorch's own memory snapshot.

    Times are left out. Raises CaptureError if the program fails, and RecordError as `record` does.
    """
    with tempfile.TemporaryDirectory() as folder:
        # A program's Python finds allocbench here, and nothing else of this environment.
        (Path(folder) / "allocbench").symlink_to(_PACKAGE)
        about = Path(folder) / "about.json"
        command = [python, "-m", "allocbench.workloads.gpu_program", module, str(about)]
        path = [folder, *(sys.path if python == sys.executable else ())]
        with tempfile.TemporaryFile() as errors:
            recorded = record(
                command,
                labels="operators",
                path=path,
                machine=machine,
                keep=keep,
                stdout=subprocess.DEVNULL,
                stderr=errors.fileno(),
            )
            errors.seek(0)
            complaints = errors.read().decode(errors="replace").splitlines()
        trace = _only_trace(module, recorded, complaints)
        about_program = json.loads(about.read_text(encoding="utf-8"))
    return _captured(ordered(_own_marks(trace)), module, name, date, about_program)


def _only_trace(module: str, recorded: Recorded, stderr: Sequence[str]) -> Trace:
    if recorded.code or len(recorded.traces) != 1:
        errors = [line for line in stderr if line.startswith("error: ")]
        reasons = [*errors, *recorded.complaints, f"exit code {recorded.code}"]
        raise CaptureError(f"{module} left no recording: {reasons[0].removeprefix('error: ')}")
    return recorded.traces[""]


def _own_marks(trace: Trace) -> Trace:
    """The trace without the marks that PyTorch adds, and without times."""
    foreign = [place for place, label in enumerate(trace.labels) if label.startswith(_OF_PYTORCH)]
    kept = (trace.op != MARK) | ~np.isin(trace.block, foreign)
    columns = {name: column[kept] for name, column in trace.columns().items()}
    return relabeled(replace(trace, **columns | {"time_ns": None}), {})


def _captured(
    trace: Trace, module: str, name: str, date: str, about_program: Mapping[str, Any]
) -> Trace:
    kept = trace.provenance
    provenance = replace(
        kept,
        name=name or module.rpartition(".")[2],
        kind="captured",
        source=module,
        model=about_program["model"],
        date=date or kept.date,
        torch=kept.torch.partition("+")[0],
        seed=about_program["seed"],
        extra={"config": about_program["config"], "features": kept.extra["features"]},
    )
    return replace(trace, provenance=provenance)
