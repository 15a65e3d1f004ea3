# SPDX-License-Identifier: Apache-2.0
"""What holds the memory of a workload, for `explain`: tables, and JSON."""

from __future__ import annotations

import pandas as pd
from rich.text import Text

from allocbench.base import units
from allocbench.base.text import one_line
from allocbench.output.terminal import console, plain_table
from allocbench.questions import explain
from allocbench.questions.explain import Explanation
from allocbench.questions.holding import by_kind, by_module, holders, places_in_words
from allocbench.workloads import Trace

_MODULES = 8  # shown
_KINDS = 3  # shown of each module


def held_by(trace: Trace, explanation: Explanation | None) -> pd.DataFrame:
    """What holds memory when a request fails, or at the peak of the load: see `holders`."""
    return holders(trace, None if explanation is None else explanation.failure.event - 1)


def facts(explanation: Explanation | None, held: pd.DataFrame) -> pd.DataFrame:
    """The facts of an explanation, with what holds the memory in the column `held`.

    Without a failure, one row if the trace tells what its blocks are, otherwise none.
    """
    rows = explain.frame(explanation)
    if not (held["kind"].any() or held["module"].any()):
        return rows
    if rows.empty:
        rows = pd.DataFrame([{"event": None, "kind": None, "verdict": "no request fails"}])
    return rows.assign(held=pd.Series([tuple(held.to_dict("records"))]))


def show(held: pd.DataFrame, explanation: Explanation | None) -> None:
    """Print what holds the memory by kind and by module, as far as the trace tells."""
    when = "at the peak of the load" if explanation is None else "when the request failed"
    out, numbers = console(), ("bytes", "share", "blocks")
    if held["kind"].any():
        table = plain_table(
            f"what holds memory {when}", *numbers, "kind", "largest parts", right=numbers
        )
        for row in by_kind(held).to_dict("records"):
            cells = units.size(row["bytes"]), units.percent(row["share"]), f"{row['blocks']:,}"
            places = Text(places_in_words(row["places"]))
            table.add_row(*cells, Text(one_line(row["kind"]) or "other"), places)
        out.print(table)
        out.print()
    modules = by_module(held).to_dict("records")
    if modules:
        count = f"the largest {_MODULES} of {len(modules)}" if len(modules) > _MODULES else "all"
        title = f"by module: {count}"
        table = plain_table(title, *numbers[:2], "module", "largest parts", right=numbers[:2])
        for row in modules[:_MODULES]:
            name = row["module"] + (f" ({row['modules']})" if row["modules"] > 1 else "")
            sizes = units.size(row["bytes"]), units.percent(row["share"])
            kinds = Text(places_in_words(row["kinds"][:_KINDS]))
            table.add_row(*sizes, Text(one_line(name)), kinds)
        out.print(table)
        out.print()
