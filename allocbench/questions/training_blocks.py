# SPDX-License-Identifier: Apache-2.0
"""The blocks of a recorded training program: what each is, its module, its step and its call."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads import Trace
from allocbench.workloads.block_origins import (
    ACTIVATIONS,
    BACKWARD,
    FORWARD,
    GRADIENTS,
    LASTING,
    PARAMETERS,
    PYTORCH_UPDATE,
    STATE,
    UPDATE,
    WORKSPACES,
    Origins,
    names_at,
    origins,
)
from allocbench.workloads.block_table import BlockTable, Floats, Ints, Mask
from allocbench.workloads.module_hook import OUTPUT_SHAPES, PARAMETER_SHAPES

Names = NDArray[np.object_]
Key = tuple[str, int]
"""The module and the bytes of a block."""
BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Of an element, by the name of its type."""

_STATISTIC = 64
"""Statistics of a normalization, which come after its output, are at least this much smaller."""
_SHAPE = re.compile(r"\[(\d+(?:, \d+)*)\]")
_OF_PASSES = (ACTIVATIONS, FORWARD, BACKWARD)


@dataclass(frozen=True)
class ModuleCall:
    """A call of a module in a forward pass, with its backward pass. Blocks are numbers.

    module: its path. blocks: what it allocates, in order. saved: those that its backward pass
    needs, in order; the output is one of them only if that pass needs it, too. output: the block
    that the module returns. begin, end: instants of the call. backward, done: those of its backward
    pass.
    """

    module: str
    blocks: Ints
    saved: Ints
    output: int
    begin: float
    end: float
    backward: float
    done: float


class TrainingBlocks:
    """The blocks of a training program, numbered in the order of their allocs.

    table: sizes and lives. source: int64 (b,), the block whose backward pass allocates each one,
    otherwise itself. kind, module: object (b,), as in `block_origins`; "" where unknown.
    step: int64 (b,), the number of the step that allocates each block. starts: float64 (s + 1,),
    the instant at which each step begins: after the update before it; the last one may be
    incomplete. updates: int64 (s,), the events at which the updates of these steps begin.
    optimizers: the names of their classes. own_updates: as in `Origins`.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace, self.table = trace, BlockTable.of(trace)
        found = origins(trace)
        self.allocs, self.freed = found.allocs, found.ends
        self.module = names_at(trace, trace.module, self.allocs)
        self.kind = self._kinds(found)
        self.source = np.searchsorted(self.allocs, found.source)
        self.step = np.searchsorted(found.updates, self.allocs)
        self.starts = np.append(-0.5, found.updates + 0.5)
        self.updates = found.update_begins
        self.own_updates = found.own_updates
        self.optimizers = {
            label.removeprefix(PYTORCH_UPDATE).partition(".")[0]
            for label in trace.labels
            if label.startswith(PYTORCH_UPDATE)
        }

    def _kinds(self, found: Origins) -> Names:
        """As in `block_origins`; what the last pass leaves is of the same kind as before.

        Parameters without gradients, or with sparse ones, are parameters if their shapes are known.
        """
        kind = found.kind.copy()
        keys = [*zip(self.module, self.table.size.tolist(), strict=True)]
        of_passes = {keys[i]: kind[i] for i in np.flatnonzero(np.isin(kind, _OF_PASSES)).tolist()}
        for index in np.flatnonzero(kind == WORKSPACES).tolist():
            kind[index] = of_passes.get(keys[index], WORKSPACES)
        parameters = self.shapes_of_keys
        for index in np.flatnonzero(kind == LASTING).tolist():
            kind[index] = PARAMETERS if keys[index] in parameters else LASTING
        return kind

    def of_kind(self, table: BlockTable, *kinds: str) -> Mask:
        """bool, which blocks of a table of this program are of one of some kinds."""
        return np.isin(self.kind[table.origin], kinds)

    def has(self, *kinds: str) -> bool:
        """Whether there are blocks of each of some kinds."""
        return all((self.kind == kind).any() for kind in kinds)

    def keys(self, which: Mask | Ints) -> list[Key]:
        """The module and the bytes of some blocks."""
        return [*zip(self.module[which], self.table.size[which].tolist(), strict=True)]

    @cached_property
    def is_of_weight(self) -> Mask:
        """bool (b,), whether a block has the size of a parameter of its module, or half of it.

        Such a block of a pass is a cast of a weight or the gradient of one: its size does not
        depend on the batch.
        """
        parameters = self.kind == PARAMETERS
        sizes = self.table.size
        known = {*self.keys(parameters)}
        return np.array(
            [
                (module, size) in known or (module, 2 * size) in known
                for module, size in zip(self.module, sizes.tolist(), strict=True)
            ],
            np.bool_,
        )

    @cached_property
    def passes(self) -> Floats:
        """float64 (s + 1,), the instant before each step first saves something; infinite if none.

        Whatever the model computes before it, such as in an evaluation, has no backward pass.
        """
        begins = np.full(len(self.starts), np.inf)
        saved = self.kind == ACTIVATIONS
        np.minimum.at(begins, self.step[saved], self.allocs[saved] - 0.5)
        return begins

    @property
    def is_of_evaluation(self) -> Mask:
        """bool (b,), temporaries of a step before its passes; those of no module are of a batch."""
        is_early: Mask = (self.kind == FORWARD) & (self.allocs < self.passes[self.step])
        return is_early

    @cached_property
    def parameter_shapes(self) -> dict[str, list[tuple[str, list[int]]]]:
        """The type and the shape of each parameter by module; empty if the recording has none."""
        stored = self.trace.provenance.extra.get(PARAMETER_SHAPES)
        try:
            return {
                str(module): [(str(dtype), [int(n) for n in shape]) for dtype, shape in told]
                for module, told in dict(stored or {}).items()
            }
        except (TypeError, ValueError):  # a file may have any JSON value here
            return {}

    @cached_property
    def shapes_of_keys(self) -> dict[Key, list[int]]:
        """The shapes of parameters, by their keys; of those with one key, that of the last one."""
        return {
            (module, math.prod(shape) * BYTES.get(dtype, 0)): shape
            for module, shapes in self.parameter_shapes.items()
            for dtype, shape in shapes
        }

    @cached_property
    def output_shapes(self) -> dict[str, list[int]]:
        """The shape of the first tensor that each module returned first, by path."""
        stored = self.trace.provenance.extra.get(OUTPUT_SHAPES)
        texts = stored if isinstance(stored, dict) else {}
        found = {path: _SHAPE.match(str(text)) for path, text in texts.items()}
        return {path: [*map(int, m[1].split(", "))] for path, m in found.items() if m}

    @property
    def call_begins(self) -> Floats:
        """The instants before each call of the model.

        The module that allocates first in a call of the model begins each one.
        """
        of_calls = self.module != ""
        of_calls &= ~np.isin(self.kind, (PARAMETERS, GRADIENTS, STATE, LASTING, UPDATE, BACKWARD))
        index = np.flatnonzero(of_calls)
        if not len(index):
            return np.zeros(0)
        first = self.module[index] == self.module[index[0]]
        begins = index[first & ~np.append(False, first[:-1])]
        at: Floats = self.allocs[begins].astype(np.float64) - 0.5
        return at

    @cached_property
    def repeated(self) -> Names:
        """object (b,), the repeated module of each block, such as "blocks.3", or ""."""
        known = {module: _repeated(module) for module in set(self.module)}
        with_parts = {outer for module, outer in known.items() if module != outer}
        names = [known[module] for module in self.module]
        return np.array([name if name in with_parts else "" for name in names], object)

    @cached_property
    def calls(self) -> tuple[ModuleCall, ...]:
        """The calls of repeated modules that save something for a backward pass, in order."""
        calls = [*self._calls()]
        for number, (call, following) in enumerate(pairwise(calls)):
            ended = following.done + 1
            if call.end < following.begin < call.backward and ended < self.freed[call.output]:
                saved = np.append(call.saved, call.output)
                calls[number] = replace(call, saved=saved, backward=min(call.backward, ended))
        return tuple(calls)

    def _calls(self) -> Iterator[ModuleCall]:
        forward = np.flatnonzero(np.isin(self.kind, (ACTIVATIONS, FORWARD)))
        backward_at = self.allocs[np.isin(self.kind, (BACKWARD, GRADIENTS))]
        names = self.repeated[forward]
        run = np.searchsorted(backward_at, self.allocs[forward])
        breaks = np.flatnonzero((names[1:] != names[:-1]) | (run[1:] != run[:-1])) + 1
        for blocks in np.split(forward, breaks):
            if not len(blocks) or not self.repeated[blocks[0]]:
                continue
            last = int(blocks[-1])
            following = self.allocs[last + 1 : last + 2].tolist() or [len(self.trace)]
            end = following[0] - 0.5
            alive = blocks[self.freed[blocks] > end]
            output = self._output(alive)
            saved = alive[(self.kind[alive] == ACTIVATIONS) & (alive != output)]
            if not len(saved):
                continue
            uses = [self.first_uses[block] for block in saved.tolist() if block in self.first_uses]
            backward = min(int(self.freed[saved].min()), *uses, len(self.trace)) - 0.5
            done = float(self.freed[saved].max()) + 0.5
            if backward > end:
                begin = float(self.allocs[blocks[0]]) - 0.5
                module = str(self.repeated[last])
                yield ModuleCall(module, blocks, saved, output, begin, end, backward, done)

    def _output(self, alive: Ints) -> int:
        """Of the blocks that outlive a call, the last one that is no statistic; -1 without any."""
        size = self.table.size[alive]
        large = alive[~is_statistic(size, size)]
        return int(large[-1]) if len(large) else -1

    @cached_property
    def first_uses(self) -> dict[int, int]:
        """The event at which a backward pass first allocates for a block that was saved."""
        uses: dict[int, int] = {}
        for block in np.flatnonzero(self.kind == BACKWARD).tolist():
            uses.setdefault(int(self.source[block]), int(self.allocs[block]))
        return uses


def is_statistic(size: Ints, of: Ints) -> Mask:
    """bool, which sizes are those of statistics beside blocks of other sizes."""
    small: Mask = size * _STATISTIC <= of.max(initial=0)
    return small


def _repeated(module: str) -> str:
    """The outermost numbered module: "blocks.3" of "blocks.3.mlp"; "" without one."""
    parts = module.split(".")
    number = next((index for index, part in enumerate(parts) if part.isdecimal()), None)
    return ".".join(parts[: number + 1]) if number else ""
