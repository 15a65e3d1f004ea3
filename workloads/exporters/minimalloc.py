# SPDX-License-Identifier: Apache-2.0
"""A trace as a CSV of lifetimes, as google/minimalloc reads them.

Instants are events, so no two blocks begin or end at one; a block that is not freed lives until
after the last. The format knows no streams, marks, trims, times or labels.
"""

from __future__ import annotations

from typing import BinaryIO

from allocbench.workloads.block_lifetimes import lifetimes, write_lifetimes
from allocbench.workloads.trace import Trace, TraceError


def write_blocks(trace: Trace, sink: BinaryIO) -> None:
    """Write the blocks of a valid trace to an open binary file; TraceError when it has none."""
    if not trace.allocs:
        raise TraceError("has no allocs, and so no lifetimes")
    write_lifetimes(lifetimes(trace), sink)
