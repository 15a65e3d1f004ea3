# SPDX-License-Identifier: Apache-2.0
"""Events of private pools in a memory snapshot: the annotations that `allocbench record` adds.

PyTorch's own history has the pool of an alloc, but not when a graph was captured into it, when a
MemPool was entered and left, or when a pool was released.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.addresses import PoolUse
from allocbench.workloads.importers.pool_ids import PoolId
from allocbench.workloads.recording_hook import POOL_EVENT, UNKNOWN_POOL
from allocbench.workloads.vocabulary import POOL_EVENTS, POOL_TRAITS, PrivatePool

_EVENT = re.compile(rf"{re.escape(POOL_EVENT)} (\w+) (\d{{1,18}})\.(\d{{1,18}})((?: \w+)*)")
Named = tuple[int, str]
"""When an annotated range begins, in ns, and its name."""


def apart(annotations: Iterable[Named]) -> tuple[list[Named], list[Named]]:
    """The annotations of the program, and those of events of private pools."""
    named, of_pools = list[Named](), list[Named]()
    for annotation in annotations:
        (of_pools if annotation[1].startswith(f"{POOL_EVENT} ") else named).append(annotation)
    return named, of_pools


def pool_uses(
    annotations: Sequence[Named],
    time_ns: NDArray[np.int64],
    number: Callable[[int, PoolId], int],
) -> tuple[list[PoolUse], dict[PoolId, PrivatePool]]:
    """The events of private pools in order, and what is known of the pools.

    time_ns: of the allocs and frees, in order except where the clock was set back. number: of a
    stream and a pool. A capture that never ended, whose pool is unknown, is left out.
    """
    rising = np.maximum.accumulate(time_ns)
    uses: list[PoolUse] = []
    traits: dict[PoolId, PrivatePool] = {}
    events = _events(annotations)
    captured_into = {
        name: pool for _, event, pool, names in events if event == "capture_end" for name in names
    }
    for when, event, pool, names in events:
        if pool == UNKNOWN_POOL:
            captures = [captured_into[name] for name in names if name in captured_into]
            if not captures:
                continue
            pool = captures[0]
        before = int(np.searchsorted(rising, when))
        uses.append(PoolUse(before, POOL_EVENTS[event], number(0, pool)))
        chosen = [name for name in names if name in POOL_TRAITS]
        if chosen or pool not in traits:
            traits[pool] = PrivatePool("", *(trait in chosen for trait in POOL_TRAITS))
    return uses, traits


def _events(annotations: Sequence[Named]) -> list[tuple[int, str, PoolId, list[str]]]:
    """When each event was, what it was, its pool, and its traits or the name of its capture."""
    return [
        (when, match[1], PoolId((int(match[2]), int(match[3]))), match[4].split())
        for when, name in sorted(annotations, key=lambda annotation: annotation[0])
        if (match := _EVENT.fullmatch(name)) and match[1] in POOL_EVENTS
    ]
