# SPDX-License-Identifier: Apache-2.0
"""What the programs share: options, the stages of a run, and the line of JSON that they print.

These files run in an environment of their own, without allocbench.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2] / "truth" / "programs"))

MARK = "measured: "
"""What the line with the result begins with."""
EVENTS = "MEASURED_EVENTS"
"""The variable that names a file for events of PyTorch's allocator; if unset, none is written."""
_MOST_EVENTS = 1_000_000


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options of all programs."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--steps", type=int, default=4)
    made.add_argument("--batch", type=int, required=True)
    made.add_argument("--optimizer", default="AdamW", help="of torch.optim, or Adafactor")
    made.add_argument("--amp", choices=("no", "bfloat16", "float16"), default="no")
    made.add_argument("--accumulate", type=int, default=1, help="backward passes per step")
    made.add_argument("--clip", action="store_true", help="clip the norm of the gradients")
    made.add_argument("--compile", action="store_true")
    made.add_argument("--limit", type=int, help="bytes that PyTorch may reserve")
    return made


class Stages:
    """What PyTorch and the driver report at each stage of a run."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self._begun = time.time()

    def reach(self, name: str, *, context: bool = True) -> None:
        """Record a stage; `context`: a CUDA context exists, or may be created."""
        row: dict[str, Any] = {"stage": name, "time": time.time(), **_nvml()}
        row["seconds"] = row["time"] - self._begun
        if context:
            torch.cuda.synchronize()
            row["free"], row["total"] = torch.cuda.mem_get_info()
            stats = torch.cuda.memory_stats()
            for short, long in (
                ("requested", "requested_bytes.all"),
                ("allocated", "allocated_bytes.all"),
                ("reserved", "reserved_bytes.all"),
                ("segments", "segment.all"),
            ):
                row[short] = stats.get(f"{long}.current", 0)
                row[f"peak_{short}"] = stats.get(f"{long}.peak", 0)
            row["retries"] = stats.get("num_alloc_retries", 0)
            row["ooms"] = stats.get("num_ooms", 0)
        self.found.append(row)


def _nvml() -> dict[str, int | None]:
    """Bytes of the card in use, and those of this process, by NVML; None where it does not say."""
    used = own = None
    with contextlib.suppress(Exception):  # NVML may be missing, or refuse in a virtual machine
        import pynvml

        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        used = int(pynvml.nvmlDeviceGetMemoryInfo(card).used)
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(card):
            if process.pid == os.getpid() and process.usedGpuMemory:
                own = int(process.usedGpuMemory)
    return {"nvml_used": used, "nvml_process": own}


def measure(told: argparse.Namespace, body: Callable[[argparse.Namespace, Stages], None]) -> None:
    """Run the body of a program, and print what was measured, also when memory ran out."""
    stages = Stages()
    stages.reach("start", context=False)
    torch.cuda.init()
    stages.reach("context")
    if os.environ.get(EVENTS):
        torch.cuda.memory._record_memory_history(  # type: ignore[no-untyped-call]
            context=None, max_entries=_MOST_EVENTS
        )
    if told.limit:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(told.limit / total)
    ran_out = ""
    try:
        body(told, stages)
    except torch.OutOfMemoryError as error:
        ran_out = str(error).splitlines()[0]
    stages.reach("end")
    if path := os.environ.get(EVENTS):
        _write_events(Path(path), stages)
    result = {
        "oom": bool(ran_out),
        "message": ran_out,
        "stages": stages.found,
        "gpu": torch.cuda.get_device_name(),
        "versions": _versions(),
        "workspace_config": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
    }
    print(MARK + json.dumps(result), flush=True)
    if ran_out:
        sys.exit(ran_out)  # as a program that does not catch the error


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0], "cuda": str(torch.version.cuda)}
    for name in ("torch", "torchvision", "transformers", "peft", "timm", "triton"):
        if name in sys.modules:
            found[name] = str(getattr(sys.modules[name], "__version__", "?"))
    with contextlib.suppress(Exception):  # the null GPU has no cuDNN
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def _write_events(path: Path, stages: Stages) -> None:
    """Write the columns of the allocator's events, and at which of them each stage was reached."""
    snapshot = torch.cuda.memory._snapshot()  # type: ignore[no-untyped-call]
    events = snapshot["device_traces"][0]
    times = [event.get("time_us", 0) for event in events]
    for row in stages.found:
        row["events"] = bisect.bisect(times, row["time"] * 1e6)
    columns = {
        "action": [event["action"] for event in events],
        "size": [event["size"] for event in events],
        "address": [event.get("addr", event.get("device_free", 0)) for event in events],
        "stream": [event.get("stream", 0) for event in events],
    }
    path.write_text(json.dumps(columns, separators=(",", ":")), encoding="utf-8")


def train(
    told: argparse.Namespace,
    stages: Stages,
    model: torch.nn.Module,
    batches: Iterator[dict[str, torch.Tensor]],
    loss: Callable[[Any, dict[str, torch.Tensor]], torch.Tensor],
) -> None:
    """Train for `--steps` steps, with batches that are on the GPU."""
    from training import make_optimizer

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = make_optimizer(told.optimizer, model)
    scaler = torch.amp.GradScaler("cuda", enabled=told.amp == "float16")
    called = torch.compile(model) if told.compile else model
    for step in range(told.steps):
        for _ in range(told.accumulate):
            batch = next(batches)
            with autocast(told):
                value = loss(called, batch)
            scaler.scale(value / told.accumulate).backward()  # type: ignore[no-untyped-call]
        if told.clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        stages.reach(f"step {step + 1}")


def autocast(told: argparse.Namespace) -> torch.autocast:
    """The autocast of `--amp`."""
    dtype = torch.float16 if told.amp == "float16" else torch.bfloat16
    return torch.autocast("cuda", dtype=dtype, enabled=told.amp != "no")
