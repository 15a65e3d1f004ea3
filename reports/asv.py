# SPDX-License-Identifier: Apache-2.0
"""The history that airspeed velocity (asv) keeps, as frames."""

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from allocbench.reports.asv_cells import NUMBER, cells
from allocbench.reports.results import SCHEMA, dtype

COLUMNS = {
    "benchmark": "object",
    "metric": "object",
    "unit": "object",
    "machine": "object",
    "device_kind": "object",
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

KEY = ("commit", "machine", "workload", "device_kind", "allocator")


def history(folder: str | Path) -> pd.DataFrame:
    """Every number of a folder of asv results, in order of the commits' dates; see COLUMNS.

    The folder is asv's `results_dir`: `benchmarks.json` and a folder for each machine. What was
    skipped, has failed, or was measured by another version of the benchmark, has no row. Raises
    ResultError naming the file that is not there, cannot be read, or is not of schema 2.
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
    `date` is that of the commit. What asv's suites do not measure is null, and so is what they do
    not keep, such as whether an allocator is a candidate. A metric that two benchmarks measure is
    that of the first by name.
    """
    table = history(folder)
    table = table[table["metric"].isin(SCHEMA) & (table["parameters"] == "")]
    found = table.sort_values("benchmark", kind="stable").pivot_table(
        index=["date", *KEY], columns="metric", values="value", aggfunc="first", sort=False
    )
    rows = found.sort_index(kind="stable").reset_index()
    rows["date"] = rows["date"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    kinds = {name: dtype(column) for name, column in SCHEMA.items()} | {"candidate": "boolean"}
    kinds = dict.fromkeys(("commit", "machine"), "object") | kinds
    return rows.rename_axis(columns=None).reindex(columns=list(kinds)).astype(kinds)
