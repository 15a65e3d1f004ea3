# SPDX-License-Identifier: Apache-2.0
"""A trace with other names for its labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from allocbench.workloads.trace import MARK, NAMED, Trace


def relabeled(trace: Trace, names: Mapping[str, str]) -> Trace:
    """The same trace with labels renamed, equal names merged, and unused labels left out.

    names: old name -> new name; other labels keep theirs. The trace must be valid.
    """
    is_mark = trace.op == MARK
    columns = {name: getattr(trace, name) for name in NAMED}
    used = np.zeros(len(trace.labels), np.bool_)
    for column in (trace.block[is_mark], *columns.values()):
        if column is not None:
            used[column] = True
    places, new = dict[str, int](), np.zeros(len(trace.labels), np.uint32)
    for old in np.flatnonzero(used).tolist():
        name = names.get(trace.labels[old], trace.labels[old])
        new[old] = places.setdefault(name, len(places))
    block = trace.block.copy()
    block[is_mark] = new[block[is_mark]]
    indices: dict[str, Any] = {
        name: None if column is None else new[column] for name, column in columns.items()
    }
    changed: dict[str, Any] = {"block": block, "labels": tuple(places), **indices}
    return replace(trace, **changed)
