# SPDX-License-Identifier: Apache-2.0
"""Errors of the estimates of `allocbench whatif`, from the committed runs of edited programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from allocbench.base import units

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "edits.csv"
_NAME = r"^(checkpoint [a-z ]+?|freeze|free|ZeRO-3|batch in . parts)(?: .*)?$"
HEADINGS = ("change", "runs", "load", "worst", "need", "worst", "reserved", "worst", "in range")
COLUMNS = ("load", "need", "reserved")


def rows() -> Iterator[tuple[str, ...]]:
    """By change: the runs; the median error without sign, and the worst, of the load, the need and
    the bytes that PyTorch reserved; the share of runs whose need is in the range of the estimate.
    """
    found = pd.read_csv(RESULTS)
    if "run_load" not in found:
        return
    found = found.dropna(subset="run_load")
    change = found["edit"].str.replace(_NAME, r"\1", regex=True)
    for name, group in found.groupby(change, sort=True):
        errors = [group[column] / group[f"run_{column}"] - 1 for column in COLUMNS]
        cells = [
            text
            for error in errors
            for text in (units.percent(error.abs().median()), f"{max(error, key=abs):+.1%}")
        ]
        inside = group["run_need"].between(group["low"], group["high"]).sum()
        yield str(name), str(len(group)), *cells, f"{inside} of {len(group)}"
