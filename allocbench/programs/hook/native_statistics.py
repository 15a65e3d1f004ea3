# SPDX-License-Identifier: Apache-2.0
"""The hook of `allocbench run --allocator native`: reports what PyTorch's own allocator counted.

Each process writes a report for each GPU that it used to the folder in ALLOCBENCH_NATIVE, in the
form that `allocbench.programs.with_allocator.reports` reads. The peaks and counts are those of the
whole process, even if the program resets PyTorch's. Errors are written to a file and never reach
the program. Only the standard library may be used here.
"""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

_PEAKS = ("requested_bytes.all.peak", "active_bytes.all.peak", "reserved_bytes.all.peak")
_COUNTS = (
    *("allocation.all.allocated", "allocation.all.freed", "num_device_alloc", "num_device_free"),
    *("num_ooms", "num_alloc_retries"),
)


class Statistics:
    """The statistics of one process, by GPU. They outlast the resets of the program."""

    def __init__(self, torch: Any, folder: Path) -> None:
        self._torch, self._folder = torch, folder
        self._peaks: dict[int, Counter[str]] = defaultdict(Counter)
        self._counts: dict[int, Counter[str]] = defaultdict(Counter)
        self._process, self._written = 0, False
        for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
            self._before(name, self._keep_peaks)
        for name in ("_cuda_resetAccumulatedMemoryStats", "_accelerator_resetAccumulatedStats"):
            self._before(name, self._keep_counts)

    def start(self) -> None:
        """Write a report when this process ends; called when CUDA has been initialized."""
        from multiprocessing import util  # only now: most processes do not need it

        self._process = os.getpid()
        atexit.register(self.write)
        util.Finalize(self, self.write, exitpriority=0)  # forked workers end without atexit

    def write(self) -> None:
        """Write the reports of this process, once."""
        if self._written or os.getpid() != self._process:
            return
        self._written = True
        try:
            for ordinal in range(self._torch.cuda.device_count()):
                self._write(ordinal)
        except Exception as error:
            path = self._folder / f"{self._process}.error"
            path.write_text(f"{type(error).__name__}: {error}", encoding="utf-8")

    def _write(self, ordinal: int) -> None:
        self._keep_peaks(ordinal)
        self._keep_counts(ordinal)
        peaks, counts = self._peaks[ordinal], self._counts[ordinal]
        allocs, frees = counts["allocation.all.allocated"], counts["allocation.all.freed"]
        if not allocs and not counts["num_ooms"]:
            return
        requested, active, reserved = (peaks[name] for name in _PEAKS)
        utilization = active / reserved if reserved else None
        row = {
            "device_kind": "cuda",
            "peak_requested": requested,
            "peak_allocated": active,
            "peak_reserved": reserved,
            "fragmentation_ratio": None if utilization is None else 1 - utilization,
            "utilization": utilization,
            "device_calls": counts["num_device_alloc"] + counts["num_device_free"],
            "failures": counts["num_ooms"],
            "retries": counts["num_alloc_retries"],
        }
        report = {
            "pid": self._process,
            "ordinal": ordinal,
            "gpu": self._torch.cuda.get_device_name(ordinal),
            "torch": str(self._torch.__version__),
            "row": row,
            "extra": {"requests": allocs, "frees": frees},
        }
        path = self._folder / f"{self._process}-{ordinal}.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(report), encoding="utf-8")
        partial.replace(path)

    def _before(self, name: str, keep: Callable[[int], None]) -> None:
        """Keep statistics before a function of PyTorch, if there is one, resets them."""
        reset = getattr(self._torch._C, name, None)
        if reset is None:
            return

        def kept(device: Any, *arguments: Any) -> Any:
            if self._process == os.getpid():
                try:
                    keep(int(device))
                except Exception:  # the program gets the error of the reset itself
                    return reset(device, *arguments)
            return reset(device, *arguments)

        setattr(self._torch._C, name, kept)

    def _keep_peaks(self, device: int) -> None:
        stats = self._torch.cuda.memory_stats(device)
        self._peaks[device] |= Counter({name: stats[name] for name in _PEAKS})

    def _keep_counts(self, device: int) -> None:
        stats = self._torch.cuda.memory_stats(device)
        self._counts[device] += Counter({name: stats[name] for name in _COUNTS})


def after_torch(torch: ModuleType) -> None:
    """Count from the initialization of CUDA on."""
    statistics = Statistics(torch, Path(os.environ["ALLOCBENCH_NATIVE"]))
    torch.cuda._lazy_call(statistics.start)
