# SPDX-License-Identifier: Apache-2.0
"""A trace as a CSV of lifetimes, the input format of google/minimalloc.

Instants are events, so no two blocks begin or end at the same one; a block that is never freed
lives until after the last event. The format has no streams, marks, trims, times or labels.
"""

from __future__ import annotations

from typing import BinaryIO

from allocbench.workloads.block_lifetimes import lifetimes, write_lifetimes
from allocbench.workloads.trace import Trace, TraceError


def write_blocks(trace: Trace, sink: BinaryIO) -> None:
    """Write the blocks of a valid trace to a binary file. Raises TraceError if it has none."""
    if not trace.allocs:
        raise TraceError("has no allocs, so there are no lifetimes to write")
    write_lifetimes(lifetimes(trace), sink)
