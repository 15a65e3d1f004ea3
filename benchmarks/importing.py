# SPDX-License-Identifier: Apache-2.0
"""Speed of reading traces from files in other programs' formats and in our own."""

import tempfile
import time
from pathlib import Path

from benchmarks import common
from benchmarks.packages import catalog, workloads

_READS = 3


class Import:
    """One workload, written to a file and read as a user would read it."""

    params: common.Params = (("parquet", "csv", "lifetimes", "snapshot"), ("gpt2-train",))
    param_names = ("format", "workload")

    def setup(self, kind: str, workload: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        extension = {"lifetimes": "csv", "snapshot": "pickle"}.get(kind, kind)
        self.path = Path(self.folder.name, f"trace.{extension}")
        if kind == "snapshot":
            row = common.replay(
                "caching",
                workload,
                *("--time", "0", "--no-min-capacity", "--snapshot", str(self.path)),
            )
            if isinstance(row, str):
                raise NotImplementedError(row)
        else:
            options = {"kind": kind} if kind == "lifetimes" else {}
            try:
                workloads.write(catalog.load(workload), self.path, **options)
            except TypeError as error:  # commits whose `write` only supports Parquet and CSV
                raise NotImplementedError(f"this commit cannot write {kind}") from error
        with common.not_there():
            workloads.read(self.path)

    def teardown(self, kind: str, workload: str) -> None:
        self.folder.cleanup()

    def track_seconds_per_event(self, kind: str, workload: str) -> float:
        """The fastest of several reads."""
        fastest = float("inf")
        for _ in range(_READS):
            began = time.perf_counter()
            trace = workloads.read(self.path)
            fastest = min(fastest, (time.perf_counter() - began) / len(trace))
        return fastest

    track_seconds_per_event.unit = "seconds"  # type: ignore[attr-defined]
    track_seconds_per_event.version = "1"  # type: ignore[attr-defined]
