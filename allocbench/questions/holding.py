# SPDX-License-Identifier: Apache-2.0
"""What holds memory at an instant of a training run: parameters, gradients, activations, ...

The kinds are those of `workloads.block_origins`.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from allocbench.base import units
from allocbench.base.text import one_line
from allocbench.workloads import Trace
from allocbench.workloads.block_origins import derived_places, names_at, origins, places_of

Row: TypeAlias = dict[str, Any]


def holders(trace: Trace, event: int | None = None) -> pd.DataFrame:
    """What is alive after an event (None: at the peak of the load), largest first.

    Columns: kind (empty if the trace does not say), place (the line and the operator of the
    allocs, see `places_of`), module (the path of the module of the model that they belong to, or
    empty), blocks, bytes (requested).
    """
    if event is None:
        load = trace.load
        event = int(load.argmax()) if len(load) else 0
    found = blocks(trace)
    alive = found[(found["begin"] <= event) & (found["end"] > event)]
    rows = alive[["kind", "place", "module"]].assign(blocks=1, bytes=alive["bytes"])
    summed = rows.groupby(["kind", "place", "module"], as_index=False, sort=True).sum()
    return summed.sort_values("bytes", ascending=False, kind="stable", ignore_index=True)


def blocks(trace: Trace) -> pd.DataFrame:
    """The blocks of a trace, in order of their allocs.

    Columns: begin and end (events; the number of events for a block that is never freed), bytes
    (requested), and kind, place and module as in `holders`.
    """
    found = origins(trace)
    place = places_of(trace, found.source)
    place[found.derived] = derived_places(trace, found, found.derived)
    return pd.DataFrame(
        {
            "begin": found.allocs,
            "end": found.ends,
            "bytes": trace.size[found.allocs].astype(np.int64),
            "kind": found.kind,
            "place": place,
            "module": names_at(trace, trace.module, found.source),
        }
    )


def by_kind(held: pd.DataFrame, most: int = 3) -> list[Row]:
    """The kinds of what `holders` found, largest first.

    Each has kind, bytes, share (of all bytes), blocks, and places: the `most` largest, with the
    bytes of each.
    """
    return _grouped(
        held,
        held["kind"],
        lambda of: {"blocks": int(of["blocks"].sum()), "places": _largest(of, "place", most)},
    )


def by_module(held: pd.DataFrame) -> list[Row]:
    """The modules of what `holders` found, largest first; those that are `alike` are one.

    Each has module, bytes, share (of all bytes), modules (the number of those that the path stands
    for) and kinds, with the bytes of each. Empty if no module is known.
    """
    return _grouped(
        held,
        held["module"].where(held["module"] != "").map(alike, na_action="ignore"),
        lambda of: {"modules": of["module"].nunique(), "kinds": _largest(of, "kind", len(of))},
    )


def _grouped(held: pd.DataFrame, keys: pd.Series, more: Callable[[pd.DataFrame], Row]) -> list[Row]:
    total = max(1, int(held["bytes"].sum()))
    rows = [
        {str(keys.name): key, "bytes": size, "share": size / total, **more(group)}
        for key, group in held.groupby(keys, sort=True)
        for size in [int(group["bytes"].sum())]
    ]
    return sorted(rows, key=lambda row: -row["bytes"])


def alike(module: str) -> str:
    """The path of a module with * in place of numbers, the same for all layers of a model."""
    return ".".join("*" if part.isdecimal() else part for part in module.split("."))


def _largest(held: pd.DataFrame, column: str, most: int) -> list[tuple[str, int]]:
    """The values that are not empty with the most bytes, and the bytes of each."""
    sums = held.groupby(column, sort=True)["bytes"].sum().drop("", errors="ignore")
    ordered = sums.sort_values(ascending=False, kind="stable").head(most)
    return [(str(key), int(size)) for key, size in ordered.items()]


def places_in_words(places: Sequence[tuple[str, int]]) -> str:
    """Places with their bytes: "train.py:7 step 1.50 GiB, train.py:9 step 12.0 MiB"."""
    return ", ".join(f"{one_line(place)} {units.size(size)}" for place, size in places)
