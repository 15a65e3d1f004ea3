# SPDX-License-Identifier: Apache-2.0
"""The history that airspeed velocity (asv) keeps, as frames."""

import ast
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pandas as pd

from allocbench.reports.rows import ResultError
from allocbench.reports.rows.results import SCHEMA, dtype

_TEXTS = "benchmark metric unit machine device_kind allocator workload parameters commit"
COLUMNS = {
    **dict.fromkeys(_TEXTS.split(), "object"),
    "date": "datetime64[ns, UTC]",
    **dict.fromkeys(("value", "low", "high"), "float64"),
}
"""The columns of `history`; `low` and `high`: asv's 99 % confidence interval, or NaN."""

KEY = ("commit", "machine", "workload", "device_kind", "allocator")


def history(folder: str | Path) -> pd.DataFrame:
    """Every number of a folder of asv results, in order of the commits' dates; see COLUMNS.

    The folder is asv's `results_dir`: `benchmarks.json` and a folder for each machine. Results that
    were skipped, that failed, or that another version of the benchmark measured have no row. Raises
    ResultError naming the file that is missing, cannot be read, or is not of schema 2.
    """
    rows = [
        asdict(cell) | {"date": pd.Timestamp(cell.commit_date, unit="ms", tz="UTC")}
        for cell in cells(folder)
        if cell.state == NUMBER
    ]
    table = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
    return table.sort_values(["date", "commit"], kind="stable").reset_index(drop=True)


def frame(folder: str | Path) -> pd.DataFrame:
    """The same as result rows: one for each commit, machine, workload, device kind and allocator.

    After `commit` and `machine` come the columns of `results.frame`, in its order and of its kinds;
    `date` is that of the commit. Metrics that asv's suites do not measure or keep, such as whether
    an allocator is a candidate, are null. If two benchmarks measure a metric, the first by name
    counts.
    """
    table = history(folder)
    table = table[table["metric"].isin(SCHEMA) & (table["parameters"] == "")]
    cells_by_column = table.sort_values("benchmark", kind="stable").pivot_table(
        index=["date", *KEY], columns="metric", values="value", aggfunc="first", sort=False
    )
    rows = cells_by_column.sort_index(kind="stable").reset_index()
    rows["date"] = rows["date"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    kinds = {name: dtype(column) for name, column in SCHEMA.items()} | {"candidate": "boolean"}
    kinds = dict.fromkeys(("commit", "machine"), "object") | kinds
    return rows.rename_axis(columns=None).reindex(columns=list(kinds)).astype(kinds)


SCHEMA_VERSION = 2
NUMBER: Final = "number"
NOT_AVAILABLE: Final = "n/a"
FAILED: Final = "failed"
STALE: Final = "stale"
State: TypeAlias = Literal["number", "n/a", "failed", "stale"]

_DESCRIPTIONS = ("benchmarks.json", "machine.json")
_PREFIXES = ("track_", "latency_")
_ON_A_GPU = ("gpu_", "cupy.")
_COUNTED = ("bytes", "ratio", "count")
INSTRUCTIONS: Final = "count of instructions"
"""The unit of numbers that nearly repeat on one machine and differ between machines."""


@dataclass(frozen=True)
class AsvResult:
    """One cell.

    commit_date: milliseconds since 1970. allocator: that parameter, or the planner; empty when the
    benchmark has neither. device_kind: the parameter `device`, or that of the suite. parameters:
    all but those and the workload, as `name=value`. `state` is stale if another version of the
    benchmark measured the cell. value: NaN unless it is a number; the median where there are
    samples, with asv's 99 % confidence interval as `low` and `high`.
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
    parameters: str
    state: State
    value: float
    low: float
    high: float

    @property
    def case(self) -> str:
        """The workload with the parameters."""
        return f"{self.workload} {self.parameters}".strip()

    @property
    def deterministic(self) -> bool:
        """Whether every machine gets the same value: it is counted on the simulated device."""
        return self.device_kind == "simulated" and self.unit in _COUNTED


def cells(folder: str | Path) -> list[AsvResult]:
    """Every cell of a folder of results, by commit date, then file and benchmark.

    `folder` is asv's results_dir: `benchmarks.json`, and a folder for each machine. Raises
    ResultError naming a file that is missing, not JSON, of another schema or not understood.
    """
    place = Path(folder)
    described = load(place / "benchmarks.json")
    all_cells: list[AsvResult] = []
    for path in files(place):
        stored = load(path)
        try:
            all_cells += _cells(stored, described)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ResultError(f"{path}: not asv results: {error!r}") from error
    return sorted(all_cells, key=lambda cell: cell.commit_date)


def files(folder: Path) -> list[Path]:
    """The files of a results folder that hold the results of a commit, sorted."""
    return [path for path in sorted(folder.glob("*/*.json")) if path.name not in _DESCRIPTIONS]


def load(path: Path) -> dict[str, Any]:
    """One file of asv's results folder; raises ResultError naming it."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ResultError(f"{path}: cannot read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path}: not JSON: {error}") from error
    version = content.get("version") if isinstance(content, dict) else None
    if not isinstance(content, dict) or version != SCHEMA_VERSION:
        raise ResultError(
            f"{path}: expected asv results of schema {SCHEMA_VERSION}, found {version!r}"
        )
    return content


def _cells(stored: Mapping[str, Any], described: Mapping[str, Any]) -> Iterator[AsvResult]:
    for name, row in stored["results"].items():
        columns = dict(zip(stored["result_columns"], row, strict=False))
        benchmark = described.get(name)
        if benchmark is None:  # one that the suites no longer have
            continue
        stale = columns.get("version") != benchmark["version"]
        combinations = list(itertools.product(*(columns.get("params") or [])))
        for n, combination in enumerate(combinations):
            value = _at(columns.get("result"), n)
            names = dict(zip(benchmark["param_names"], map(_plain, combination), strict=True))
            allocator = names.pop("allocator", None) or names.pop("planner", "")
            yield AsvResult(
                commit=stored["commit_hash"],
                commit_date=int(stored["date"]),
                machine=stored["params"]["machine"],
                environment=stored["env_name"],
                benchmark=name,
                metric=_metric(name),
                unit=benchmark["unit"],
                device_kind=names.pop("device", None)
                or ("cuda" if name.startswith(_ON_A_GPU) else "simulated"),
                allocator=allocator,
                workload=names.pop("workload", ""),
                parameters=" ".join(f"{key}={text}" for key, text in names.items()),
                state=STALE if stale else _state(value),
                value=math.nan if value is None else float(value),
                low=_number(_at(columns.get("stats_ci_99_a"), n)),
                high=_number(_at(columns.get("stats_ci_99_b"), n)),
            )


def _metric(benchmark: str) -> str:
    function = benchmark.rpartition(".")[2]
    for prefix in _PREFIXES:
        function = function.removeprefix(prefix)
    return function


def _plain(parameter: str) -> str:
    """A parameter as it was: asv keeps its `repr`."""
    try:
        return str(ast.literal_eval(parameter))
    except (ValueError, SyntaxError):
        return parameter


def _at(values: list[Any] | None, n: int) -> Any:
    return None if values is None else values[n]


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _state(value: float | None) -> State:
    if value is None:
        return FAILED
    return NUMBER if math.isfinite(value) else NOT_AVAILABLE
