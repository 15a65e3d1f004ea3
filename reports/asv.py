# SPDX-License-Identifier: Apache-2.0
"""Result files of airspeed velocity (asv), schema 2, as one tidy frame.

A benchmark's value is a number for each combination of its parameters; the parameters `allocator`
and `workload` become columns, all others one text.
"""

import ast
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reports.output import ResultError

SCHEMA_VERSION = 2
COLUMNS = {
    "benchmark": "object",
    "unit": "object",
    "machine": "object",
    "allocator": "object",
    "workload": "object",
    "parameters": "object",
    "commit": "object",
    "date": "datetime64[ns, UTC]",
    "value": "float64",
    "low": "float64",
    "high": "float64",
}
"""Of `history`; `low` and `high` are asv's 99 % confidence interval, NaN where it gives none."""

_OWN = ("allocator", "workload")
_DESCRIPTIONS = ("benchmarks.json", "machine.json")


def history(folder: str | Path) -> pd.DataFrame:
    """Every value of a folder of asv results, in order of the commits' dates; see COLUMNS.

    The folder is asv's `results_dir`: `benchmarks.json` and a folder for each machine. A
    combination that was skipped, or failed, has no row. Raises ResultError naming the file that is
    not there, cannot be read, or is not of schema 2.
    """
    place = Path(folder)
    described = load(place / "benchmarks.json")
    rows: list[dict[str, Any]] = []
    for path in files(place):
        rows += _rows(load(path), described, path)
    table = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
    return table.sort_values(["date", "commit"], kind="stable").reset_index(drop=True)


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
        raise ResultError(f"{path}: want asv results of schema {SCHEMA_VERSION}, found {version!r}")
    return content


def _rows(
    content: Mapping[str, Any], described: Mapping[str, Any], path: Path
) -> Iterator[dict[str, Any]]:
    try:
        common = {
            "machine": str(content["params"].get("machine", path.parent.name)),
            "commit": str(content["commit_hash"]),
            "date": pd.Timestamp(content["date"], unit="ms", tz="UTC"),
        }
        for name, values in content["results"].items():
            row = dict(zip(content["result_columns"], values, strict=False))
            about = described.get(name, {})
            for given in _values(row, about.get("param_names", [])):
                yield {"benchmark": name, "unit": str(about.get("unit", "")), **common, **given}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ResultError(f"{path}: not asv results: {error!r}") from error


def _values(row: Mapping[str, Any], names: list[str]) -> Iterator[dict[str, Any]]:
    """The value of each combination of parameters that has one."""
    results, params = row.get("result"), row.get("params") or []
    if results is None:
        return
    combinations = list(itertools.product(*params))
    bounds = [row.get(f"stats_ci_99_{end}") or [None] * len(results) for end in "ab"]
    for combination, value, low, high in zip(combinations, results, *bounds, strict=True):
        if value is None or value != value:
            continue
        named = dict(itertools.zip_longest(names[: len(combination)], map(plain, combination)))
        others = [f"{key}={text}" for key, text in named.items() if key not in _OWN]
        yield {
            **{key: named.get(key) or "" for key in _OWN},
            "parameters": ", ".join(others),
            "value": float(value),
            "low": low,
            "high": high,
        }


def plain(parameter: str) -> str:
    """A parameter as it was: asv keeps its `repr`."""
    try:
        return str(ast.literal_eval(parameter))
    except (ValueError, SyntaxError):
        return parameter
