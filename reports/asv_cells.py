# SPDX-License-Identifier: Apache-2.0
"""Every cell of asv's results, those without a number included, as comparing commits needs them.

A cell is one benchmark at one combination of its parameters, on one commit and machine.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from reports.asv import files, load, plain
from reports.output import ResultError

NUMBER: Final = "number"
NOT_AVAILABLE: Final = "n/a"
FAILED: Final = "failed"
STALE: Final = "stale"
State: TypeAlias = Literal["number", "n/a", "failed", "stale"]

_PREFIXES = ("track_", "latency_")
_ON_A_GPU = ("gpu_", "cupy.")
_COUNTED = ("bytes", "ratio", "count")


@dataclass(frozen=True)
class Cell:
    """One cell.

    commit_date: milliseconds since 1970. allocator: that parameter, or the planner; empty when the
    benchmark has neither. workload: the parameter, or all others as `name=value`. `state` is stale
    for what another version of the benchmark measured. value: NaN unless it is a number; the
    median where there are samples, with their quartiles beside it.
    """

    commit: str
    commit_date: int
    machine: str
    environment: str
    benchmark: str
    metric: str
    unit: str
    device_kind: str
    allocator: str
    workload: str
    state: State
    value: float
    quartile_25: float
    quartile_75: float

    @property
    def deterministic(self) -> bool:
        """Whether every machine measures the same: what is counted on the simulated device."""
        return self.device_kind == "simulated" and self.unit in _COUNTED


def cells(folder: str | Path) -> list[Cell]:
    """Every cell of a folder of results, by commit date, then file and benchmark.

    `folder` is asv's results_dir: `benchmarks.json`, and a folder for each machine. Raises
    ResultError naming the file that is missing, no JSON, of another schema or not understood.
    """
    place = Path(folder)
    described = load(place / "benchmarks.json")
    found: list[Cell] = []
    for path in files(place):
        stored = load(path)
        try:
            found += _cells(stored, described)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ResultError(f"{path}: not asv results: {error!r}") from error
    return sorted(found, key=lambda cell: cell.commit_date)


def _cells(stored: Mapping[str, Any], described: Mapping[str, Any]) -> Iterator[Cell]:
    for name, row in stored["results"].items():
        columns = dict(zip(stored["result_columns"], row, strict=False))
        benchmark = described.get(name)
        if benchmark is None:  # one that the suites have no more
            continue
        stale = columns.get("version") != benchmark["version"]
        combinations = list(itertools.product(*(columns.get("params") or [])))
        for n, combination in enumerate(combinations):
            value = _at(columns.get("result"), n)
            names = dict(zip(benchmark["param_names"], map(plain, combination), strict=True))
            allocator = names.pop("allocator", None) or names.pop("planner", "")
            only = names.pop("workload", None)
            yield Cell(
                commit=stored["commit_hash"],
                commit_date=int(stored["date"]),
                machine=stored["params"]["machine"],
                environment=stored["env_name"],
                benchmark=name,
                metric=_metric(name),
                unit=benchmark["unit"],
                device_kind="cuda" if name.startswith(_ON_A_GPU) else "simulated",
                allocator=allocator,
                workload=" ".join(
                    ([only] if only else []) + [f"{key}={value}" for key, value in names.items()]
                ),
                state=STALE if stale else _state(value),
                value=math.nan if value is None else float(value),
                quartile_25=_number(_at(columns.get("stats_q_25"), n)),
                quartile_75=_number(_at(columns.get("stats_q_75"), n)),
            )


def _metric(benchmark: str) -> str:
    function = benchmark.rpartition(".")[2]
    for prefix in _PREFIXES:
        function = function.removeprefix(prefix)
    return function


def _at(values: list[Any] | None, n: int) -> Any:
    return None if values is None else values[n]


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _state(value: float | None) -> State:
    if value is None:
        return FAILED
    return NUMBER if math.isfinite(value) else NOT_AVAILABLE
