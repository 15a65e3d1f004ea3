# SPDX-License-Identifier: Apache-2.0
"""Edits of the passes: what the forward pass saves for the backward pass, and for how long."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest

import numpy as np

from allocbench.questions.edits.edit import Edit
from allocbench.questions.holding import alike
from allocbench.questions.training_blocks import ModuleCall, TrainingBlocks
from allocbench.workloads.block_origins import ACTIVATIONS, BACKWARD, FORWARD, GRADIENTS, places_of
from allocbench.workloads.block_table import BlockTable, Floats, Ints, Mask

CHUNKS = 8
"""Parts in which a chunked loss computes the logits."""
_LEAST_SHARE = 0.05  # of the peak of the load: of logits or an evaluation that are worth an edit
_LEAST_TOKENS = 16  # of attention
_HEAD_WIDTHS = range(8, 257, 8)


def activations(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Activations that are computed again, or wait in host memory."""
    modules = {call.module: None for call in blocks.calls}
    if len(modules) > 1:
        paths = ", ".join(dict.fromkeys(map(alike, modules)))
        count = f"of the {len(modules)} modules {paths}"
        yield _checkpoint(blocks, "every second", paths, count, [*modules][::2])
        yield _checkpoint(blocks, "each", paths, count, [*modules])
        if 2 * len(largest := _largest(blocks)) < len(modules):
            names = ", ".join(largest)
            yield _checkpoint(blocks, "only", names, "(they save most)", largest)
    saved = (blocks.kind == ACTIVATIONS) & (blocks.module != "")
    if saved.any() and blocks.calls:
        yield Edit(
            "activations in host memory",
            "with torch.autograd.graph.save_on_cpu(pin_memory=True): around the call of the model",
            "all that the model saves crosses the bus twice in each step",
            2,
            partial(_offloaded, blocks, saved),
            {"offload": True},
            off_by=0.45,
        )


def _checkpoint(
    blocks: TrainingBlocks, which: str, paths: str, count: str, chosen: Sequence[str]
) -> Edit:
    calls = [call for call in blocks.calls if call.module in chosen]
    return Edit(
        f"checkpoint {which} {'' if which == 'only' else 'of '}{paths}",
        f"torch.utils.checkpoint.checkpoint for {which} {count}",
        f"the forward pass of {len(chosen)} modules is computed twice",
        2,
        partial(_checkpointed, blocks, calls),
        {"checkpoint": chosen},
    )


def _largest(blocks: TrainingBlocks) -> list[str]:
    """The fewest repeated modules that save half of what all of them save."""
    saves = dict[str, int]()
    for call in blocks.calls:
        size = int(blocks.table.size[call.saved].sum())
        saves[call.module] = max(saves.get(call.module, 0), size)
    ordered = sorted(saves, key=lambda module: -saves[module])
    sums = np.cumsum([saves[module] for module in ordered])
    return ordered[: int(np.searchsorted(sums, sums[-1] / 2)) + 1]


def _offloaded(blocks: TrainingBlocks, saved: Mask, table: BlockTable) -> BlockTable:
    """What is saved ends soon, and exists again while its backward pass needs it.

    A backward pass also has copies of the weights that it reads.
    """
    uses = blocks.first_uses
    index = np.flatnonzero(saved[table.origin] & ~blocks.is_of_weight[table.origin])
    until = _releases(blocks)[table.origin[index]]
    shorter = until < table.freed[index]
    index, until = index[shorter], until[shorter]
    used = [uses.get(block, len(blocks.trace)) for block in table.origin[index].tolist()]
    again = np.maximum(np.minimum(used, table.freed[index]) - 0.5, until + 0.1)
    copied = table.ending(index, until).with_copies(index, again, table.freed[index])
    gradient = np.flatnonzero(blocks.of_kind(table, GRADIENTS))
    at = table.born[gradient]
    return copied.with_copies(gradient, at - 0.4, at + 0.4)


def _checkpointed(
    blocks: TrainingBlocks, calls: Sequence[ModuleCall], table: BlockTable
) -> BlockTable:
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


def _releases(blocks: TrainingBlocks) -> Floats:
    """When the forward pass needs each block no more: its last use is not known.

    What a numbered module allocates, such as blocks.3, is an input of the one that follows, and
    ends with it; all else is a variable of the module around it.
    """
    forward = np.flatnonzero(np.isin(blocks.kind, (ACTIVATIONS, FORWARD)))
    modules, ends = blocks.module[forward], np.full(len(blocks.table), np.inf)
    begins = np.append(blocks.allocs[forward] - 0.5, np.inf)

    def leaves(path: str) -> Ints:
        """The places of blocks outside of a module, then the end."""
        outside = ~np.char.startswith([f"{one}." for one in modules], f"{path}.")
        return np.append(np.flatnonzero(outside), len(forward))

    known = dict[str, Ints]()
    for place, module in enumerate(modules):
        parent, _, last = module.rpartition(".")
        path = module if last.isdecimal() else parent or module
        if path not in known:
            known[path] = leaves(path)
        left = known[path][np.searchsorted(known[path], place)]
        if last.isdecimal() and left < len(forward):
            depth = module.count(".") + 1
            following = ".".join(modules[left].split(".")[:depth])
            if following not in known:
                known[following] = leaves(following)
            left = known[following][np.searchsorted(known[following], left)]
        ends[forward[place]] = begins[left]
    return ends


def scores(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Attention that keeps no matrix of scores."""
    found = _scores(blocks)
    if found.any():
        made = blocks.allocs[found & (blocks.kind != BACKWARD)]
        lines = dict.fromkeys(places_of(blocks.trace, made))
        yield Edit(
            "memory-efficient attention",
            "torch.nn.functional.scaled_dot_product_attention in place of " + ", ".join(lines),
            "none: it is faster; weights of attention cannot be returned",
            2,
            lambda table: table.only(~found[table.origin]),
        )


def _scores(blocks: TrainingBlocks) -> Mask:
    """Which blocks are matrices of scores, or made from them, and their gradients.

    In a module that returns (batch, tokens, width), scores have the shape (batch, heads, tokens,
    tokens). The heads must divide the width, and no module in it may return as many elements.
    Queries, keys and values stay: both forms save them.
    """
    found = np.zeros(len(blocks.table), np.bool_)
    forward = np.isin(blocks.kind, (ACTIVATIONS, FORWARD))
    sizes, parent = blocks.table.size, np.array([m.rpartition(".")[0] for m in blocks.module])
    source_module = blocks.module[blocks.source]
    for module, shape in blocks.output_shapes.items():
        if len(shape) != 3 or shape[1] < _LEAST_TOKENS:
            continue
        of_batch, width = shape[0] * shape[1] ** 2, shape[2]
        others = {
            math.prod(other)
            for path, other in blocks.output_shapes.items()
            if path.startswith(module) and (len(other) != 4 or other[-1] != other[-2])
        }
        inside = forward & ((blocks.module == module) | (parent == module))
        unlike = ~np.isin(sizes, [width * elements for elements in others for width in (2, 4)])
        present = Counter(sizes[inside & unlike].tolist())
        numbers = [width // of_head for of_head in _HEAD_WIDTHS if width % of_head == 0]
        candidates = [heads * of_batch for heads in numbers if heads * of_batch not in others]
        matrices = {
            elements: present[elements] + present[2 * elements] + present[4 * elements]
            for elements in sorted(candidates, reverse=True)
            if present[4 * elements] + present[2 * elements] > 1
        }
        if matrices:  # with masks of one byte, in 16 bits, in float32
            elements = max(matrices, key=lambda one: matrices[one])
            large = np.isin(sizes, [elements, 2 * elements, 4 * elements]) & unlike
            backward = (blocks.kind == BACKWARD) & (source_module == module)
            found |= large & (inside | backward)
    return found


def batch(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Several passes over parts of the batch before each update, or in an evaluation."""
    peak = blocks.trace.load.argmax()
    alive = blocks.is_of_evaluation & (blocks.allocs <= peak) & (blocks.freed > peak)
    evaluated = int(blocks.table.size[alive & (blocks.module != "")].sum())
    for parts in (2, 4):
        if blocks.has(ACTIVATIONS):
            yield Edit(
                f"batch in {parts} parts",
                f"{parts} passes over 1/{parts} of the batch before each optimizer step",
                f"smaller kernels; batch normalization, if there is any, sees 1/{parts} of the"
                " batch",
                2,
                partial(_accumulated, blocks, parts),
            )
        if evaluated > _LEAST_SHARE * blocks.trace.max_load:
            yield Edit(
                f"evaluation in {parts} parts",
                f"batches of 1/{parts} of the size where the model is called without a backward"
                " pass",
                "smaller kernels in the evaluation",
                1,
                partial(_evaluated, blocks, parts),
                family="evaluation",
            )


def _evaluated(blocks: TrainingBlocks, parts: int, table: BlockTable) -> BlockTable:
    scales = (blocks.is_of_evaluation & ~blocks.is_of_weight)[table.origin]
    return table.divided(scales, parts)


def _accumulated(blocks: TrainingBlocks, parts: int, table: BlockTable) -> BlockTable:
    """The last part of each batch: the gradients of the parts before it are alive all the time.

    Those of the step before must be freed before the first part.
    """
    scales = blocks.of_kind(table, ACTIVATIONS, FORWARD, BACKWARD)
    scales &= ~(blocks.is_of_weight | blocks.is_of_evaluation)[table.origin]
    gradient = np.flatnonzero(blocks.of_kind(table, GRADIENTS))
    at, until = table.born[gradient], table.freed[gradient]
    step = blocks.step[table.origin[gradient]]
    starts = np.append(blocks.starts, [np.inf, np.inf])
    ends_with_step = until < starts[step + 2]
    born, freed = table.born.copy(), table.freed.copy()
    born[gradient] = np.minimum(at, blocks.passes[step])
    freed[gradient] = np.where(ends_with_step, np.minimum(until, starts[step + 1]), until)
    smaller = replace(table.divided(scales, parts), born=born, freed=freed)
    return smaller.with_copies(gradient, at, at + 0.5)


def loss(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Logits that exist in parts."""
    logits = _logits(blocks)
    if len(logits):
        yield Edit(
            "chunked loss",
            f"logits and loss in {CHUNKS} parts: Liger's fused linear cross-entropy, or a loop with"
            " checkpoints",
            "the last layer computes its forward pass twice",
            2,
            lambda table: table.divided(np.isin(table.origin, logits), CHUNKS),
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
