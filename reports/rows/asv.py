# SPDX-License-Identifier: Apache-2.0
"""The history that airspeed velocity (asv) keeps, as frames."""

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from allocbench.reports.rows.asv_cells import NUMBER, cells
from allocbench.reports.rows.results import SCHEMA, dtype

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
