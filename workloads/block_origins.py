# SPDX-License-Identifier: Apache-2.0
"""What each block of a training run holds (parameters, gradients, ...), and where it comes from.

The kinds follow from when a block is allocated and freed, as those of torch.profiler's memory
timeline do (torch/profiler/_memory_profiler.py): a gradient is a block of a parameter's size that a
backward pass leaves behind. If the recorded program stated the kind of a tensor, that kind is used.
The marks and labels of a trace show its passes: PyTorch marks `Optimizer.step`, and bundled
programs their phases; the threads of the autograd engine have no Python frames, so allocs of a
backward pass have no label, while those of a forward pass have a line.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.coverage import UNSEEN
from allocbench.workloads.modelled_workspaces import operator_of
from allocbench.workloads.trace import FREE, MARK, Trace, spans
from allocbench.workloads.unmarked_steps import of_passes

PARAMETERS = "parameters"
GRADIENTS = "gradients"
STATE = "optimizer state"
ACTIVATIONS = "activations and inputs"
FORWARD = "temporaries of the forward pass"
BACKWARD = "temporaries of the backward pass"
UPDATE = "temporaries of the optimizer"
LASTING = "buffers and parameters without gradients"
WORKSPACES = "workspaces and other memory that lasts"
KEPT = "results and graphs that the program keeps"
UNKNOWN = ""
BACKWARD_OF = "backward of "
BACKWARD_PASS, OPTIMIZER_PASS = "backward pass", "optimizer's step"
"""The kinds in a trace of allocs of which it says no more."""
OF_OPTIMIZERS = "Optimizer."
"""How the marks begin that PyTorch sets where a method of an optimizer begins."""
PYTORCH_UPDATE = f"{OF_OPTIMIZERS}step#"
"""How marks begin that PyTorch sets where an update begins; the optimizer's class follows."""
_UPDATE_BEGINS = (PYTORCH_UPDATE, "optimizer")  # the second is of bundled programs

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Names = NDArray[np.object_]


@dataclass(frozen=True)
class _Steps:
    """Events at which the optimizer's updates begin and end, one pair per step.

    marked: whether marks show them. own: whether only backward passes do, because the updates are
    not those of one of PyTorch's optimizers.
    """

    begins: Ints
    ends: Ints
    marked: bool = False
    own: bool = False


@dataclass(frozen=True, eq=False)
class Origins:
    """The n blocks of a trace, one for each alloc, in order.

    allocs, ends: int64 (n,): the event of the alloc; that of the free, or the length of the trace.
    kind: object (n,), one of the kinds of this module, "" where it is not known.
    source: int64 (n,), the event of the alloc that tells where a block comes from: its own, or that
        of the activation whose backward pass allocates it.
    updates: int64 (s,), the events at which the complete steps end, with the optimizer's update.
    update_begins: int64 (s,), the events at which these updates begin.
    own_updates: whether the program's own code makes them, not one of PyTorch's optimizers.
    """

    allocs: Ints
    ends: Ints
    kind: NDArray[np.object_]
    source: Ints
    updates: Ints
    update_begins: Ints
    own_updates: bool

    @property
    def derived(self) -> NDArray[np.bool_]:
        """bool (n,), whether a block comes from the backward pass of `source`."""
        derived: NDArray[np.bool_] = self.source != self.allocs
        return derived


def origins(trace: Trace) -> Origins:
    """The kind and the source of each block of a valid trace."""
    allocs, ends = spans(trace.op, trace.block)
    passes = names_at(trace, trace.kind, allocs)
    steps = _steps(trace, allocs, ends, passes)
    derived = _derived(trace, allocs, ends, passes, steps)
    unsaid = np.isin(passes, (UNKNOWN, BACKWARD_PASS, OPTIMIZER_PASS))
    kind = np.where(unsaid, derived, passes)
    source = _source(trace, kind, allocs, ends)
    return Origins(allocs, ends, kind, source, steps.ends, steps.begins, steps.own)


def places_of(trace: Trace, events: Ints) -> NDArray[np.object_]:
    """Where each of some allocs comes from: the line of the program, then its label, or ""."""
    names = ("", *trace.labels)  # 0 stands for a column that the trace does not have
    numbers = [
        np.zeros(len(events), np.int64) if column is None else column[events].astype(np.int64) + 1
        for column in (trace.line, trace.label)
    ]
    pairs, index = np.unique(numbers[0] * len(names) + numbers[1], return_inverse=True)
    places = [_place(names[pair // len(names)], names[pair % len(names)]) for pair in pairs]
    return np.array([*places, ""], object)[index]


def _place(line: str, label: str) -> str:
    """The label of a recording without operators is a line, too: "train.py:7 step"."""
    if not line or label.startswith(line.partition(" ")[0]):
        return label or line
    return f"{line} {label}".rstrip()


def derived_places(trace: Trace, found: Origins, index: Ints | Mask) -> NDArray[np.object_]:
    """The places of the sources of derived blocks, with the rules of those that are workspaces."""
    places = places_of(trace, found.source[index])
    rules = names_at(trace, trace.label, found.allocs[index])
    each = zip(places, rules, strict=True)
    return np.array([f"{BACKWARD_OF}{place} {rule}".rstrip() for place, rule in each], object)


def _unlabeled(trace: Trace, events: Ints) -> Mask:
    """Whether nothing says where allocs come from: those of the autograd engine's threads."""
    if trace.label is None:
        return np.ones(len(events), np.bool_)
    unlabeled = np.array([not operator_of(name) for name in trace.labels], np.bool_)
    return unlabeled[trace.label[events]]


def names_at(trace: Trace, column: NDArray[np.uint32] | None, events: Ints) -> NDArray[np.object_]:
    """What a column of labels says of events; "" without it."""
    if column is None:
        return np.full(len(events), "", object)
    return np.array(trace.labels, object)[column[events]]


def _source(trace: Trace, kind: NDArray[np.object_], allocs: Ints, ends: Ints) -> Ints:
    """The alloc that gives each block its place: its own, unless a backward pass has no label.

    A node of the autograd graph frees what its operator saved once it has run, so a temporary of a
    backward pass belongs to the activation that is freed next.
    """
    source = allocs.copy()
    saved = np.flatnonzero(kind == ACTIVATIONS)
    saved = saved[np.argsort(ends[saved], kind="stable")]
    temporary = np.flatnonzero((kind == BACKWARD) & _unlabeled(trace, allocs))
    following = np.searchsorted(ends[saved], allocs[temporary])
    has_following = following < len(saved)
    source[temporary[has_following]] = allocs[saved[following[has_following]]]
    return source


def _derived(
    trace: Trace, allocs: Ints, ends: Ints, passes: NDArray[np.object_], steps: _Steps
) -> NDArray[np.object_]:
    """The kind of each block by its life; unknown without optimizer steps.

    passes: what the trace says of the kind of each block.
    """
    kind = np.full(len(allocs), UNKNOWN, dtype=object)
    if trace.label is None or not len(steps.begins):
        return kind
    size = trace.size[allocs].astype(np.int64)
    first_end, last_end = int(steps.ends[0]), int(steps.ends[-1])
    # What the last step of several leaves may be freed after the end of the trace.
    last_begin = int(steps.ends[-2]) if len(steps.ends) > 1 else last_end
    step = np.searchsorted(steps.ends, allocs)  # the number of the step of each alloc
    whole = step < len(steps.ends)
    begin = np.where(whole, steps.begins[np.minimum(step, len(steps.begins) - 1)], len(trace))
    end = np.where(whole, steps.ends[np.minimum(step, len(steps.ends) - 1)], len(trace))

    earlier = allocs < trace.provenance.live_at_start
    update = (allocs > begin) & (allocs <= end) & ~earlier
    backward = _unlabeled(trace, allocs) & ~earlier | (passes == BACKWARD_PASS)
    backward &= ~update
    forward = ~backward & ~update
    lasting = (ends > last_end) & (allocs < last_begin)
    backward_at = allocs[backward & ~earlier]
    first_backward = int(backward_at[0]) if len(backward_at) else first_end

    # What is still alive at the end without a backward pass is saved for one, too.
    next_backward = np.searchsorted(backward_at, allocs)
    meets = np.append(backward_at, len(trace))[next_backward]
    left = backward & (ends > begin)
    place = places_of(trace, allocs)
    made = np.zeros(len(allocs), np.bool_)
    renewed = made
    if not steps.marked:
        survives = update & (ends > end) & np.isin(size, size[left])
        made = _made_anew(steps, step, survives, ends, place)
        replaced = (ends > steps.begins[0]) & (ends <= first_end) & (allocs < first_backward)
        renewed = forward & ~earlier & replaced & np.isin(size, size[made])
    met = forward & (meets <= begin) & (ends >= meets) & ~earlier & ~renewed
    saved = met & ~lasting
    # What a line of the program allocates again in later steps is no parameter, even if it lasts.
    again = met & _again(place, size, step, forward) if trace.line is not None else saved
    first_saved = int(allocs[saved | again].min(initial=first_backward))

    # Not the workspaces of cuBLAS, one for each thread: they come after the first input.
    unseen = names_at(trace, trace.label, allocs) == UNSEEN
    initial = forward & (lasting | renewed) & (allocs < first_saved) & ~unseen
    if earlier.any():
        after, *others = [*_seen_updates(trace, steps), len(trace)]
        # What outlives a second update is only freed when the program ends.
        stays = ends > last_end if len(others) > 1 else ends == len(trace)
        state = earlier & stays & (passes == OPTIMIZER_PASS)
        left |= earlier & ~stays & (ends > after)
        if (left & ~stays).any():  # gradients are freed, so what stays is a workspace
            left &= ~(earlier & stays)
        initial &= ~earlier | (stays & ~state)
    # Where a step frees its gradients, a single block that stays is a thread's workspace.
    stayed = np.flatnonzero(left & lasting & ~earlier)
    if not steps.own and (left & ~lasting & np.isin(size, size[initial])).any():
        found, first, count = np.unique(size[stayed], return_index=True, return_counts=True)
        left[stayed[first[(count == 1) & np.isin(found, size[initial])]]] = False
    sizes = np.intersect1d(size[left], size[initial])

    kind[forward] = FORWARD
    kind[saved] = ACTIVATIONS
    kind[forward & lasting] = WORKSPACES
    left_over = forward & ~earlier & (allocs >= first_saved) & (lasting | (ends == len(trace)))
    labels = trace.label[allocs].astype(np.int64)
    kind[left_over & _repeated(labels, size, step, left_over, forward, len(steps.ends))] = KEPT
    kind[initial] = LASTING
    if not len(sizes):  # no gradient tells what was held before the recording
        kind[initial & earlier] = UNKNOWN
    kind[initial & np.isin(size, sizes)] = PARAMETERS
    kind[backward] = BACKWARD
    kind[backward & lasting] = WORKSPACES
    workspaces = np.unique(size[(kind == WORKSPACES) & backward])
    # That of the program's own thread can come before the first step, but not before the model.
    begun = earlier | (allocs > allocs[kind == PARAMETERS].max(initial=-1))
    kind[(kind == LASTING) & begun & np.isin(size, workspaces)] = WORKSPACES
    if earlier.any():
        kind[earlier & ~stays] = ACTIVATIONS
        left |= earlier & ~stays & (ends < first_backward)  # no pass has freed what it saved yet
        kind[state] = STATE
        of_steps = left & ~earlier
        shown = of_steps if of_steps.any() else left
        _split(kind, size, step, shown, earlier & (places_of(trace, allocs) == ""))
    kind[left & np.isin(size, sizes)] = GRADIENTS
    kind[update] = UPDATE
    kind[update & (ends > end)] = STATE
    if not steps.marked:
        stay = bool(((kind == PARAMETERS) & ~renewed).any())
        if stay:
            kind[(kind == PARAMETERS) & renewed] = STATE
        if made.any() and (not stay or renewed.sum() < (made & (step == 0)).sum()):
            kind[made & (place == place[made][-1])] = PARAMETERS
        _split_own(kind, size, step, left, np.where(passes == PARAMETERS, "", place))
    kind[unseen] = UNKNOWN
    return kind


def _again(place: Names, size: Ints, step: Ints, forward: Mask) -> Mask:
    """bool (n,), whether forward passes of several steps allocate as much at the same place."""
    _, at = np.unique(place, return_inverse=True)
    return _in_several_steps(at, size, step, forward)


def _in_several_steps(label: Ints, size: Ints, step: Ints, chosen: Mask) -> Mask:
    """bool (n,), whether chosen blocks of several steps have the label and the size of a block."""
    _, of_size = np.unique(size, return_inverse=True)
    _, key = np.unique(label * len(size) + of_size, return_inverse=True)
    steps = int(step.max(initial=0)) + 1
    pairs = np.unique(key[chosen] * steps + step[chosen])
    several: Mask = np.bincount(pairs // steps, minlength=len(key)) > 1
    return several[key]


def _made_anew(steps: _Steps, step: Ints, survives: Mask, ends: Ints, place: Names) -> Mask:
    """bool (n,), which blocks that survive an update are replaced by the next one, as in functional
    programs; of the last update, those of the same places.
    """
    next_end = np.append(steps.ends, [-1, -1])[np.minimum(step + 1, len(steps.ends))]
    return survives & np.isin(place, np.unique(place[survives & (ends <= next_end)]))


def _split_own(kind: Names, size: Ints, step: Ints, left: Mask, place: Names) -> None:
    """Call what an optimizer of the program's own makes before the first step a state.

    If there are two or three times as many blocks of a size as a step leaves gradients of it, those
    of the places that come first are the parameters.
    """
    for one in np.unique(size[kind == PARAMETERS]):
        most = int(np.bincount(step[left & (size == one)], minlength=1).max())
        same = np.flatnonzero((kind == PARAMETERS) & (size == one))
        if most and len(same) in (2 * most, 3 * most) and not (kind[size == one] == STATE).any():
            order = {name: n for n, name in enumerate(dict.fromkeys(["", *place[same]]))}
            ranks = np.array([order[name] for name in place[same]])
            kind[same[np.argsort(ranks, kind="stable")][most:]] = STATE


def _split(kind: NDArray[np.object_], size: Ints, step: Ints, left: Mask, earlier: Mask) -> None:
    """Take from the parameters what has their sizes, but no gradients.

    A step leaves a gradient for each parameter. If once or twice as many earlier blocks without a
    place are left over, they are an optimizer's state, as that of SGD or Adam; else anything.
    """
    for one in np.unique(size[(kind == PARAMETERS) & earlier & np.isin(size, size[left])]):
        most = int(np.bincount(step[left & (size == one)]).max())
        same = (kind == PARAMETERS) & (size == one)
        rest = np.flatnonzero(same & earlier)[max(0, most - int((same & ~earlier).sum())) :]
        kind[rest] = STATE if len(rest) in (most, 2 * most) else UNKNOWN


def _repeated(label: Ints, size: Ints, step: Ints, left: Mask, forward: Mask, steps: int) -> Mask:
    """bool (n,), whether a label leaves blocks again and again, as results are and no workspace is.

    A library allocates its workspace once for each thread. Results of one size are left in several
    steps; after the last step, a label leaves more blocks than it allocates in any step.
    """
    several = _in_several_steps(label, size, step, left & (step < steps))
    whole = forward & (step < steps)
    pairs, times = np.unique(label[whole] * steps + step[whole], return_counts=True)
    usual = np.full(label.max(initial=0) + 1, len(label))  # more than any label leaves
    usual[pairs // steps] = 0
    np.maximum.at(usual, pairs // steps, times)
    after = np.bincount(label[left & (step == steps)], minlength=len(usual))
    return np.where(step < steps, several, (after > usual)[label])


def _seen_updates(trace: Trace, steps: _Steps) -> list[int]:
    """When the updates end of which the trace has events: marks may be older than these."""
    requests = np.flatnonzero(trace.op[trace.provenance.live_at_start :] <= FREE)
    first = trace.provenance.live_at_start + int(requests[0]) if len(requests) else len(trace)
    seen: list[int] = steps.ends[steps.ends > first].tolist()
    return seen


def _steps(trace: Trace, allocs: Ints, ends: Ints, passes: NDArray[np.object_]) -> _Steps:
    """The complete steps, by marks; without marks, by the allocs of PyTorch's optimizers; without
    these, by backward passes.
    """
    marked = _marked_steps(trace)
    if len(marked.begins):
        return marked
    if (passes == OPTIMIZER_PASS).any():
        return _steps_of_optimizers(trace, allocs, passes)
    backward = passes == BACKWARD_PASS
    if trace.line is not None:
        backward |= _unlabeled(trace, allocs) & (allocs >= trace.provenance.live_at_start)
    begins, ends = of_passes(trace, allocs, ends, backward, places_of(trace, allocs))
    return _Steps(begins, ends, own=True)


def _steps_of_optimizers(trace: Trace, allocs: Ints, passes: NDArray[np.object_]) -> _Steps:
    """Steps whose updates begin with an optimizer's first alloc after other allocs.

    They end before the first alloc after the optimizer's last one: its temporaries are freed then.
    """
    seen = allocs >= trace.provenance.live_at_start
    at, optimizer = allocs[seen], passes[seen] == OPTIMIZER_PASS
    change = np.diff(optimizer.astype(np.int8), prepend=np.int8(0), append=np.int8(0))
    begins, ends = np.flatnonzero(change == 1), np.flatnonzero(change == -1)
    stops = np.append(at, len(trace))[ends] - 1
    return _Steps(at[begins] - 1, stops)


def _marked_steps(trace: Trace) -> _Steps:
    """The complete steps. If a step has several updates, its end begins with the first."""
    marks = np.flatnonzero(trace.op == MARK)
    names = [trace.labels[int(label)] for label in trace.block[marks]]
    begins, ends = list[int](), list[int]()
    begun: int | None = None
    for mark, name in zip(marks.tolist(), names, strict=True):
        if name.startswith(_UPDATE_BEGINS):
            begun = mark
        elif name == "step" and begun is not None:
            begins.append(begun)
            ends.append(mark)
            begun = None
    return _Steps(np.array(begins, np.int64), np.array(ends, np.int64), marked=True)
