# SPDX-License-Identifier: Apache-2.0
"""What `best` advises for every bundled workload near its limit, and what it misses.

`python -m benchmarks.workshop.verdicts` writes the table of docs/verdicts.md. The devices have
LOWEST to HIGHEST of what the default needs, in steps of STEP. Each piece of advice is compared with
everything that was tried for the workload on any of these devices: every strategy, every single
setting of PyTorch's allocator, and the combinations that `tune` adds with a larger budget.

Choices that fail when the steps come in another order, or reserve more in each step while the load
does not grow, are left out, as `best` leaves them out.

Regret: how much more the advice uses of the room that should stay free (`ROOM`)
than another choice, as a share of the device. Memory saved beyond that room has no value. `naive`
counts as a choice only if nothing else fits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from allocbench.base import units
from allocbench.questions import ORDERS
from allocbench.questions.best import Best, best
from allocbench.questions.growth import growing_reserve
from allocbench.questions.repetitions import all_steps
from allocbench.questions.tune import tune
from allocbench.replays.capacity import with_capacity
from allocbench.replays.recorded_settings import with_conf
from allocbench.replays.runner import Runner
from allocbench.reports.advice.choosing import KEEP, ROOM, kind
from allocbench.workloads import catalog

LOWEST, HIGHEST, STEP = 970, 1030, 5
"""Thousandths of what the default needs."""
AMPLE = "sim:80GiB"
BUDGET = 200
"""Settings of caching to try on AMPLE, in addition to those that `best` tries."""
PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"
BEGIN, END = "<!-- verdicts -->\n", "<!-- end of verdicts -->"


@dataclass(frozen=True)
class Verdict:
    """The advice on one device.

    thousandths: the capacity, in those of what the default needs. chosen: None if nothing fits;
    need: bytes, of the choice. fits: whether it completes on the device. least: bytes that the
    choice with the smallest need takes. regret: share of the device; 1 if another choice fits where
    none is advised.
    """

    workload: str
    thousandths: int
    chosen: str | None
    fits: bool
    need: int | None
    least: int | None
    regret: float


def verdicts(
    workload: str,
    thousandths: Sequence[int] = range(LOWEST, HIGHEST + 1, STEP),
    budget: int = BUDGET,
) -> Iterator[Verdict]:
    """The advice for a workload on devices with these capacities.

    budget: see BUDGET; 0 for no other settings.
    """
    trace = catalog.load(workload)
    ample = Runner(trace, AMPLE, workload)
    need = ample.min_capacity(KEEP)
    if need is None:
        raise ValueError(f"{workload}: no device is enough")
    everything = {}
    if budget:
        tuned = tune(ample, KEEP, budget=budget)
        everything = {
            with_conf(one.spec): one.capacity for one in tuned.trials if one.spec in tuned.sure
        }
    found = []
    for share in thousandths:
        run = ample.on(with_capacity(AMPLE, need * share // 1000))
        found.append((share, run, best(run)))
        rows = found[-1][2].rows
        everything |= dict(zip(rows["allocator"], rows["min_capacity"], strict=True))
    for share, run, advised in found:
        yield _verdict(run, share, advised, everything)


def _verdict(
    run: Runner,
    share: int,
    found: Best,
    everything: dict[str, int | None],
) -> Verdict:
    chosen = found.advice.chosen
    fitting = [spec for spec in everything if run.completes(spec)]
    orders, steps = run.other_orders(ORDERS, 0), all_steps(run.trace)
    sure = [
        spec
        for spec in fitting
        if all(order.completes(spec) for order in orders)
        and growing_reserve(run.trace, spec, run.device, steps) is None
    ]
    fitting = sure if chosen in sure else fitting
    fitting = [spec for spec in fitting if kind(spec) != "uncached"] or fitting
    limit = (1 - ROOM) * run.capacity
    short = {spec: max(0.0, (everything[spec] or 0) - limit) for spec in fitting}
    regret = 0.0
    if fitting:
        regret = (short[chosen] - min(short.values())) / run.capacity if chosen else 1.0
    return Verdict(
        workload=run.workload,
        thousandths=share,
        chosen=chosen,
        fits=chosen in fitting,
        need=everything[chosen] if chosen else None,
        least=min(need for need in everything.values() if need is not None),
        regret=regret,
    )


def rows(found: Sequence[Verdict]) -> Iterator[str]:
    """The rows of the table in Markdown: neighbors with the same advice share one."""
    for (workload, chosen), group in groupby(found, lambda one: (one.workload, one.chosen)):
        same = list(group)
        ends = dict.fromkeys(f"{one.thousandths / 1000:.3f}" for one in (same[0], same[-1]))
        advice = "nothing fits" if chosen is None else f"`{chosen}`"
        cells = [
            workload,
            " to ".join(ends),
            "keep the default" if chosen == KEEP else advice,
            "" if same[0].need is None else units.size(same[0].need),
            "" if same[0].least is None else units.size(same[0].least),
            f"{max(one.regret for one in same):.2%}",
        ]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the table into the page."""
    headings = "workload", "capacity / need of the default", "advice", "needs", "least", "regret"
    lines = [f"| {' | '.join(headings)} |", "|---|---|---|--:|--:|--:|"]
    for workload in catalog.captured():
        lines += rows(list(verdicts(workload)))
        print(lines[-1], flush=True)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(lines)
    PAGE.write_text(f"{before}{BEGIN}{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
