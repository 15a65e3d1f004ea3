# SPDX-License-Identifier: Apache-2.0
"""A trace with other names for its labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from allocbench.workloads.trace import MARK, Trace


def relabelled(trace: Trace, names: Mapping[str, str]) -> Trace:
    """The same trace with labels renamed, equal names merged, and unused labels left out.

    names: old name -> new name; other labels keep theirs. The trace must be valid.
    """
    is_mark = trace.op == MARK
    used = np.zeros(len(trace.labels), np.bool_)
    used[trace.block[is_mark]] = True
    if trace.label is not None:
        used[trace.label] = True
    places, new = dict[str, int](), np.zeros(len(trace.labels), np.uint32)
    for old in np.flatnonzero(used).tolist():
        name = names.get(trace.labels[old], trace.labels[old])
        new[old] = places.setdefault(name, len(places))
    block = trace.block.copy()
    block[is_mark] = new[block[is_mark]]
    label = None if trace.label is None else new[trace.label]
    return replace(trace, block=block, label=label, labels=tuple(places))
