# SPDX-License-Identifier: Apache-2.0
"""Traces of format version 1, in which a private pool was a stream of its own.

Their provenance describes each stream, and a trim on the stream of a pool released the pool.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from allocbench.workloads.trace import TRIM, PrivatePool, Provenance, Trace
from allocbench.workloads.vocabulary import POOL_RELEASE


def has_streams_of_pools(provenance: Provenance) -> bool:
    """Whether a trace without a column of pools has private pools."""
    return any("pool" in stream for stream in _meant(provenance))


def _meant(provenance: Provenance) -> list[dict[str, Any]]:
    """What each stream was."""
    stored = provenance.extra.get("streams")
    streams = stored if isinstance(stored, list) else []
    return [stream if isinstance(stream, dict) else {} for stream in streams]


def with_pools(trace: Trace) -> Trace:
    """The same trace with a pool for each event; unchanged if no stream was a private pool."""
    if trace.pool is not None or not has_streams_of_pools(trace.provenance):
        return trace
    meant = _meant(trace.provenance)
    streams: dict[Any, int] = {0: 0}
    names: dict[str, int] = {"": 0}
    stream_of = np.arange(1 << 16, dtype=np.uint16)
    pool_of = np.zeros(1 << 16, np.uint16)
    for number, stream in enumerate(meant[: 1 << 16]):
        stream_of[number] = streams.setdefault(stream.get("stream", number), len(streams))
        name = ".".join(map(str, stream["pool"])) if isinstance(stream.get("pool"), list) else ""
        pool_of[number] = names.setdefault(name, len(names))
    pool = pool_of[trace.stream]
    extra = {name: value for name, value in trace.provenance.extra.items() if name != "streams"}
    layout = trace.layout
    if layout is not None:
        layout = replace(layout, stream=stream_of[layout.stream], pool=pool_of[layout.stream])
    converted = replace(
        trace,
        stream=stream_of[trace.stream],
        pool=pool,
        pools=tuple(PrivatePool(name) for name in list(names)[1:]),
        layout=layout,
        provenance=replace(trace.provenance, extra=extra),
    )
    releases = np.flatnonzero((trace.op == TRIM) & (pool > 0))
    columns: dict[str, Any] = {
        name: np.insert(column, releases, column[releases])
        for name, column in converted.columns().items()
    }
    columns["op"][releases + np.arange(len(releases))] = POOL_RELEASE
    return replace(converted, **columns)
