# SPDX-License-Identifier: Apache-2.0
"""Errors of the estimates of `allocbench whatif`, from the committed runs of edited programs."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from allocbench.base import units
from allocbench.workloads import catalog

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "edits.csv"
_NAME = r"^(checkpoint [a-z ]+?|freeze|free|ZeRO-.|batch in . parts)(?: .*)?$"
_COLUMNS = ("load", "need", "reserved")
_ERRORS = ("load", "worst", "need", "worst", "reserved", "worst", "in range")
HEADINGS = {"change": ("change", "runs", *_ERRORS), "program": ("program", "runs", *_ERRORS)}


def _read() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The estimates with a run, and those without."""
    found = pd.read_csv(RESULTS)
    found["change"] = found["edit"].str.replace(_NAME, r"\1", regex=True)
    found["inside"] = found["run_need"].between(found["low"], found["high"])
    has_run = found["run_load"].notna()
    return found[has_run], found[~has_run]


def rows(by: str) -> Iterator[tuple[str, ...]]:
    """By "change" or "program": the runs; the median error without sign, and the worst, of the
    load, the need and the bytes that PyTorch reserved; the runs whose need is in the range.
    """
    for name, group in _read()[0].groupby(by, sort=by == "change"):
        errors = [group[column] / group[f"run_{column}"] - 1 for column in _COLUMNS]
        cells = [
            text
            for error in errors
            for text in (units.percent(error.abs().median()), f"{max(error, key=abs):+.1%}")
        ]
        yield str(name), str(len(group)), *cells, f"{group['inside'].sum()} of {len(group)}"


def summary() -> str:
    """How many estimates have a run, how many are in their range, and why some have no run."""
    ran, others = _read()
    bundled = ran[ran["program"].isin(catalog.captured())].groupby("program").size()
    error = (ran["need"] / ran["run_need"] - 1).abs()
    text = (
        f"{len(ran)} of {len(ran) + len(others)} estimates have a run: {bundled.min()} to"
        f" {bundled.max()} of each of the {len(bundled)} bundled programs. The need of"
        f" {ran['inside'].sum()} of them is in the range of the estimate, and the median error of"
        f" all is {units.percent(error.median())}."
    )
    others = others.dropna(subset="not_run")
    reasons = [
        f"- {row.program}, {row.edit}: {row.not_run}" for row in others.itertuples(index=False)
    ]
    return "\n".join([text, *([] if others.empty else ["", "Without a run:", "", *reasons])])
