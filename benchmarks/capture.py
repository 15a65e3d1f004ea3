# SPDX-License-Identifier: Apache-2.0
"""Capture speed of bundled programs; needs torch but no GPU, and is n/a without torch."""

from __future__ import annotations

import importlib.util
import time

from benchmarks import common
from benchmarks.packages import catalog


class Capture:
    """Captures each program in its own process."""

    params: common.Params = (("gpt2-train", "llama3-8b-lora", "llm-decode"),)
    param_names = ("workload",)

    def setup(self, workload: str) -> None:
        """Capture the program here, because asv only accepts n/a from setup."""
        if importlib.util.find_spec("torch") is None:
            raise NotImplementedError("no torch")
        with common.not_there():
            began = time.perf_counter()
            trace = catalog.capture(workload)
        self.seconds_per_event = (time.perf_counter() - began) / len(trace)

    def track_seconds_per_event(self, workload: str) -> float:
        return self.seconds_per_event

    track_seconds_per_event.unit = "seconds"  # type: ignore[attr-defined]
    track_seconds_per_event.version = "1"  # type: ignore[attr-defined]
