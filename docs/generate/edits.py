# SPDX-License-Identifier: Apache-2.0
"""Errors of the estimates of `allocbench whatif`, from the committed runs of edited programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from allocbench.base import units

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "edits.csv"
_NAME = r"^(checkpoint [a-z ]+?)(?: of .*)$"
BUNDLED = "-train|-lora"
"""In the names of the bundled programs, which the rules were not written with."""
HEADINGS = ("change", "programs", "median", "lowest", "highest", "load, median", "load, worst")


def rows(bundled: bool) -> Iterator[tuple[str, ...]]:
    """By change: runs; errors of the need: median without sign, lowest, highest; of the load."""
    found = pd.read_csv(RESULTS)
    found = found[found["program"].str.contains(BUNDLED) == bundled]
    change = found["edit"].str.replace(_NAME, r"\1", regex=True)
    needs, loads = found["need"] / found["run_need"] - 1, found["load"] / found["run_load"] - 1
    for name in change.unique():
        need, load = needs[change == name], loads[change == name]
        worst = max(load, key=abs)
        cells = (
            units.percent(need.abs().median()),
            f"{need.min():+.1%}",
            f"{need.max():+.1%}",
            units.percent(load.abs().median()),
            f"{worst:+.1%}",
        )
        yield name, str(len(need)), *cells
