# SPDX-License-Identifier: Apache-2.0
"""THE list of edits: changes of a training program that need less memory, and what each one does.

An edit changes the blocks of a recording as the program's change would: some become smaller, live
shorter, or are allocated a second time. It is offered only if the recording shows what it needs:
kinds of blocks, modules, steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from allocbench.questions.holding import alike
from allocbench.questions.training_blocks import Call, TrainingBlocks
from allocbench.workloads.block_origins import (
    ACTIVATIONS,
    BACKWARD,
    FORWARD,
    GRADIENTS,
    PARAMETERS,
    STATE,
    UPDATE,
)
from allocbench.workloads.block_table import BlockTable, Floats, Ints

EIGHT_BIT_FROM = 4096
"""Elements of the smallest parameter whose state bitsandbytes keeps in 8 bits (min_8bit_size)."""
EIGHT_BIT_BLOCK = 256
"""Elements that share one float32 scale in these states."""
CHUNKS = 8
"""Parts in which a chunked loss computes the logits."""
_LEAST_SHARE = 0.05  # of the peak of the load: of logits that are worth a chunked loss
_ERRORS = {"update": 0.05, "state": 0.05, "activations": 0.15}
"""Error of the need by family: little where an edit leaves the order of the other events as it is,
most where fragmentation depends on an order that is modelled."""
_ERROR = 0.1
"""Error of the other families."""
_ADAM = {"Adam", "AdamW"}
_FUSED = {"Adam", "AdamW", "SGD", "Adagrad"}  # optimizers of PyTorch that have fused=True


@dataclass(frozen=True)
class Edit:
    """One change of a program.

    name: for a table. how: what to change. cost: what it costs besides memory. family: what it acts
    on; two edits of one family exclude each other. effort: what it asks of the user: 1 an argument,
    2 some lines, 3 another way to train, 4 more GPUs. apply: the change of the blocks. made: what
    makes the change in a program that runs, as `module_hook` reads it; empty if nothing can.
    """

    name: str
    how: str
    cost: str
    family: str
    effort: int
    apply: Callable[[BlockTable], BlockTable]
    made: Mapping[str, Any] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """How far the need may be off, as a share of it; measured in docs/whatif.md."""
        return _ERRORS.get(self.family, _ERROR)


def edits(blocks: TrainingBlocks, ranks: int) -> list[Edit]:
    """The edits that a program's recording shows enough for. ranks: GPUs of sharded training."""
    found = [edit for family in _FAMILIES for edit in family(blocks)]
    return [*found, *_sharding(blocks, ranks)]


def _update(blocks: TrainingBlocks) -> Iterator[Edit]:
    if blocks.has(UPDATE) and blocks.optimizers <= _FUSED:
        yield Edit(
            "fused optimizer",
            f"{_either(blocks.optimizers or _FUSED)}(..., fused=True)",
            "none: it is faster",
            "update",
            1,
            lambda table: table.only(~blocks.of_kind(table, UPDATE)),
            {"optimizer": {"fused": True, "foreach": False}},
        )


def _state(blocks: TrainingBlocks) -> Iterator[Edit]:
    if not blocks.has(STATE):
        return
    if blocks.optimizers <= _ADAM:
        eight_bit = _either({f"{name}8bit" for name in blocks.optimizers or _ADAM})
        yield Edit(
            "8-bit optimizer state",
            f"bitsandbytes.optim.{eight_bit}",
            "another library; updates differ slightly",
            "state",
            2,
            partial(_eight_bit, blocks),
        )
    yield Edit(
        "optimizer state in host memory",
        "DeepSpeed ZeRO-Offload, or an optimizer of copies of the parameters in host memory",
        "gradients and parameters cross the bus at each step",
        "state",
        3,
        lambda table: table.only(~blocks.of_kind(table, STATE, UPDATE)),
    )


def _eight_bit(blocks: TrainingBlocks, table: BlockTable) -> BlockTable:
    elements = table.size // 4  # of float32
    quantized = elements + 4 * -(-elements // EIGHT_BIT_BLOCK)
    large = blocks.of_kind(table, STATE) & (elements >= EIGHT_BIT_FROM)
    smaller = replace(table, size=np.where(large, quantized, table.size))
    return smaller.only(~blocks.of_kind(table, UPDATE))


def _gradients(blocks: TrainingBlocks) -> Iterator[Edit]:
    if not blocks.has(GRADIENTS):
        return
    if _are_kept(blocks):
        yield Edit(
            "no gradients between the steps",
            "optimizer.zero_grad(set_to_none=True)",
            "none",
            "gradients",
            1,
            partial(_freed_after_update, blocks),
        )
    yield Edit(
        "update in the backward pass",
        "an optimizer for each parameter, run by Tensor.register_post_accumulate_grad_hook",
        "no clipping by the norm of all gradients, no accumulation",
        "gradients",
        3,
        partial(_updated_in_backward, blocks),
    )


def _are_kept(blocks: TrainingBlocks) -> bool:
    """Whether most gradients outlive the step that allocates them, and the next one."""
    gradient = blocks.kind == GRADIENTS
    last = np.searchsorted(blocks.starts, blocks.table.freed[gradient]) - 1
    return len(blocks.starts) > 2 and float(np.mean(last > blocks.step[gradient] + 1)) > 0.5


def _freed_after_update(blocks: TrainingBlocks, table: BlockTable) -> BlockTable:
    """Each gradient ends when the next step begins, and is allocated again in its backward pass."""
    starts = blocks.starts
    gradient = np.flatnonzero(blocks.of_kind(table, GRADIENTS))
    step = blocks.step[table.origin[gradient]]
    begin, end = starts[step], np.append(starts[1:], len(blocks.trace))[step]
    share = (table.born[gradient] - begin) / (end - begin)
    freed = table.freed.copy()
    freed[gradient] = np.minimum(freed[gradient], end + 0.25)
    again = replace(table, freed=freed)
    for later in range(1, len(starts) - 1):
        length = starts[later + 1] - starts[later]
        alive = (step < later) & (table.freed[gradient] > starts[later] + share * length)
        born = starts[later] + share[alive] * length
        ends = np.full(len(born), starts[later + 1] + 0.25)
        again = again.with_copies(gradient[alive], born, ends)
    return again


def _updated_in_backward(blocks: TrainingBlocks, table: BlockTable) -> BlockTable:
    """Each gradient ends at once, after an update of its parameter with one temporary."""
    gradient = np.flatnonzero(blocks.of_kind(table, GRADIENTS))
    at = table.born[gradient]
    freed = table.freed.copy()
    freed[gradient] = np.minimum(freed[gradient], at + 0.75)
    shorter = replace(table, freed=freed).with_copies(gradient, at + 0.25, at + 0.5)
    return shorter.only(~blocks.of_kind(shorter, UPDATE))


def _activations(blocks: TrainingBlocks) -> Iterator[Edit]:
    modules = {call.module: None for call in blocks.calls}
    if len(modules) < 2:
        return
    paths = ", ".join(dict.fromkeys(map(alike, modules)))
    for which, chosen in (("every second", [*modules][::2]), ("each", [*modules])):
        yield Edit(
            f"checkpoint {which} of {paths}",
            f"torch.utils.checkpoint.checkpoint for {which} of the {len(modules)} modules {paths}",
            f"the forward pass of {len(chosen)} modules is computed twice",
            "activations",
            2,
            partial(_checkpointed, blocks, [c for c in blocks.calls if c.module in chosen]),
            {"checkpoint": chosen},
        )


def _checkpointed(blocks: TrainingBlocks, calls: Sequence[Call], table: BlockTable) -> BlockTable:
    """What a call saves ends with it, and is allocated again when its backward pass begins.

    The output stays, as the input of the next call. The second forward pass stops once all that is
    needed exists, as `early_stop` of torch.utils.checkpoint says.
    """
    until, copies = dict[int, float](), list[tuple[int, float, float]]()
    for call in calls:
        speed = 0.4 / (call.end - call.begin)
        kept = {*call.saved.tolist()}
        until.update(dict.fromkeys(kept - {call.output}, call.end))
        for block in call.blocks[call.blocks <= call.saved.max()].tolist():
            born = call.backward + speed * (blocks.allocs[block] - call.begin)
            inside = min(float(blocks.freed[block]), call.end)
            ends = (
                blocks.freed[block]
                if block in kept
                else call.backward + speed * (inside - call.begin)
            )
            copies.append((block, born, float(ends)))
    place = {int(origin): index for index, origin in enumerate(table.origin)}
    known = [(place[block], born, ends) for block, born, ends in copies if block in place]
    freed = table.freed.copy()
    for block, end in until.items():
        if block in place:
            freed[place[block]] = min(freed[place[block]], end)
    if not known:  # another edit has removed them
        return table
    index, born, ends = (np.array(column) for column in zip(*known, strict=True))
    return replace(table, freed=freed).with_copies(index, born, ends)


def _batch(blocks: TrainingBlocks) -> Iterator[Edit]:
    if not blocks.has(ACTIVATIONS):
        return
    for parts in (2, 4):
        yield Edit(
            f"batch in {parts} parts",
            f"{parts} passes over 1/{parts} of the batch before each optimizer step",
            f"smaller kernels; batch normalization sees 1/{parts} of the batch",
            "batch",
            2,
            partial(_accumulated, blocks, parts),
        )


def _accumulated(blocks: TrainingBlocks, parts: int, table: BlockTable) -> BlockTable:
    """The last part of each batch: the gradients of the parts before it are alive all the time."""
    scales = blocks.of_kind(table, ACTIVATIONS, FORWARD, BACKWARD)
    scales &= ~blocks.is_of_weight[table.origin]
    gradient = np.flatnonzero(blocks.of_kind(table, GRADIENTS))
    at = table.born[gradient]
    born = table.born.copy()
    born[gradient] = blocks.starts[blocks.step[table.origin[gradient]]]
    smaller = replace(table, size=np.where(scales, -(-table.size // parts), table.size), born=born)
    return smaller.with_copies(gradient, at, at + 0.5)


def _loss(blocks: TrainingBlocks) -> Iterator[Edit]:
    logits = _logits(blocks)
    if len(logits):
        yield Edit(
            "chunked loss",
            f"logits and loss in {CHUNKS} parts: Liger's fused linear cross-entropy, or a loop with"
            " checkpoints",
            "the last layer computes its forward pass twice",
            "loss",
            2,
            lambda table: replace(
                table,
                size=np.where(np.isin(table.origin, logits), -(-table.size // CHUNKS), table.size),
            ),
        )


def _logits(blocks: TrainingBlocks) -> Ints:
    """The blocks of logits: large ones between the last repeated module and its backward pass."""
    found = []
    least = _LEAST_SHARE * blocks.trace.max_load
    size = blocks.table.size
    of_pass = np.isin(blocks.kind, (ACTIVATIONS, FORWARD, BACKWARD)) & ~blocks.is_of_weight
    for call, following in zip_longest(blocks.calls, blocks.calls[1:]):
        if following is None or following.begin > call.backward:
            inside = (blocks.allocs > call.end) & (blocks.allocs < call.backward)
            found.append(np.flatnonzero(inside & of_pass & (size >= least)))
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _sharding(blocks: TrainingBlocks, ranks: int) -> Iterator[Edit]:
    stages = (
        ((STATE,), "optimizer state", "the traffic of data parallelism"),
        ((STATE, GRADIENTS), "optimizer state and gradients", "the traffic of data parallelism"),
        (
            (STATE, GRADIENTS, PARAMETERS),
            "optimizer state, gradients and parameters",
            "1.5 times the traffic of data parallelism",
        ),
    )
    for stage, (kinds, what, traffic) in enumerate(stages, start=1):
        if blocks.has(*kinds) and (stage < 3 or blocks.calls):
            yield Edit(
                f"ZeRO-{stage} on {ranks} GPUs",
                f"{what} split over {ranks} GPUs: "
                + ("FSDP's fully_shard, or DeepSpeed" if stage == 3 else "DeepSpeed"),
                f"{ranks} GPUs; {traffic}",
                "sharding",
                4,
                partial(_split, blocks, kinds, ranks),
            )


def _split(
    blocks: TrainingBlocks, kinds: Sequence[str], ranks: int, table: BlockTable
) -> BlockTable:
    part = blocks.of_kind(table, *kinds, UPDATE)
    split = replace(table, size=np.where(part, -(-table.size // ranks), table.size))
    if GRADIENTS in kinds:  # a gradient is whole until the ranks have summed it
        gradient = np.flatnonzero(blocks.of_kind(table, GRADIENTS))
        at = table.born[gradient]
        whole = split.with_copies(gradient, at - 0.25, at + 0.25)
        split = replace(whole, size=np.concatenate([split.size, table.size[gradient]]))
    if PARAMETERS in kinds:
        index, born, freed = _gathered(blocks, table)
        whole = split.with_copies(index, born, freed)
        split = replace(whole, size=np.concatenate([split.size, table.size[index]]))
    return split


def _gathered(blocks: TrainingBlocks, table: BlockTable) -> tuple[Ints, Floats, Floats]:
    """When whole parameters exist: those of a repeated module from the call before it to its end.

    All others are whole from the first call of a step to the end of its last backward pass.
    """
    parameter = np.flatnonzero(blocks.of_kind(table, PARAMETERS))
    owner = blocks.repeated[table.origin[parameter]]
    lives = []
    for number, call in enumerate(blocks.calls):
        own = parameter[owner == call.module]
        before = blocks.calls[number - 1] if number else call
        begin = before.begin if before.backward > call.begin else call.begin
        lives += [(index, begin, call.end) for index in own]
        lives += [(index, call.backward - 0.25, call.done) for index in own]
    for step, start in enumerate(blocks.starts):
        end = blocks.starts[step + 1] if step + 1 < len(blocks.starts) else len(blocks.trace)
        inside = [call for call in blocks.calls if start < call.begin < end]
        if inside:
            done = max(call.done for call in inside)
            lives += [(index, inside[0].begin - 0.25, done) for index in parameter[owner == ""]]
    index, born, freed = (np.array(column) for column in zip(*lives, strict=True))
    return index, born, freed


def _either(names: set[str]) -> str:
    return " or ".join(sorted(names))


_FAMILIES = (_update, _state, _gradients, _loss, _batch, _activations)
