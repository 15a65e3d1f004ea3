# SPDX-License-Identifier: Apache-2.0
"""The events of a memory snapshot, read into columns while the pickle is read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads._native import EventRun
from allocbench.workloads.importers.labels import is_backward, label_of, module_of
from allocbench.workloads.importers.module_names import BACKWARD, joined
from allocbench.workloads.importers.pool_ids import DEFAULT_POOL, PoolId, pool_id
from allocbench.workloads.importers.repeated import Meanings, Packer, References, Scanned
from allocbench.workloads.trace import TraceError

_LABELED = ("alloc", "oom")
_WANTED = ("action", "addr", "size", "stream", "time_us", "frames", "pool_id")
_MOST_ACTIONS = 1 << 8


class _Event(int):
    """The number of an event in the columns."""

    __slots__ = ()


@dataclass(frozen=True)
class _Events(Scanned):
    """Events with consecutive numbers in the columns."""

    first: int
    count: int

    def __len__(self) -> int:
        return self.count

    def one(self, index: int) -> _Event:
        return _Event(self.first + index)


class Columns:
    """Events in a few bytes each instead of a dict.

    address: of a request that failed, the free bytes of the device. codes: numbers of the actions;
    pools: numbers of the ids of private pools, -1 for events without
    one.
    """

    def __init__(self) -> None:
        self.action, self.label = array("B"), array("I")
        self.address, self.size, self.stream, self.time = (array("q") for _ in range(4))
        self.pool = array("i")
        self.codes: dict[str, int] = {}
        self.pools: dict[PoolId, int] = {DEFAULT_POOL: 0}
        self.labels = {"": 0}

    def packer_for(self, keys: tuple[Any, ...]) -> Packer | None:
        """A packer for dicts that are events, otherwise None."""
        if "action" not in keys or "size" not in keys:
            return None
        places = {key: place for place, key in enumerate(keys)}
        if "device_free" in places:  # of a request that failed, which has no address
            places["addr"] = places["device_free"]
        wanted = [places.get(key, -1) for key in _WANTED]
        meanings = Meanings(wanted, self._action, self.label_number, self._pool, self._store)
        return Packer(self._packer(wanted), meanings)

    @staticmethod
    def count(events: Sequence[Any]) -> int:
        """The number of events in a list."""
        return sum(event.count if type(event) is _Events else 1 for event in events)

    def rows(self, events: Sequence[Any]) -> NDArray[np.int64]:
        """The numbers of a list of events, some of which may still be dicts."""
        parts: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        single: list[int] = []
        for n, event in enumerate(events):
            if type(event) is _Events:
                parts.append(np.array(single, np.int64))
                parts.append(np.arange(event.first, event.first + event.count))
                single = []
                continue
            if type(event) is dict and (packer := self.packer_for(tuple(event))):
                event = packer.pack(list(event.values()))
            if type(event) is not _Event:
                n = self.count(events[:n])
                raise TraceError(f"event {n} is not valid: it has no action and no size")
            single.append(event)
        return np.concatenate([*parts, np.array(single, np.int64)])

    def label_number(self, frames: Any) -> int:
        """The label of a list of frames."""
        text = ""
        if isinstance(frames, list | References):
            usable = [frame for frame in frames if type(frame) is dict]
            passed = BACKWARD if is_backward(usable) else ""
            text = joined(label_of(usable), module_of(usable), passed)
        return self.labels.setdefault(text, len(self.labels))

    def _action(self, name: Any) -> tuple[int, bool]:
        if type(name) is not str or len(self.codes) == _MOST_ACTIONS:
            raise TypeError
        return self.codes.setdefault(name, len(self.codes)), name in _LABELED

    def _pool(self, numbers: Any) -> int:
        found = pool_id(numbers)
        return self.pools.setdefault(found, len(self.pools)) if found else -1

    def _store(self, run: EventRun) -> _Events:
        events = _Events(len(self.action), len(run))
        for column, values in (
            (self.action, run.action),
            (self.address, run.address),
            (self.size, run.size),
            (self.stream, run.stream),
            (self.time, run.time),
            (self.pool, run.pool),
            (self.label, run.label),
        ):
            column.frombytes(values.view(np.uint8).data)
        return events

    def _packer(self, places: Sequence[int]) -> Callable[[Sequence[Any]], _Event]:
        action, address, size, stream, time, frames, pool = places

        def pack(values: Sequence[Any]) -> _Event:
            number = len(self.action)
            name = values[action]
            try:
                if name not in self.codes and type(name) is not str:
                    raise TypeError
                self.action.append(self.codes.setdefault(name, len(self.codes)))
                self.size.append(values[size])
                self.address.append(values[address] if address >= 0 else 0)
                self.stream.append(values[stream] if stream >= 0 else 0)
                self.time.append(values[time] if time >= 0 else 0)
                self.pool.append(self._pool(values[pool]) if pool >= 0 else -1)
                labeled = name in _LABELED and frames >= 0
                self.label.append(self.label_number(values[frames]) if labeled else 0)
            except (TypeError, OverflowError) as error:
                raise TraceError(
                    f"event {number} in the file is not valid: {_shown(values)}"
                ) from error
            return _Event(number)

        return pack


def _shown(values: Sequence[Any]) -> str:
    text = ", ".join(repr(value) for value in values if isinstance(value, int | float | str))
    return text if len(text) <= 80 else text[:77] + "..."
