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
from allocbench.commands.league import HEADINGS, NO_DEVICE, cells
from allocbench.questions.league import DEVICE, OFFLINE, PROGRAMS, Score, as_json, frozen, scores

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "league.json"
PICTURE = ROOT / "docs" / "league.svg"
HEADINGS_OF_THE_PAGE = ("place", "allocator", *HEADINGS[2:])
ORIGINALS = ROOT / "benchmarks" / "results" / "originals.json"
ALLOCATORS, PLANNERS, MISSING = "allocators", "planners", "missing"
HEADINGS_OF_ORIGINALS = {
    ALLOCATORS: (
        "original",
        *HEADINGS[2:],
        "replica",
        "addresses",
        "peak reserved",
        "smallest device",
    ),
    PLANNERS: ("original", *HEADINGS[2:-1], "replica", "offsets"),
    MISSING: ("original", "reason"),
}
_MANY = 10  # workloads, which are not listed
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


def originals(kind: str) -> Iterator[tuple[str, ...]]:
    """The originals that are allocators, or planners, or those that did not run, with the reason.

    An original is compared with its replica on `compared` workloads, of which some are equal.
    """
    for one in json.loads(ORIGINALS.read_text(encoding="utf-8"))["originals"]:
        if one["reason"] is not None:
            if kind == MISSING:
                yield one["name"], one["reason"]
            continue
        score = Score(**one["score"])
        if kind != (PLANNERS if score.division == OFFLINE else ALLOCATORS):
            continue
        equal = [
            f"{one[what]} of {one['compared']}" if one["replica"] else ""
            for what in (("placed",) if kind == PLANNERS else ("placed", "reserved", "capacity"))
        ]
        width = len(HEADINGS_OF_ORIGINALS[kind]) - 2 - len(equal)
        numbers = ("" if cell == NO_DEVICE else cell for cell in cells(score)[2 : 2 + width])
        yield one["name"], *numbers, one["replica"] and f"`{one['replica']}`", *equal


def left_out() -> Iterator[str]:
    """Why an original has no result for a workload, for each reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in json.loads(ORIGINALS.read_text(encoding="utf-8"))["originals"]:
        for workload, reason in one["without"].items():
            reasons.setdefault((workload, reason), []).append(one["name"])
    by_names: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (workload, reason), names in reasons.items():
        by_names.setdefault((reason, tuple(names)), []).append(f"`{workload}`")
    for (reason, original), without in by_names.items():
        listed = ", ".join(without) if len(without) < _MANY else f"{len(without)} workloads"
        yield f"- {', '.join(original)} without {listed}: {reason}"


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
