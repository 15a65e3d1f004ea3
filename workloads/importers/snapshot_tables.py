# SPDX-License-Identifier: Apache-2.0
"""A memory snapshot as tables: the events of each device, the segments, blocks and annotations."""

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from allocbench.base import units
from allocbench.workloads._native import Pickle, Rows
from allocbench.workloads.formats import SNAPSHOT_INSTEAD
from allocbench.workloads.importers.labels import OPTIMIZER_ENDS, Frame, is_update, names_of
from allocbench.workloads.importers.pickles import as_pickle, load
from allocbench.workloads.pytorch_settings import WITHOUT_POOLS
from allocbench.workloads.snapshot_format import (
    ANNOTATION,
    BLOCK,
    EVENT,
    FORMS,
    FRAME,
    HISTORY,
    SEGMENT,
    WORKSPACES,
    Form,
)
from allocbench.workloads.trace import TraceError
from allocbench.workloads.vocabulary import SeveralDevicesError

_NO_PAIR = 0
_DEFAULT_POOL = "0.0"
_LIVE = ("active_allocated", "active_pending_free", "active_awaiting_free")
_WORKSPACE = (int, int, int, int, str)


class RowTable:
    """Some rows of the dicts of a form. A field is a column: int64, or uint32 for numbers of texts,
    pools, stacks and rows."""

    def __init__(self, pickle: Pickle, form: Form, rows: NDArray[np.uint32] | None = None) -> None:
        self._pickle, self._form = pickle, form
        self._rows: Any = np.empty(0, np.int64) if rows is None else rows
        self._count = len(self._rows)
        if self._count and np.all(np.diff(self._rows.astype(np.int64)) == 1):
            self._rows = slice(int(self._rows[0]), int(self._rows[-1]) + 1)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, key: str) -> NDArray[Any]:
        return self._column(key)

    def _column(self, key: str, *, end: bool = False) -> NDArray[Any]:
        column = self._pickle.column(self._form.name, self._form.place(key), end)
        of_rows: NDArray[Any] = column[self._rows]
        return of_rows

    def names(self, key: str) -> tuple[NDArray[np.int32], list[str]]:
        """A field of texts: int32 (n,), an index into the texts that there are."""
        numbers, index = _distinct(self[key])
        return index, [self._pickle.text(number) for number in numbers.tolist()]

    def ranges(self, key: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A field of rows: the first one, and how many there are."""
        begin = self[key].astype(np.int64)
        return begin, self._column(key, end=True).astype(np.int64) - begin


class Pools:
    """Numbers of private pools; 0 stands for memory outside of them.

    names: PyTorch's ids, such as "0.1", by number.
    """

    def __init__(self, pickle: Pickle) -> None:
        self._pickle = pickle
        self.names = [""]
        self._numbers = {_DEFAULT_POOL: 0}

    def number(self, name: str) -> int:
        """The number of an id."""
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]

    def of(self, pairs: NDArray[np.uint32]) -> NDArray[np.int32]:
        """The numbers in a field of pools, -1 where a pool is not named."""
        found, index = _distinct(pairs)
        numbers = [
            -1 if pair == _NO_PAIR else self.number("{}.{}".format(*self._pickle.pair(pair)))
            for pair in found.tolist()
        ]
        return np.array(numbers, np.int32)[index]


class Stacks:
    """The names of call stacks, by number; the first one is ""."""

    def __init__(self, pickle: Pickle) -> None:
        self._pickle = pickle
        self._numbers = {"": 0}
        self._frames: dict[int, Frame] = {}
        self._columns = [pickle.column(FRAME.name, place) for place in range(len(FRAME.fields))]
        self._texts: dict[int, str] = {}

    @property
    def labels(self) -> tuple[str, ...]:
        """All names so far, by number."""
        return tuple(self._numbers)

    def number(self, name: str) -> int:
        """The number of a label."""
        return self._numbers.setdefault(name, len(self._numbers))

    def names(self, stacks: NDArray[np.uint32]) -> dict[str, NDArray[np.uint32]]:
        """The named columns of a trace for n stacks, label and those that have any name: uint32
        (n,) each."""
        numbers, index = _distinct(stacks)
        found = [names_of([*map(self._frame, self._pickle.stack(n))]) for n in numbers.tolist()]
        columns = {
            name: np.array([self.number(names[name]) for names in found], np.uint32)
            for name in names_of(())
        }
        return {name: of[index] for name, of in columns.items() if of.any() or name == "label"}

    def _frame(self, row: int) -> Frame:
        if row not in self._frames:
            file, line, name = (int(column[row]) for column in self._columns)
            self._frames[row] = Frame(self._text(file), line, self._text(name))
        return self._frames[row]

    def _text(self, number: int) -> str:
        if number not in self._texts:
            self._texts[number] = self._pickle.text(number)
        return self._texts[number]


class Snapshot:
    """A memory snapshot. data: what it holds, by name. segments: of all devices."""

    def __init__(self, file: BinaryIO) -> None:
        """Read an open file; raises TraceError if it is not a memory snapshot."""
        self._pickle = load(as_pickle(file), FORMS)
        data = self._pickle.data
        if isinstance(data, list | Rows):  # what torch.cuda.memory_snapshot() returns
            data = {"segments": data}
        if not isinstance(data, dict) or not {"segments", "device_traces"} & data.keys():
            raise TraceError("is a pickle, but not a memory snapshot: it has no 'segments'")
        self.data: Mapping[str, Any] = data
        self.pools, self.stacks = Pools(self._pickle), Stacks(self._pickle)
        self.segments = self._table(data.get("segments", []), SEGMENT, "its 'segments'")
        traces = data.get("device_traces", [])
        if not isinstance(traces, list):
            raise TraceError("its 'device_traces' is not a list of lists")
        self._events = [
            self._table(events, EVENT, "one of its 'device_traces'") for events in traces
        ]
        annotations = data.get("external_annotations", [])
        self._annotations = self._table(annotations, ANNOTATION, "its 'external_annotations'")
        begins, counts = self.segments.ranges("blocks")
        if len(np.unique(begins[counts > 0])) < np.count_nonzero(counts):
            raise TraceError("two of its segments have the same list of blocks")

    def _table(self, rows: Any, form: Form, what: str) -> RowTable:
        if isinstance(rows, Rows) and rows.table == form.name:
            return RowTable(self._pickle, form, rows.number)
        if rows != []:
            keys = " and ".join(f"'{key}'" for key in form.needed)
            raise TraceError(f"{what} is not a list of dicts with {keys}")
        return RowTable(self._pickle, form)

    def choose(self, device: str | int | None) -> int:
        """The number of the selected device, or of the only one with events or else with live
        blocks.

        Raises TraceError if there is no such device, and SeveralDevicesError if there are several.
        """
        counts = {n: len(events) for n, events in enumerate(self._events)}
        holders = self.segments["device"]
        for holder in np.unique(holders).tolist():
            counts.setdefault(holder, 0)
        listed = ", ".join(f"{n} ({count:,} events)" for n, count in sorted(counts.items()))
        if device is not None:
            chosen = next((n for n in counts if str(n) == str(device)), None)
            if chosen is None:
                raise TraceError(f"has no device '{device}'; its devices are {listed or 'none'}")
            return chosen
        segment, blocks, _ = self._live(slice(None))
        live = {n: int(blocks["size"][holders[segment] == n].sum()) for n in counts}
        busy, what = [n for n in counts if counts[n]], f"the events of several devices: {listed}"
        if not busy:
            busy = [n for n in live if live[n]]
            sizes = ", ".join(f"{n} ({units.size(live[n])} live)" for n in sorted(busy))
            what = f"no events, but live blocks on several devices: {sizes}"
        if not busy:
            raise TraceError(f"holds no events and no live blocks; {SNAPSHOT_INSTEAD}")
        if len(busy) > 1:
            raise SeveralDevicesError(f"holds {what}; choose one: FILE:device=N", sorted(busy))
        return busy[0]

    def events(self, device: int) -> RowTable:
        """The events of a device."""
        if device < len(self._events):
            return self._events[device]
        return RowTable(self._pickle, EVENT)

    def segments_of(self, device: int) -> NDArray[np.intp]:
        """The rows of `segments` that belong to a device."""
        return np.flatnonzero(self.segments["device"] == device)

    def _live(self, chosen: Any) -> tuple[NDArray[np.int64], RowTable, NDArray[np.int64]]:
        """The live blocks of chosen segments: the segment of each, the blocks, their addresses."""
        begins, counts = self.segments.ranges("blocks")
        segments = np.arange(len(self.segments))[chosen]
        begins, counts = begins[chosen], counts[chosen]
        first = np.cumsum(counts) - counts
        segment = np.repeat(segments, counts)
        rows = np.arange(counts.sum()) + np.repeat(begins - first, counts)
        blocks = RowTable(self._pickle, BLOCK, rows.astype(np.uint32))
        if not len(rows):
            return segment, blocks, rows
        size = blocks["size"]
        before = np.cumsum(size) - size
        address = (
            self.segments["address"][segment]
            + before
            - np.repeat(before[first[counts > 0]], counts[counts > 0])
        )
        address = np.where(blocks["address"] < 0, address, blocks["address"])
        state, states = blocks.names("state")
        live = np.isin(state, [n for n, text in enumerate(states) if text in _LIVE])
        alive = RowTable(self._pickle, BLOCK, rows[live].astype(np.uint32))
        return segment[live], alive, address[live]

    def live_blocks(self, device: int) -> dict[str, NDArray[Any]]:
        """The live blocks of a device: segment, address, size, granted and stack of each.

        Older snapshots have sizes and call stacks in a history, whose newest entry is the first.
        """
        segment, blocks, address = self._live(self.segments_of(device))
        granted, stack, requested = blocks["size"], blocks["frames"], blocks["requested_size"]
        begins, counts = blocks.ranges("history")
        older = np.flatnonzero(counts > 0)
        if len(older):
            newest = RowTable(self._pickle, HISTORY, begins[older].astype(np.uint32))
            requested, stack = requested.copy(), stack.copy()
            requested[older] = np.where(requested[older] < 0, newest["real_size"], requested[older])
            stack[older] = np.where(stack[older] == 0, newest["frames"], stack[older])
        size = np.where(requested < 0, granted, requested)
        return {
            "segment": segment, "address": address, "size": size,
            "granted": granted, "stack": stack,
        }  # fmt: skip

    def annotations(self, device: int) -> Iterator[tuple[int, str]]:
        """When each annotated range of a device begins, in ns, and its name.

        The end of a step of an optimizer is a range with the name `OPTIMIZER_ENDS`.
        """
        (stage, stages), (name, names) = map(self._annotations.names, ("stage", "name"))
        of = self._annotations["device"]
        chosen = np.flatnonzero((of == device) | (of < 0))
        times = self._annotations["time_us"][chosen] * 1000
        columns = times.tolist(), stage[chosen].tolist(), name[chosen].tolist()
        for when, stage_number, number in zip(*columns, strict=True):
            if stages[stage_number] == "START":
                yield when, names[number]
            elif stages[stage_number] == "END" and is_update(names[number]):
                yield when, OPTIMIZER_ENDS

    def workspaces(self, device: int) -> list[tuple[int, int, int, str]]:
        """Time in ns, address (0: unknown), bytes and rule of each workspace on a device."""
        stored = self.data.get(WORKSPACES, [])
        if not isinstance(stored, list) or not all(map(_is_workspace, stored)):
            raise TraceError(f"its '{WORKSPACES}' is not a list of workspaces")
        return [use[1:] for use in stored if use[0] == device]

    def rules(self, device: int) -> str:
        """The version of PyTorch whose rules stand for all that write such events of a device.

        It is "" if each event names its pool, or if the snapshot has no events.
        """
        pools = self.events(device)["pool_id"]
        return WITHOUT_POOLS if len(pools) and pools.min() == _NO_PAIR else ""


def _is_workspace(use: Any) -> bool:
    return isinstance(use, tuple) and tuple(map(type, use)) == _WORKSPACE


def _distinct(numbers: NDArray[np.uint32]) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """The distinct ones of n small numbers, ascending, and int32 (n,), the place of each there."""
    seen = np.zeros(int(numbers.max(initial=0)) + 1, np.bool_)
    seen[numbers] = True
    place = np.cumsum(seen, dtype=np.int32) - 1
    return np.flatnonzero(seen), place[numbers]
