# SPDX-License-Identifier: Apache-2.0
"""Rows, details and capacities of replays of small inputs are as they were frozen."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest

from allocbench import api
from allocbench.allocators import SpecError
from allocbench.replays import LONG, experiment, recorded_settings, runner
from allocbench.replays.capacity import STEP, boundary, rough_capacity
from allocbench.replays.experiment import Effort
from allocbench.replays.runner import Runner, beside
from allocbench.replays.trace_blocks import TraceBlocks
from allocbench.workloads import Provenance
from tests.answer_inputs import CASES, chunks
from tests.gold import Gold, facts, outcome
from tests.traces import training

_SETTINGS = (
    *("caching:version=2.11", "caching:per_process_memory_fraction=0.5"),
    *("caching:max_split_size_mb=64", "caching:max_split_size_mb=64,version=2.9"),
)
_SPECS = ("caching", "caching:expandable_segments=true", "bfc", "rmm_pool", "naive")


def columns(table: pd.DataFrame) -> dict[str, Any]:
    """Its columns as arrays, of which long ones are frozen as digests."""
    return {
        str(name): column.to_numpy() if column.dtype.kind in "iufb" else [*map(str, column)]
        for name, column in table.items()
    }


def _row(name: str, device: str, spec: str) -> Any:
    trace, where = api._case(name, device)
    blocks = TraceBlocks.of(trace.name, trace)
    row, details = experiment.run(trace, spec, where, Effort(2), trace_blocks=blocks)
    tables = {key: columns(table) for key, table in details.items() if not table.empty}
    return {"row": facts(row), "details": tables, "trace": _tables(blocks)}


def _tables(blocks: TraceBlocks) -> Any:
    return {key: columns(table) for key, table in blocks.details().items() if not table.empty}


def _runner(name: str, device: str, spec: str) -> Any:
    trace, where = api._case(name, device)
    run = Runner(trace, where)
    return {
        "boundary": run.boundary(spec),
        "rough": run.rough_capacity(spec),
        "cards": run.cards(spec),
        "completes": [run.completes(spec, run.capacity >> n) for n in range(4)],
        "settings": recorded_settings.settings_of(trace),
        "version": recorded_settings.version_of(trace),
        "settings of": [
            [
                recorded_settings.in_force(one, trace),
                recorded_settings.takes_over(one, trace, where),
                facts(recorded_settings.told(name, trace, [one], where)),
                facts(_conf(one)),
            ]
            for one in (spec, *_SETTINGS)
        ],
        "orders": [facts(other.counted(spec)) for other in run.other_orders(2, 1)],
    }


def _conf(spec: str) -> str:
    try:
        return recorded_settings.conf(spec)
    except SpecError as error:
        return str(error)


def _search(seed: int) -> Any:
    """Capacities that are tried and found where smaller or larger ones may also be enough."""
    random, tried = Random(seed), list[int]()
    load = random.randrange(1, 90 * STEP)
    least = load + random.choice([0, 1, random.randrange(200 * STEP)])
    odd = {random.randrange(load // STEP, 3 * least // STEP + 2) for _ in range(seed % 4)}

    def enough(capacity: int) -> bool:
        tried.append(capacity)
        return (capacity >= least) ^ (capacity // STEP in odd) and (seed % 9 > 0)

    given: Any = {"max_load": load, "peak_reserved": random.choice([load, least, 2 * least, 0])}
    rival = random.choice([None, random.randrange(1, 3 * least)])
    also = [random.randrange(1, 2 * least) for _ in range(seed % 3)]
    events = random.choice([0, LONG, LONG + 1])
    more: Any = {"also": also, "events": events, "above": seed % 5 > 0}
    found = [rough_capacity(enough, **given, rival=rival), boundary(enough, **given, **more)]
    return [*found, tried]


def test_searches(gold: Gold) -> None:
    gold("replay_searches", {str(seed): _search(seed) for seed in range(150)})


_OUTSIDE: Sequence[Any] = (
    {"a": 1 << 20, "b": 2 << 20},
    {"a": 5 << 20, "b": 0, "c": -7, "d": True, "e": 1 << 62, "f": 9.5},
    [],
    None,
    {"a": 1},
)


def test_what_libraries_hold(gold: Gold) -> None:
    found = {}
    for n, outside in enumerate(_OUTSIDE):
        trace = training(1, provenance=Provenance(extra={"outside": outside}))
        for device in ("sim:1GiB", "sim:6MiB", "sim:1GiB,context=3MiB", "null:l4", "cuda"):
            found[f"{n} {device}"] = [runner.outside_of(trace), outcome(beside, device, trace)]
        found[f"{n} fits"] = [runner.LargeRunner(trace, "sim:1GiB").outside]
    gold("replay_outside", found)


_CASES = [(*case, _SPECS[n % len(_SPECS)]) for n, case in enumerate(CASES)]
_GROUPS = [
    (f"{name}_{n}", answer, cases)
    for name, answer in (("row", _row), ("runner", _runner))
    for n, cases in enumerate(chunks(_CASES, 6))
]


@pytest.mark.parametrize(("group", "answer", "cases"), _GROUPS, ids=[one[0] for one in _GROUPS])
def test_replays(
    group: str, answer: Any, cases: Sequence[tuple[str, ...]], gold: Gold, in_inputs: Path
) -> None:
    gold(f"replay_{group}", {" ".join(case): outcome(answer, *case) for case in cases})
