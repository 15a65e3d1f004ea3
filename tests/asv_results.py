# SPDX-License-Identifier: Apache-2.0
"""An invented results folder of asv: two allocators on one workload, as asv 0.6 writes it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.workshop.asv_results.__main__ import main

ALLOCATORS = ("bfc", "naive")
WORKLOADS = ("train",)
PEAK, EXTERNAL, STEADY, CALLS, INSTRUCTIONS = (
    "memory.FastMemory.track_peak_reserved",
    "memory.FastMemory.track_external_fragmentation",
    "latency.FastLatency.track_seconds_per_event_steady",
    "latency.Calls.latency_alloc",
    "instructions.Instructions.track_instructions_per_event",
)
UNITS = {PEAK: "bytes", EXTERNAL: "ratio", STEADY: "seconds", CALLS: "seconds"}
UNITS |= {INSTRUCTIONS: "count of instructions"}
NAN = float("nan")
Numbers: TypeAlias = dict[str, list[float | None] | None]
NUMBERS: Numbers = {
    PEAK: [4096, 8192],
    EXTERNAL: [0.25, NAN],
    STEADY: [2e-8, 3e-8],
    CALLS: [1e-8, 2e-8],
}
_COLUMNS = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a"]
_COLUMNS += ["stats_ci_99_b", "stats_q_25", "stats_q_75"]


def write(
    folder: Path,
    commit: str,
    numbers: Mapping[str, Sequence[float | None] | None] = NUMBERS,
    *,
    date: int = 1000,
    machine: str = "sim",
    version: str = "1",
    environment: str = "virtualenv-py3.11",
    python: str = "3.11",
) -> Path:
    """Add the results of a commit to a folder; its file."""
    described: dict[str, Any] = {
        name: {"name": name, "param_names": ["allocator", "workload"], "unit": unit, "version": "1"}
        for name, unit in UNITS.items()
    }
    place = folder / machine
    place.mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.json").write_text(json.dumps(described | {"version": 2}))
    (place / "machine.json").write_text(json.dumps({"machine": machine, "version": 1}))
    params = [[repr(name) for name in names] for names in (ALLOCATORS, WORKLOADS)]
    rows: dict[str, list[Any]] = {}
    for name, values in numbers.items():
        rows[name] = [values, params, version]
        if name == CALLS and values:
            spread = [[None if v is None else f * v for v in values] for f in (0.9, 1.1, 0.8, 1.2)]
            rows[name] += [0, [1, 1], *spread]
    stored = {
        "commit_hash": commit,
        "env_name": environment,
        "date": date,
        "params": {"machine": machine, "python": python},
        "python": python,
        "result_columns": _COLUMNS,
        "results": rows,
        "version": 2,
    }
    path = place / f"{commit[:8]}-{environment}.json"
    path.write_text(json.dumps(stored))
    return path


@dataclass(frozen=True)
class Ended:
    """How the tool for results ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


def run(line: str) -> Ended:
    """Run `benchmarks.workshop.asv_results`."""
    out, err = (TextIOWrapper(BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = main(shlex.split(line))
    for stream in (out, err):
        stream.seek(0)
    return Ended(code, out.read(), err.read())
