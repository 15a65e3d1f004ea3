# SPDX-License-Identifier: Apache-2.0
"""The steps of a training loop that has neither marks nor one of PyTorch's optimizers.

Its backward passes show them. A pass is a run of allocs that the threads of the autograd engine
make, and it frees what the forward pass saved. The update follows: its lines make no request before
the first backward pass, and it handles tensors of the sizes of gradients.
"""

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.trace import Trace

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def of_passes(
    trace: Trace, allocs: Ints, ends: Ints, backward: Mask, place: NDArray[np.object_]
) -> tuple[Ints, Ints]:
    """The events at which the updates begin and end, one of each per step.

    allocs, ends: of the blocks, as of `spans`. backward: bool (n,), whether a backward pass
    allocates each block. place: object (n,), the line or operator that does. If no update makes
    requests, as one in place does not, each backward pass ends a step. A pass that may not have
    ended ends none.
    """
    following = np.append(allocs[1:], len(trace))  # the event of the next alloc
    first, last = _passes(allocs, ends, backward, following)
    if not len(first):
        return first, last
    begin = 0
    if trace.coverage.begins == "later":  # the first blocks may be of an update
        saved = (ends > allocs[first[0]]) & (ends < following[last[0]])
        begin = int(np.flatnonzero(saved)[0])
    forward = {*place[begin : first[0]][~backward[begin : first[0]]]}
    size = trace.size[allocs]
    run = np.clip(np.searchsorted(first, np.arange(len(allocs)), side="right") - 1, 0, None)
    of_gradient = np.isin(size, np.unique(size[backward & (ends > allocs[last][run])]))
    updates = []
    for after, stop in zip(last + 1, np.append(first[1:], len(allocs)), strict=True):
        until = following[stop - 1]
        end = after
        while end < stop and place[end] not in forward:
            if ends[end] > until and not of_gradient[end]:  # the input of the next step
                break
            end += 1
        updates.append(end if of_gradient[after:end].any() else after)
    end = np.array(updates, np.int64)
    has_update = end > last + 1
    if has_update.any():
        chosen = has_update
    else:
        chosen = np.ones(len(last), np.bool_)
        chosen[-1] = trace.coverage.ends == "exit" or last[-1] + 1 < len(allocs)
    begins = np.where(has_update, following[last] - 1, allocs[last])
    stops = following[end - 1] - 1
    if end[-1] == len(allocs):  # what the program frees at its end is not of the update
        stops[-1] = allocs[-1]
        own = {*ends[last[-1] + 1 :].tolist(), *ends[backward].tolist()}
        while has_update[-1] and int(stops[-1]) + 1 in own - {len(trace)}:
            stops[-1] += 1
    return begins[chosen], stops[chosen]


def _passes(allocs: Ints, ends: Ints, backward: Mask, following: Ints) -> tuple[Ints, Ints]:
    """The numbers of the first and the last block of each backward pass."""
    change = np.diff(backward.astype(np.int8), prepend=np.int8(0), append=np.int8(0))
    first, last = np.flatnonzero(change == 1), np.flatnonzero(change == -1) - 1
    if not len(first):
        return first, last
    others = np.flatnonzero(~backward)
    run = np.searchsorted(allocs[first], ends[others], side="right") - 1
    frees = (run >= 0) & (ends[others] < following[last][run]) & (others < first[run])
    counted = np.isin(np.arange(len(first)), run[frees])
    return first[counted], last[counted]
