# SPDX-License-Identifier: Apache-2.0
"""Runs a server on a null GPU until it is ready, and keeps what it printed."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread

from allocbench.base import children
from allocbench.base.text import command_text
from allocbench.errors import UsageError
from allocbench.interrupts import Terminated
from allocbench.null_gpu import launch
from allocbench.null_gpu.launch import Limits
from allocbench.workloads import recording
from allocbench.workloads.recording import PEAK_RESERVED, RecordError

_READY = "Application startup complete"  # printed by uvicorn, which vLLM and SGLang use
_INTERRUPTED = 130
_PATIENCE = 5.0  # seconds, for processes that keep the standard output open


@dataclass(frozen=True)
class ServerRun:
    """A start of a server: the lines that it printed, and real seconds until it was ready.

    reserved: the most bytes that PyTorch reserved on one GPU in one process.
    """

    lines: tuple[str, ...]
    seconds: float
    reserved: int


def run(command: Sequence[str], device: str, limit: float) -> ServerRun:
    """Start a server on a null GPU, end it when it is ready, and record it meanwhile.

    A program that ends by itself, as one that uses an engine offline, need not be ready. What it
    prints goes to standard error. limit: seconds.

    Raises UsageError if the command cannot be started, RecordError if it fails, is not ready in
    time or uses no GPU; KeyboardInterrupt; Terminated; SpecError; NullGpuError.
    """
    if why := children.refusal(command):
        raise UsageError(why)
    lines, ready = list[str](), list[float]()
    began = time.monotonic()
    with launch.session(device, Limits(seconds=limit)) as session:
        reading, writing = os.pipe()

        def watch() -> None:
            with open(reading, encoding="utf-8", errors="replace") as printed:
                for line in printed:
                    lines.append(line.rstrip("\n"))
                    if not ready:  # how it ends is not worth reading
                        sys.stderr.write(line)
                    if _READY in line and not ready:
                        ready.append(time.monotonic() - began)
                        session.stop()

        watching = Thread(target=watch, daemon=True)
        watching.start()
        try:
            recorded = recording.record(
                command, machine=session.machine, stdout=writing, stderr=writing
            )
        finally:
            os.close(writing)
            watching.join(_PATIENCE)
    seconds = time.monotonic() - began
    called = command_text(command)
    if recorded.signal is not None:
        raise Terminated(recorded.signal)
    if not ready and recorded.code == _INTERRUPTED:
        raise KeyboardInterrupt
    if not ready and recorded.code:
        raise RecordError(f"{called}: exit code {recorded.code}; what it printed is above")
    if not ready and seconds > limit:
        raise RecordError(f"{called}: not ready after {limit:g} s; --timeout sets the limit")
    if not recorded.traces:
        why = recorded.complaints[0] if recorded.complaints else "it used no GPU through PyTorch"
        raise RecordError(f"{called}: nothing was recorded: {why}")
    reserved = (trace.provenance.extra[PEAK_RESERVED] for trace in recorded.traces.values())
    return ServerRun(tuple(lines), ready[0] if ready else seconds, max(reserved))
