# SPDX-License-Identifier: Apache-2.0
"""The table and the picture of the page on the league.

    python -m docs.generate.league

plays the league and writes `benchmarks/results/league.json`, from which the page is made, and the
picture. `make league` calls it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from allocbench import allocators
from allocbench.commands.league import HEADINGS, cells
from allocbench.questions.league import DEVICE, OFFLINE, PROGRAMS, Score, as_json, frozen, scores

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "league.json"
PICTURE = ROOT / "docs" / "league.svg"
HEADINGS_OF_THE_PAGE = ("place", "allocator", *HEADINGS[2:])
_FAR = 2.0  # ratios above are drawn there


def committed() -> list[Score]:
    """The scores of the last league."""
    return [Score(**score) for score in json.loads(RESULTS.read_text(encoding="utf-8"))["scores"]]


def rows(division: str) -> Iterator[tuple[str, ...]]:
    """Place and score of the allocators or planners of a division."""
    within = (score for score in committed() if score.division == division)
    for place, score in enumerate(within, 1):
        name, _, *rest = cells(score)
        yield str(place), f"`{name}`", *rest


def draw(found: list[Score]) -> Figure:
    """Each program's ratio, a row of dots for each allocator and planner."""
    programs = frozen()[PROGRAMS]
    dots = pd.DataFrame(
        [
            {
                "": f"{score.name} ({score.division})" if score.division == OFFLINE else score.name,
                "memory needed / largest load": min(score.ratios[name] or _FAR, _FAR),
            }
            for score in found
            for name in programs
        ]
    )
    figure = Figure(figsize=(7.2, 5.6), layout="constrained")
    axes = figure.subplots()
    sns.stripplot(
        dots,
        x="memory needed / largest load",
        y="",
        size=5,
        alpha=0.5,
        jitter=False,
        color="#1f5f99",
        ax=axes,
    )
    axes.set(xlim=(0.98, _FAR * 1.02))
    axes.grid(axis="x", color="#e3e6ea")
    axes.set_axisbelow(True)
    ticks = [1.0, 1.25, 1.5, 1.75, _FAR]
    axes.set_xticks(ticks, [*map(str, ticks[:-1]), "2 and more"])
    return figure


def main() -> None:
    """Play the league; write the results and the picture."""
    found = scores(
        allocators.names(allocators.make_device(DEVICE)), allocators.planners(), frozen()
    )
    RESULTS.write_text(json.dumps(as_json(found), indent=1) + "\n", encoding="utf-8")
    mpl.rcParams["svg.hashsalt"] = PICTURE.stem
    draw(found).savefig(PICTURE, metadata={"Date": None})
    print(pd.DataFrame([cells(score) for score in found], columns=HEADINGS).to_string(index=False))


if __name__ == "__main__":
    main()
