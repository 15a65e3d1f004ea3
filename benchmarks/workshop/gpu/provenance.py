# SPDX-License-Identifier: Apache-2.0
"""Provenance of a measurement: GPU, driver, versions, commit, date."""

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from allocbench import __version__, allocators

ROOT = Path(__file__).parents[3]
NULL = "ALLOCBENCH_GPU_NULL"
"""The variable that tells a task on which null GPU it runs."""
_NULL_UUID = "GPU-616c6c6f-6362-656e-6368-"
"""The first bytes of the UUID of a null GPU, "allocbench"."""


def folder_name(null: str | None = None) -> str:
    """A name for the results of the first GPU, or of a null GPU: one folder for each GPU.

    Raises SpecError without a GPU, and DeviceError if its context cannot be created.
    """
    text = null or ""
    if null is None:
        gpu = allocators.CudaDevice()
        text = f"{gpu.name} {gpu.uuid.removeprefix('GPU-')[:8]}"
        gpu.close()
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def provenance(*, dry: bool) -> dict[str, Any]:
    """What identifies a measurement; `dry` and `null` mark runs that measured nothing."""
    gpu = allocators.CudaDevice()
    null = os.environ.get(NULL)
    if gpu.uuid.startswith(_NULL_UUID) and not dry:
        null = null or "the driver of the null GPU"
    record = {
        "gpu": f"{null} (a null GPU)" if null else gpu.name,
        "gpu_uuid": gpu.uuid,
        "gpu_bytes": gpu.capacity,
        "driver_cuda": f"{gpu.driver_version // 1000}.{gpu.driver_version % 1000 // 10}",
        "driver": _driver(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "allocbench": __version__,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "dry": dry,
        "null": null,
    }
    gpu.close()
    return record | _torch()


def _torch() -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        return {"torch": None, "cuda": None}
    return {"torch": str(torch.__version__), "cuda": torch.version.cuda}


def _driver() -> str | None:
    """The version of the kernel module, from /proc."""
    path = Path("/proc/driver/nvidia/version")
    return path.read_text(encoding="utf-8").splitlines()[0].strip() if path.exists() else None


def commit() -> str | None:
    """The commit of the checkout; None outside of one."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
