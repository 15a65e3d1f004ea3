# SPDX-License-Identifier: Apache-2.0
"""The events of a memory snapshot, read into columns while the pickle is read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.labels import is_backward, label_of, module_of
from allocbench.workloads.importers.module_names import BACKWARD, joined
from allocbench.workloads.importers.repeated import Packer, References
from allocbench.workloads.trace import TraceError


class _Event(int):
    """The number of an event in the columns."""

    __slots__ = ()


class Columns:
    """Events in a few bytes each instead of a dict.

    codes: numbers of the actions; pools: numbers of the ids of private pools, -1 for events without
    one.
    """

    def __init__(self) -> None:
        self.action, self.label = array("B"), array("I")
        self.address, self.size, self.stream, self.time = (array("q") for _ in range(4))
        self.pool = array("i")
        self.codes: dict[str, int] = {}
        self.pools: dict[tuple[int, ...], int] = {(0, 0): 0}
        self.labels = {"": 0}
        self._known: dict[int, int] = {}  # by id of frames: label

    def packer_for(self, keys: tuple[Any, ...]) -> Packer | None:
        """A packer for dicts that are events, otherwise None."""
        if "action" not in keys or "size" not in keys:
            return None
        places = {key: place for place, key in enumerate(keys)}
        wanted = ("action", "addr", "size", "stream", "time_us", "frames", "pool_id")
        places_wanted = [places.get(key, -1) for key in wanted]
        return self._packer(places_wanted), places_wanted

    def rows(self, events: Sequence[Any]) -> NDArray[np.int64]:
        """The numbers of a list of events, some of which may still be dicts."""
        column = np.empty(len(events), np.int64)
        for n, event in enumerate(events):
            if type(event) is dict and (packer := self.packer_for(tuple(event))):
                event = packer[0](list(event.values()))
            if type(event) is not _Event:
                raise TraceError(f"event {n} is not valid: it has no action and no size")
            column[n] = event
        return column

    def label_number(self, frames: Any) -> int:
        """The label of a list of frames."""
        if type(frames) is not References:  # another one may have the same id later
            return self._number(frames)
        if id(frames) not in self._known:
            self._known[id(frames)] = self._number(frames)
        return self._known[id(frames)]

    def _number(self, frames: Any) -> int:
        text = ""
        if isinstance(frames, list | References):
            usable = [frame for frame in frames if type(frame) is dict]
            passed = BACKWARD if is_backward(usable) else ""
            text = joined(label_of(usable), module_of(usable), passed)
        return self.labels.setdefault(text, len(self.labels))

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
                pool_id = tuple(values[pool]) if pool >= 0 else None
                self.pool.append(self.pools.setdefault(pool_id, len(self.pools)) if pool_id else -1)
                named = name == "alloc" and frames >= 0
                self.label.append(self.label_number(values[frames]) if named else 0)
            except (TypeError, OverflowError) as error:
                raise TraceError(
                    f"event {number} in the file is not valid: {_shown(values)}"
                ) from error
            return _Event(number)

        return pack


def _shown(values: Sequence[Any]) -> str:
    text = ", ".join(repr(value) for value in values if isinstance(value, int | float | str))
    return text if len(text) <= 80 else text[:77] + "..."
