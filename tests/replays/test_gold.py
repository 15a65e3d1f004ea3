# SPDX-License-Identifier: Apache-2.0
"""Rows, details and capacities of replays of small inputs are as they were frozen."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from allocbench import api
from allocbench.replays import experiment, recorded_settings
from allocbench.replays.experiment import Effort
from allocbench.replays.runner import Runner
from allocbench.replays.trace_blocks import TraceBlocks
from tests.answer_inputs import CASES, chunks
from tests.gold import Gold, facts, outcome

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
        "force": recorded_settings.in_force(spec, trace),
        "takes": recorded_settings.takes_over(spec, trace, where),
        "told": facts(recorded_settings.told(name, trace, [spec], where)),
        "orders": [facts(other.counted(spec)) for other in run.other_orders(2, 1)],
    }


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
