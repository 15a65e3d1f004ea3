# SPDX-License-Identifier: Apache-2.0
"""Edits of the optimizer: its temporaries, its state, and the gradients that it reads."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from allocbench.questions.edits.edit import Edit
from allocbench.questions.training_blocks import BYTES, Key, TrainingBlocks
from allocbench.workloads.block_origins import GRADIENTS, STATE, UPDATE
from allocbench.workloads.block_table import BlockTable
from allocbench.workloads.edits_hook import EIGHT_BIT_BLOCK, EIGHT_BIT_FROM

_ADAM = {"Adam", "AdamW"}
_FUSED = {"Adam", "AdamW", "SGD", "Adagrad"}  # optimizers of PyTorch that have fused=True
_LEAST_STATE = 64  # bytes: below are the numbers of steps


def update(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Without temporaries of the update, or with those of one parameter at a time."""
    if blocks.own_updates or not blocks.has(UPDATE) or not blocks.optimizers <= _FUSED:
        return
    optimizer = _either(blocks.optimizers or _FUSED)
    yield Edit(
        "fused optimizer",
        f"{optimizer}(..., fused=True)",
        "none: it is faster",
        1,
        lambda table: table.only(~blocks.of_kind(table, UPDATE)),
        {"optimizer": {"fused": True, "foreach": False}},
    )
    yield Edit(
        "optimizer without foreach",
        f"{optimizer}(..., foreach=False)",
        "the update takes longer",
        1,
        partial(_one_by_one, blocks),
        {"optimizer": {"fused": False, "foreach": False}},
    )


def _one_by_one(blocks: TrainingBlocks, table: BlockTable) -> BlockTable:
    """Each temporary ends before the next begins; a second one of its size is alive meanwhile."""
    temporary = np.flatnonzero(blocks.of_kind(table, UPDATE))
    at = table.born[temporary]
    return table.ending(temporary, at + 0.75).with_copies(temporary, at + 0.25, at + 0.5)


def state(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Smaller states, or states elsewhere."""
    if not blocks.has(STATE):
        return
    if blocks.optimizers <= _ADAM and not blocks.own_updates:
        eight_bit = _either({f"{name}8bit" for name in blocks.optimizers or _ADAM})
        yield Edit(
            "8-bit optimizer state",
            f"bitsandbytes.optim.{eight_bit}",
            "another library; updates differ slightly",
            2,
            partial(_eight_bit, blocks),
            {"eight_bit": True},
        )
        if factors := _factors(blocks):
            yield Edit(
                "factored optimizer state",
                "torch.optim.Adafactor",
                "no momentum; other learning rates",
                2,
                partial(_factored, blocks, factors),
                {"factored": True},
            )
    yield Edit(
        "optimizer state in host memory",
        "DeepSpeed ZeRO-Offload, or an optimizer of copies of the parameters in host memory",
        "gradients and parameters cross the bus at each step",
        3,
        lambda table: table.only(~blocks.of_kind(table, STATE, UPDATE)),
        {"without_state": True},
    )


def _factors(blocks: TrainingBlocks) -> dict[tuple[str, int], tuple[int, int]]:
    """By module and bytes of a parameter with two or more dimensions: of its rows and columns.

    Empty if the shape of a parameter with a state is not known.
    """
    large = (blocks.kind == STATE) & (blocks.table.size >= _LEAST_STATE)
    if not blocks.shapes_of_keys.keys() >= {*blocks.keys(large)}:
        return {}
    return {
        key: (key[1] // shape[-1], key[1] // shape[-2])
        for key, shape in blocks.shapes_of_keys.items()
        if len(shape) > 1 and key[1]
    }


def _factored(
    blocks: TrainingBlocks, factors: Mapping[Key, tuple[int, int]], table: BlockTable
) -> BlockTable:
    """The second state of a parameter becomes its rows, and the first its columns.

    That of a parameter with one dimension stays, without the first. The update has one temporary
    of the size of a parameter at a time.
    """
    table = table.only(~blocks.of_kind(table, UPDATE))
    index = np.flatnonzero(blocks.of_kind(table, STATE))
    if not len(index):
        return table
    size, seen = table.size.copy(), set[Key]()
    for place, key in zip(index.tolist(), blocks.keys(table.origin[index]), strict=True):
        first = key not in seen
        seen ^= {key}
        size[place] = factors[key][first] if key in factors else 0 if first else size[place]
    ends = blocks.starts[1:] - 1
    largest = np.full(len(ends), index[table.size[index].argmax()])
    factored = replace(table, size=size)
    return factored.with_copies(largest, ends + 0.1, ends + 0.2, table.size[largest])


def _eight_bit(blocks: TrainingBlocks, table: BlockTable) -> BlockTable:
    types = {dtype for shapes in blocks.parameter_shapes.values() for dtype, _ in shapes}
    width = BYTES.get(types.pop(), 4) if len(types) == 1 else 4  # of states, as of parameters
    elements = table.size // width
    quantized = elements + 4 * -(-elements // EIGHT_BIT_BLOCK)
    large = blocks.of_kind(table, STATE) & (elements >= EIGHT_BIT_FROM)
    smaller = replace(table, size=np.where(large, quantized, table.size))
    return smaller.only(~blocks.of_kind(table, UPDATE))


def gradients(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Gradients that live shorter."""
    if not blocks.has(GRADIENTS):
        return
    if _are_kept(blocks):
        yield Edit(
            "no gradients between the steps",
            "zero_grad(set_to_none=True)",
            "none",
            1,
            partial(_freed_after_update, blocks),
            {} if blocks.own_updates else {"set_to_none": True},
        )
    yield Edit(
        "update in the backward pass",
        "an optimizer for each parameter, run by Tensor.register_post_accumulate_grad_hook",
        "no clipping by the norm of all gradients, no accumulation",
        3,
        partial(_updated_in_backward, blocks),
        {} if blocks.own_updates else {"in_backward": True},
        not_with="batch",
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
    again = table.ending(gradient, end + 0.25)
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
    shorter = table.ending(gradient, at + 0.75).with_copies(gradient, at + 0.25, at + 0.5)
    return shorter.only(~blocks.of_kind(shorter, UPDATE))


def _either(names: set[str]) -> str:
    return " or ".join(sorted(names))
