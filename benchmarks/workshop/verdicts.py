# SPDX-License-Identifier: Apache-2.0
"""What `recommend` advises for every bundled workload on six cards, and what it misses.

`python -m benchmarks.workshop.verdicts` prints the table of docs/verdicts.md. Each piece of advice
is compared with the result of trying everything: every strategy, and every single setting of
PyTorch's allocator with the combinations that `tune` adds.

Regret in bytes: how much more the advice uses of the room that should stay free
(`reports.choosing.ROOM`) than another choice. Memory saved beyond that room has no value.
Regret in time: how much longer an event takes than with the fastest choice that leaves as much
room. `naive` counts as a choice only if nothing else fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from allocbench.base import units
from allocbench.base.cards import Card, find
from allocbench.questions.recommend import EXPANDABLE, study
from allocbench.questions.switching import with_conf
from allocbench.questions.tune import tune
from allocbench.replays.runner import Runner
from allocbench.reports.advice.choosing import CLOSE, KEEP, ROOM, kind
from allocbench.workloads import catalog

CARDS = (
    "RTX 3070 8GB",
    "RTX 3060 12GB",
    "RTX 4080 16GB",
    "RTX 4090 24GB",
    "A100 40GB",
    "A100 80GB",
)
BUDGET = 45
"""Settings of caching to try: every single one."""


@dataclass(frozen=True)
class Verdict:
    """One piece of advice. Bytes, and host and device seconds per event.

    chosen, need: the advice, None if nothing fits. fits: whether it completes on the card. default,
    least: what the default needs, and what the choice with the smallest need does. regret: bytes;
    regret_seconds: per event, device time alone, which is counted.
    """

    workload: str
    card: Card
    chosen: str | None
    fits: bool
    need: int | None
    default: int | None
    least: int | None
    regret: int
    regret_seconds: float


def verdicts(workload: str, budget: int = BUDGET) -> Iterator[Verdict]:
    """The advice for a workload on each of CARDS. budget: settings to try, 0 for one alone."""
    (largest,) = find(CARDS[-1])
    trace = catalog.load(workload)
    runner = Runner(trace, largest.device, workload)
    specs = [KEEP, EXPANDABLE, "naive", "bfc", "buddy", "expandable", "planned", "slab", "tlsf"]
    everything = list(specs)
    if budget:
        tuned = tune(trace, KEEP, largest.device, budget=budget, runner=runner)
        everything += [with_conf(spec) for spec in sorted(tuned.sure)]
        if tuned.best is not None and tuned.helps:
            specs.append(with_conf(tuned.best.spec))
    for name in CARDS:
        (card,) = find(name)
        yield _verdict(runner.on(card.device), card, list(dict.fromkeys(specs)), set(everything))


def _verdict(run: Runner, card: Card, specs: list[str], everything: set[str]) -> Verdict:
    study_made = study(run.trace, card.device, specs=specs, orders=0, budget=0, runner=run)
    chosen = study_made.advice.chosen
    fitting = {spec for spec in everything if run.completes(spec)}
    others = {spec for spec in fitting if kind(spec) != "uncached"} or fitting
    needs = [need for spec in everything if (need := run.min_capacity(spec)) is not None]
    regret, slower = 0, 0.0
    if chosen is not None:
        short = {spec: _short(run, spec) for spec in others | {chosen}}
        regret = round(short[chosen] - min(short.values()))
        near = [spec for spec in short if short[spec] <= short[chosen] + CLOSE * run.capacity]
        slower = _seconds(run, chosen) - min(_seconds(run, spec) for spec in near)
    return Verdict(
        workload=run.workload,
        card=card,
        chosen=chosen,
        fits=chosen is not None and run.completes(chosen),
        need=None if chosen is None else run.min_capacity(chosen),
        default=run.min_capacity(KEEP),
        least=min(needs, default=None),
        regret=regret if chosen is not None else 0 if not fitting else card.free,
        regret_seconds=slower,
    )


def _short(run: Runner, spec: str) -> float:
    """Bytes by which a spec leaves less than ROOM."""
    return max(0.0, (run.min_capacity(spec) or 0) - (1 - ROOM) * run.capacity)


def _seconds(run: Runner, spec: str) -> float:
    return float(run.counted(spec)["device_seconds_per_event"])


def _row(verdict: Verdict) -> str:
    def size(number: int | None) -> str:
        return units.NOT_AVAILABLE if number is None else units.size(number)

    advice = "nothing fits" if verdict.chosen is None else f"`{verdict.chosen}`"
    if verdict.chosen == KEEP:
        advice = "keep the default"
    regret = units.percent(verdict.regret / verdict.card.free) if verdict.chosen else ""
    time = units.seconds(verdict.regret_seconds) if verdict.chosen else ""
    cells = [verdict.workload, verdict.card.name, advice, size(verdict.need), size(verdict.default)]
    return f"| {' | '.join([*cells, size(verdict.least), regret, time])} |"


def main() -> None:
    """Print the table in Markdown."""
    headings = "workload", "card", "advice", "needs", "the default", "least", "regret", "in time"
    print(f"| {' | '.join(headings)} |")
    print("|---|---|---|--:|--:|--:|--:|--:|")
    for workload in catalog.captured():
        for verdict in verdicts(workload):
            print(_row(verdict), flush=True)


if __name__ == "__main__":
    main()
