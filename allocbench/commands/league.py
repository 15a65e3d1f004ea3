# SPDX-License-Identifier: Apache-2.0
"""allocbench league: how near allocators come to lower bounds, on a frozen set of workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from allocbench.base.text import one_line
from allocbench.commands import options
from allocbench.inputs import ALL
from allocbench.output.files import STDOUT, check_outputs, write_json
from allocbench.output.terminal import console, plain_table, progress_bar

if TYPE_CHECKING:
    from allocbench.questions.league import Score

EXAMPLES = (
    "allocbench league --allocators caching,expandable",
    "allocbench league --allocators naive --json league.json",
)
NO_DEVICE = "no device"  # is large enough
HEADINGS = ("", "division", "programs", "worst one", "adversaries", "worst one", "device calls")
"""Of the table; the cells of `cells`."""


def run(
    allocators: options.Allocators = ALL,
    json: Annotated[str | None, options.json_option("the scores, also by workload")] = None,
) -> None:
    """Rank allocators and planners on a frozen set of workloads.

    A score is the memory that an allocator needs, divided by the largest load, which is a lower
    bound: the geometric mean over recorded programs. The worst program and the device calls decide
    between equal ones. Adversaries, which were built against one strategy each, do not rank. All
    numbers are counts, the same on every machine.
    """
    from allocbench.allocators import planners  # imported late: --help stays fast
    from allocbench.inputs.question import allocator_specs, check_specs
    from allocbench.questions.league import DEVICE, as_json, frozen, scores

    check_outputs(json)
    specs, workloads = allocator_specs(allocators, DEVICE), frozen()
    check_specs("--allocators", specs, DEVICE)
    with progress_bar(sum(map(len, workloads.values()))) as begin:
        found = scores(specs, planners() if allocators == ALL else (), workloads, begin)
    if json:
        write_json(as_json(found), json)
    if json != STDOUT:
        table = plain_table("memory needed / largest load", *HEADINGS)
        for score in found:
            table.add_row(*cells(score))
        table.caption = "device calls: for 1,000 events of a program; --json has each workload"
        console().print(table)


def cells(score: Score) -> tuple[str, ...]:
    """A row of the table; its headings are HEADINGS."""
    ratios = (score.programs, score.worst, score.adversaries, score.worst_adversary)
    shown = [NO_DEVICE if ratio is None else f"{ratio:.4f}" for ratio in ratios]
    calls = "" if score.calls is None else f"{score.calls:.3g}"
    return one_line(score.name), score.division, *shown, calls
