# SPDX-License-Identifier: Apache-2.0
"""A CSV of lifetimes, as google/minimalloc has them, as a trace.

Lifetimes are half-open: at one instant, blocks that end are freed before blocks that begin are
allocated, both in the order of the file. The ids become labels. Instants have no unit, so there are
no times.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np

from allocbench.workloads.block_lifetimes import Lifetimes, parse_lifetimes
from allocbench.workloads.trace import ALLOC, FREE, Provenance, Trace


def read(file: BinaryIO, path: Path) -> Trace:
    """Read an open CSV of lifetimes as the allocs and frees of its blocks.

    Raises TraceError naming the line that is wrong.
    """
    return trace_of(
        parse_lifetimes(file), Provenance(name=path.stem, kind="imported", source=path.name)
    )


def trace_of(blocks: Lifetimes, provenance: Provenance) -> Trace:
    """The allocs and frees of n blocks in order of time: 2n events, block k being row k."""
    n = len(blocks)
    time = np.concatenate([blocks.last, blocks.first])
    op = np.repeat([FREE, ALLOC], n).astype(np.uint8)
    order = np.argsort(time, kind="stable")  # a stable sort keeps frees first at one instant
    row = np.tile(np.arange(n, dtype=np.uint32), 2)
    size = np.concatenate([np.zeros(n, np.uint64), blocks.size])
    return Trace(
        op=op[order],
        block=row[order],
        size=size[order],
        stream=np.zeros(2 * n, np.uint16),
        labels=tuple(blocks.ids),
        label=row[order],
        provenance=provenance,
    )
