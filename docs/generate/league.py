# SPDX-License-Identifier: Apache-2.0
"""The table and the pictures of the page on the league.

    python -m docs.generate.league

plays the league and writes `benchmarks/results/league.json`, from which the page is made, and the
pictures. `make league` calls it.
"""

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
PICTURE_OF_EXTREMES = ROOT / "docs" / "league-extremes.svg"
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
_ROBSON = 1 + 21 / 2
"""Robson's bound for blocks from 512 bytes to 1 GiB, as a multiple of the load: 1 + log2(n) / 2."""


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


def draw_extremes(found: list[Score]) -> Figure:
    """What each allocator needs for the mean and the worst program, and the worst adversary.

    Beside them, what a program can make any allocator need that keeps blocks in one address range.
    """
    marks = {
        "mean of the programs": "programs",
        "worst program": "worst",
        "worst adversary": "worst_adversary",
    }
    dots = pd.DataFrame(
        [
            {"": score.name, "memory needed / largest load": getattr(score, field), "of": name}
            for score in found
            if score.division != OFFLINE
            for name, field in marks.items()
        ]
    ).dropna()
    figure = Figure(figsize=(7.2, 5.2), layout="constrained")
    axes = figure.subplots()
    sns.stripplot(
        dots,
        x="memory needed / largest load",
        y="",
        hue="of",
        palette=["#1f5f99", "#c77d0a", "#a4262c"],
        size=7,
        jitter=False,
        log_scale=(True, False),
        ax=axes,
    )
    axes.axvline(_ROBSON, color="#7b8794", linestyle="--", label="Robson's bound")
    axes.legend(title=None, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    axes.grid(axis="x", color="#e3e6ea")
    axes.set_axisbelow(True)
    ticks = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
    axes.set_xticks(ticks, map(str, ticks))
    axes.minorticks_off()
    return figure


def save(figure: Figure, picture: Path) -> None:
    """Write a picture that is the same each time."""
    mpl.rcParams["svg.hashsalt"] = picture.stem
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    """Play the league; write the results and the pictures."""
    found = scores(
        allocators.names(allocators.make_device(DEVICE)), allocators.planners(), frozen()
    )
    RESULTS.write_text(json.dumps(as_json(found), indent=1) + "\n", encoding="utf-8")
    save(draw(found), PICTURE)
    save(draw_extremes(found), PICTURE_OF_EXTREMES)
    print(pd.DataFrame([cells(score) for score in found], columns=HEADINGS).to_string(index=False))


if __name__ == "__main__":
    main()
