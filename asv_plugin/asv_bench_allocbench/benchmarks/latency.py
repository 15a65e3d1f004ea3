# SPDX-License-Identifier: Apache-2.0
"""The benchmark type `latency_*`: asv's statistics over the seconds of single calls."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from asv_runner.benchmarks._base import Benchmark


class LatencyBenchmark(Benchmark):  # type: ignore[misc]
    """A function `latency_*` that returns the seconds of individually timed calls.

    asv treats them like the samples of its own timings: median, quartiles, confidence interval, and
    a significance test in `compare` and `continuous`.
    """

    name_regex = re.compile(r"^(Latency[A-Z_].+)|(latency_.+)$")

    def __init__(
        self, name: str, func: Callable[..., Sequence[float]], attr_sources: Sequence[object]
    ) -> None:
        super().__init__(name, func, attr_sources)
        self.type, self.unit = "time", "seconds"
        self.rounds = 1  # the calls of one process are the complete sample

    def run(self, *combination: Any) -> dict[str, Any]:
        """The samples of one combination of parameters; raises ValueError if there are none."""
        samples = [float(seconds) for seconds in self.func(*combination)]
        if not samples:
            raise ValueError(f"{self.name} returned no samples")
        return {"samples": samples, "number": 1}


export_as_benchmark = [LatencyBenchmark]
