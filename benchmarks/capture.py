# SPDX-License-Identifier: Apache-2.0
"""How fast bundled programs are captured anew; needs torch, no GPU."""

from __future__ import annotations

import time

from benchmarks import common
from workloads import catalog


class Capture:
    """Each program in a process of its own."""

    params: common.Params = (("gpt2-train", "llama3-8b-lora", "llm-decode"),)
    param_names = ("workload",)

    def track_seconds_per_event(self, workload: str) -> float:
        with common.not_there():
            began = time.perf_counter()
            trace = catalog.capture(workload)
        return (time.perf_counter() - began) / len(trace)

    track_seconds_per_event.unit = "seconds"  # type: ignore[attr-defined]
    track_seconds_per_event.version = "1"  # type: ignore[attr-defined]
