# SPDX-License-Identifier: Apache-2.0
"""Modules and kinds of tensors in a snapshot: by the stack of an alloc, and by address.

`workloads/module_hook.py` writes both while `allocbench record` records a program.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.trace import MARK, MAX_SIZE, Trace, spans

TENSORS = "allocbench_tensors"
"""The key of a snapshot: [(when in ns, [(address, path of the module, kind), ...]), ...], with None
in place of a list that equals the one before it."""
BACKWARD = "backward pass"
"""The kind of an alloc of which only that is known."""
BETWEEN = "\0"
Told: TypeAlias = tuple[str, str]
"""The path of a module, and a kind."""
Tensors: TypeAlias = list[tuple[int, dict[str, Told]]]
"""When in ns, and tensors by address, which is a text: nobody can choose its hash."""


def joined(label: str, module: str, kind: str) -> str:
    """The label of an alloc with its module and its kind, for `with_modules`."""
    return BETWEEN.join((label, module, kind)) if module or kind else label


def changed(text: str, change: Callable[[str], str]) -> str:
    """A `joined` label with the label itself changed, and the same module and kind."""
    label, between, others = text.partition(BETWEEN)
    return change(label) + between + others


def with_modules(
    trace: Trace, address: NDArray[np.uint64], begun: int | None, stored: Any
) -> Trace:
    """A trace whose labels are `joined`, with labels, modules and kinds apart.

    address: of each alloc. begun: the time of the trace's first event in ns, None if it has no
    times. stored: what the snapshot has at `TENSORS`, of any type.
    """
    tensors = _read(stored)
    if trace.label is None or not (tensors or any(BETWEEN in label for label in trace.labels)):
        return trace
    numbers: dict[str, int] = {}

    def number(texts: Iterable[str]) -> NDArray[np.uint32]:
        return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.uint32)

    parts = [(*label.split(BETWEEN), "", "")[:3] for label in trace.labels]
    label_of, module_of, kind_of = map(number, zip(*parts, strict=True))
    module, kind = module_of[trace.label], kind_of[trace.label]
    for allocs, names in _owned(trace, address, begun, tensors):
        module[allocs], kind[allocs] = number(names)
    block = trace.block.copy()
    marks = trace.op == MARK
    block[marks] = label_of[block[marks]]
    return replace(
        trace,
        labels=tuple(numbers),
        label=label_of[trace.label],
        block=block,
        module=module,
        kind=kind,
    )


def _owned(
    trace: Trace, address: NDArray[np.uint64], begun: int | None, tensors: Tensors
) -> Iterable[tuple[NDArray[np.intp], Told]]:
    """The events of the allocs of each module's tensors, with the module and the kind."""
    if trace.time_ns is None or begun is None:
        return
    allocs, ends = spans(trace.op, trace.block)
    order = np.lexsort((allocs, address))  # blocks at one address live one after the other
    places, begins, last = address[order], allocs[order], ends[order]
    in_order = sorted(tensors, key=itemgetter(0))
    for _, run in groupby(in_order, key=lambda told: id(told[1])):
        times, (by_address, *_) = zip(*run, strict=True)
        since = np.maximum(0, np.array(times) - begun)
        events = np.searchsorted(trace.time_ns, since, side="right").tolist()
        names = [*by_address.values()]
        wanted = np.array([*map(int, by_address)], np.uint64)
        ranges = zip(
            np.searchsorted(places, wanted).tolist(),
            np.searchsorted(places, wanted, side="right").tolist(),
            strict=True,
        )
        found = []  # the first event of the run at which a block was alive, block, names
        for number, (low, high) in enumerate(ranges):
            earlier = int(np.searchsorted(begins[low:high], events[0]))
            for block in range(low + max(0, earlier - 1), high):
                if begins[block] >= events[-1]:
                    break
                event = events[bisect_right(events, begins[block])]
                if event <= last[block]:
                    found.append((event, order[block], number))
        for _, told in groupby(sorted(found), key=itemgetter(0)):
            blocks = defaultdict[Told, list[int]](list)
            for _, block, number in told:
                blocks[names[number]].append(block)
            for owner, numbers in blocks.items():
                yield allocs[numbers], owner


def _read(stored: Any) -> Tensors:
    """The tensors stored in a snapshot; empty if they do not have the expected form."""
    lists: Tensors = []
    known = set[int]()  # a list that is stored once but used many times could be very long in all
    try:
        for when, tensors in stored or ():
            if not abs(when) <= MAX_SIZE:
                raise ValueError
            if tensors is None:
                lists.append((int(when), lists[-1][1]))
                continue
            by_address = dict(_one(*tensor) for tensor in tensors)
            if by_address and id(tensors) in known:
                raise ValueError
            known.add(id(tensors))
            lists.append((int(when), by_address))
    except (TypeError, ValueError, OverflowError, IndexError):
        return []
    return lists


def _one(address: int, path: str, kind: str) -> tuple[str, Told]:
    if type(address) is not int or not 0 <= address <= MAX_SIZE:
        raise ValueError
    if type(path) is not str or type(kind) is not str:
        raise ValueError
    return str(address), (path, kind)
