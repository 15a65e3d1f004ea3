# SPDX-License-Identifier: Apache-2.0
"""Task: a training run of a published comparison, with events and the driver's bytes in use.

The program is that of `make truth`. NVML is asked each millisecond, as those who published the runs
did. ALLOCBENCH_XMEM_PYTHON names a Python with their version of PyTorch.
"""

import argparse
import ctypes
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from allocbench.workloads.recording import record
from benchmarks.workshop.gpu import task
from benchmarks.workshop.gpu.slim_snapshot import write_slim
from benchmarks.workshop.truth.predict import command, last_object
from benchmarks.workshop.truth.rows import Run

PYTHON = "ALLOCBENCH_XMEM_PYTHON"
_SWITCHING = ("MnasNet", "MobileNetV2")
"""Networks whose workspaces changed with the batch."""
_OTHERS = {
    "ConvNeXtTiny": 282,
    "MobileNetV3Large": 200,
    "MobileNetV3Small": 349,
    "RegNetX400MF": 265,
    "RegNetY400MF": 410,
    "ResNet101": 351,
    "VGG16": 480,
    "VGG19": 339,
}
"""The batches of published rows that did not fill their card."""
RUNS = {
    f"{model}-{batch}": Run("cnn", model, "Adam", batch, 0, "", 0, "")
    for model, batches in (
        *((name, range(240, 421, 20)) for name in _SWITCHING),
        *((name, (batch,)) for name, batch in _OTHERS.items()),
    )
    for batch in batches
}
"""Training runs by name: single precision, images of 86 x 86 pixels."""
_DRY_BATCH = 2


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (
        ("total", ctypes.c_uint64),
        ("free", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
    )


@contextmanager
def samples() -> Iterator[list[tuple[float, int]]]:
    """Seconds and bytes in use of the first GPU, where they changed; empty without NVML."""
    found: list[tuple[float, int]] = []
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        card = ctypes.c_void_p()
        failed = nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card))
    except OSError:
        failed = 1
    over, memory, begun = threading.Event(), _Memory(), time.monotonic()

    def poll() -> None:
        while not over.is_set():
            nvml.nvmlDeviceGetMemoryInfo(card, ctypes.byref(memory))
            if not found or found[-1][1] != memory.used:
                found.append((round(time.monotonic() - begun, 4), memory.used))
            time.sleep(0.001)

    thread = None if failed else threading.Thread(target=poll)
    if thread:
        thread.start()
    yield found
    over.set()
    if thread:
        thread.join()


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the program printed, the bytes in use over time, and the bytes of its snapshot."""
    run, output = RUNS[arguments.name], arguments.output
    line = command(run, Path(os.environ.get(PYTHON, sys.executable)))
    if arguments.dry:
        return {"command": line[1:]}
    with tempfile.TemporaryDirectory() as temporary:
        kept, out = Path(temporary) / "kept", Path(temporary) / "stdout"
        kept.mkdir()
        with out.open("w+b") as file, samples() as used:
            recorded = record(
                line, labels="operators", keep=kept, stdout=file.fileno(), stderr=None
            )
        sizes = {}
        for path in sorted(kept.glob("*.pickle")):
            name = f"{output.stem}.pickle.gz"
            sizes[name] = write_slim(path, output.with_name(name))
        printed = last_object(out.read_text(encoding="utf-8", errors="replace"))
    return {
        "code": recorded.code,
        "printed": printed,
        "first_sample": used[0][1] if used else None,
        "most": max((size for _, size in used), default=None),
        "used": used,
        "snapshots": sizes,
    }


def main() -> None:
    """The command line."""
    parser = task.new_parser(__doc__)
    parser.add_argument("--name", required=True, choices=RUNS)
    task.finish(parser.parse_args(), measure)


if __name__ == "__main__":
    main()
