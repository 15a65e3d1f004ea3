# SPDX-License-Identifier: Apache-2.0
"""Where a program is captured: on this machine's GPU, on a null GPU, or under fake tensors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from allocbench.errors import UsageError
from allocbench.null_gpu import launch
from allocbench.null_gpu.device import is_null
from allocbench.workloads import Trace, capture, modelled
from allocbench.workloads.gpu_capture import Interpreter, capture_on_gpu, interpreter
from allocbench.workloads.recording import has_cuda

NULL, CUDA, FAKE = "null:h100", "cuda", "fake"


@dataclass(frozen=True)
class Where:
    """What runs a program. device: "cuda", "fake" or a null GPU. python: an interpreter.

    because: why it was chosen, if no device was named.
    """

    device: str
    python: str = sys.executable
    because: str = ""

    def capture(
        self, module: str, name: str = "", date: str = "", keep: Path | None = None
    ) -> tuple[Trace, Sequence[str]]:
        """The trace of a module's `PROGRAM`, and notes for the user.

        keep: a folder for PyTorch's own memory snapshot of a GPU. Raises CaptureError, RecordError,
        NullGpuError and SpecError.
        """
        if self.device == FAKE:
            return capture.capture(module, name, date), []
        device = None if self.device == CUDA else self.device
        with launch.session(device, launch.Limits()) as session:
            trace = capture_on_gpu(module, name, date, session.machine, self.python, keep)
        marked = modelled.sentence(modelled.modelled(trace))
        return trace, [*filter(None, [marked]), *session.notes]


def where(device: str | None = None, python: str | None = None) -> Where:
    """What to run a program on, given what the user asked for.

    Without a device: this machine's GPU or else a null H100, if PyTorch is built for CUDA; fake
    tensors if it is not. Raises UsageError if the options contradict each other, and CaptureError
    if `python` is not a Python interpreter.
    """
    if device == FAKE and python is not None:
        raise UsageError("--python: fake tensors need the PyTorch of allocbench's own Python")
    if device is not None and device not in (CUDA, FAKE) and not is_null(device):
        raise UsageError(f"--device {device}: write null:CARD, cuda or fake")
    if device == FAKE:
        return Where(FAKE)
    python_found = interpreter(python or sys.executable)
    if python_found.is_built_for_cuda:
        if device is None:
            device = CUDA if has_cuda() else NULL
        return Where(device, python_found.path)
    if device is None and python is None:
        return Where(FAKE, because=_lacking(python_found))
    raise UsageError(
        f"--{'python' if python else 'device'} {python or device}: {_lacking(python_found)}; "
        "pip install --no-deps torch from PyPI, and name that Python with --python"
    )


def _lacking(interpreter: Interpreter) -> str:
    if interpreter.torch is None:
        return f"{interpreter.path} has no PyTorch"
    return f"the PyTorch in {interpreter.torch.parent} is not built for CUDA"
