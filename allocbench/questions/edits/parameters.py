# SPDX-License-Identifier: Apache-2.0
"""Edits of the parameters: their type, which of them are trained, and where they are."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from allocbench.questions.edits.edit import Edit
from allocbench.questions.training_blocks import BYTES, Key, TrainingBlocks, is_statistic
from allocbench.workloads.block_origins import (
    ACTIVATIONS,
    BACKWARD,
    FORWARD,
    GRADIENTS,
    PARAMETERS,
    STATE,
    UPDATE,
    WORKSPACES,
)
from allocbench.workloads.block_table import BlockTable, Floats, Ints, Mask
from allocbench.workloads.edits_hook import LORA_RANK

_ALIVE = 3
"""Large blocks of a frozen module that are alive at a time."""


def precision(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Parameters, and all that follows from them, with half of the bytes."""
    types = {dtype for shapes in blocks.parameter_shapes.values() for dtype, _ in shapes}
    if types == {"float32"} and blocks.has(PARAMETERS):
        yield Edit(
            "bfloat16 weights, gradients and states",
            "model.to(torch.bfloat16) before the optimizer is made, and inputs in bfloat16",
            "small updates are rounded away: use stochastic rounding",
            2,
            partial(_halved, blocks),
            {"dtype": "bfloat16"},
        )


def _halved(blocks: TrainingBlocks, table: BlockTable) -> BlockTable:
    """Blocks of float32 become half; casts of weights to 16 bits are gone.

    With autocast, which shows by such casts, only outputs of modules whose shapes are known to have
    4 bytes per element become half; without it, all that is not a mask of one byte per element.
    """
    kind, origin = blocks.kind, table.origin
    lasting = np.isin(kind[origin], (PARAMETERS, GRADIENTS, STATE, UPDATE))
    half = {(module, size // 2) for module, size in blocks.keys(kind == PARAMETERS)}
    of_passes = np.isin(kind, (ACTIVATIONS, FORWARD, BACKWARD))
    keys = blocks.keys(np.arange(len(kind)))
    casts = of_passes & np.array([key in half for key in keys], np.bool_)
    if (casts & (kind != BACKWARD)).any():
        outputs = {(module, 4 * math.prod(shape)) for module, shape in blocks.output_shapes.items()}
        floats = of_passes & np.array([key in outputs for key in keys], np.bool_)
    else:
        floats, casts = of_passes & ~_is_mask(blocks), np.zeros(len(kind), np.bool_)
    return table.divided(lasting | floats[origin], 2).only(~casts[origin])


def _is_mask(blocks: TrainingBlocks) -> Mask:
    """Which blocks have a quarter of the bytes of the block that follows them in their module."""
    size, module = blocks.table.size, blocks.module
    quarter = (4 * size[:-1] == size[1:]) & (module[:-1] == module[1:])
    return np.append(quarter, False)


def trained(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Fewer parameters that are trained."""
    modules = [*dict.fromkeys(call.module for call in blocks.calls)]
    if not blocks.has(GRADIENTS) or len(modules) < 2:
        return
    frozen = modules[: len(modules) // 2]
    first = min(call.begin for call in blocks.calls)
    parameter = blocks.kind == PARAMETERS
    before = {*blocks.module[(blocks.allocs < first) & ~parameter]}
    own = np.isin(blocks.repeated, frozen) | np.isin(blocks.module, [*before])
    owners = sorted({*blocks.module[own & parameter]})
    yield Edit(
        f"freeze {frozen[0]} to {frozen[-1]} and what comes before",
        "requires_grad_(False) for these modules",
        "their parameters are not trained",
        5,
        partial(_frozen, blocks, {*frozen}, own),
        {"freeze": owners},
    )
    if weights := _linear_weights(blocks):
        yield Edit(
            f"LoRA of rank {LORA_RANK}",
            f"peft.LoraConfig(r={LORA_RANK}) for the {len(weights)} linear layers of the repeated"
            " modules",
            "only small matrices are trained",
            5,
            partial(_adapted, blocks, weights),
            {"lora": sorted({module for module, _ in weights})},
        )


def _frozen(blocks: TrainingBlocks, modules: set[str], own: Mask, table: BlockTable) -> BlockTable:
    """Frozen modules have no gradients and states, save nothing, and have no backward pass.

    Of what they saved, some blocks are alive at a time: the inputs and the output of an operator.
    """
    gone = own & np.isin(blocks.kind, (GRADIENTS, STATE, UPDATE))
    freed = table.freed.copy()
    ends = np.append(blocks.starts[1:], np.inf)
    for begin, end, stop in zip(blocks.starts, ends, [*blocks.updates, np.inf], strict=True):
        calls = [call for call in blocks.calls if begin < call.begin < end]
        frozen = [number for number, call in enumerate(calls) if call.module in modules]
        if not frozen:
            continue
        backward = np.isin(blocks.kind, (BACKWARD, GRADIENTS)) & (blocks.allocs < stop)
        gone |= backward & (blocks.allocs > calls[frozen[-1]].backward)
        saved = blocks.of_kind(table, ACTIVATIONS) & (blocks.module[table.origin] != "")
        for number in frozen:
            call, following = calls[number], calls[min(number + 1, len(calls) - 1)]
            since = begin if number == frozen[0] else call.begin
            output = table.origin == call.output
            inside = saved & (table.born > since) & (table.born < call.end) & ~output
            freed[inside] = np.minimum(freed[inside], call.end)
            large = np.flatnonzero(inside & ~is_statistic(table.size, table.size[inside]))
            large = large[np.argsort(table.born[large], kind="stable")]
            freed[large[:-_ALIVE]] = np.minimum(freed[large[:-_ALIVE]], table.born[large[_ALIVE:]])
            if number != frozen[-1]:
                freed[output] = np.minimum(freed[output], following.end)
    return replace(table, freed=freed).only(~gone[table.origin])


def _linear_weights(blocks: TrainingBlocks) -> dict[Key, float]:
    """By module and bytes of a weight with two dimensions in a repeated module: LoRA's share of it.

    Empty unless all such modules return a tensor, so that none of them is only looked up.
    """
    found = dict[Key, float]()
    for module in sorted({*blocks.module[blocks.repeated != ""]}):
        for dtype, shape in blocks.parameter_shapes.get(module, ())[:1]:
            returns = blocks.output_shapes.get(module, [0])
            if len(shape) == 2 and returns[-1] == shape[0]:
                size = math.prod(shape) * BYTES.get(dtype, 0)
                found[module, size] = LORA_RANK * sum(shape) / math.prod(shape)
    return found


def _adapted(blocks: TrainingBlocks, weights: Mapping[Key, float], table: BlockTable) -> BlockTable:
    """Gradients and states only of the small matrices, which each linear layer has besides.

    A layer keeps its output, that of the small matrices, and the product of a scale and that until
    their sum exists; its backward pass begins with a product of that size.
    """
    known = blocks.keys(table.origin)
    share = np.array([weights.get(key, 0.0) for key in known])
    trained = blocks.of_kind(table, GRADIENTS, STATE, UPDATE)
    size = np.where(trained, np.ceil(table.size * share).astype(np.int64), table.size)
    weight = np.flatnonzero(blocks.of_kind(table, PARAMETERS) & (share > 0))
    layers = np.isin(blocks.module[table.origin], [module for module, _ in weights])
    output = np.flatnonzero(layers & blocks.of_kind(table, ACTIVATIONS, FORWARD))
    output = output[~blocks.is_of_weight[table.origin[output]]]
    small = np.ceil(table.size[weight] * share[weight]).astype(np.int64)
    added = replace(table, size=size)
    added = added.with_copies(weight, table.born[weight] + 0.1, table.freed[weight], small)
    for until in (0.4, 0.5):
        added = added.with_copies(output, table.born[output] - 0.25, table.born[output] + until)
    return added


def buckets(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Gradients that DistributedDataParallel keeps twice."""
    if blocks.has(GRADIENTS) and _has_buckets(blocks):
        yield Edit(
            "gradients in DDP's buckets",
            "DistributedDataParallel(..., gradient_as_bucket_view=True)",
            "none; Tensor.detach_ cannot be called on gradients",
            1,
            lambda table: table.only(~blocks.of_kind(table, GRADIENTS)),
            {"buckets": True},
            family="gradients",
        )


def _has_buckets(blocks: TrainingBlocks) -> bool:
    """Whether lasting blocks that follow each other have the size of all trained parameters."""
    lasting = np.flatnonzero(blocks.kind == WORKSPACES)
    sums = np.append(0, np.cumsum(blocks.table.size[lasting]))
    with_gradients = {*blocks.keys(blocks.kind == GRADIENTS)}
    parameters = blocks.keys(blocks.kind == PARAMETERS)
    trained = sum(key[1] for key in parameters if key in with_gradients)
    return bool(trained) and bool(np.isin(sums + trained, sums).any())


def sharding(blocks: TrainingBlocks, ranks: int) -> Iterator[Edit]:
    """What GPUs that train together need not all hold."""
    as_before, more = "the traffic of data parallelism", "1.5 times the traffic of data parallelism"
    stages = (
        ((STATE,), "optimizer state", "ZeroRedundancyOptimizer", as_before),
        (
            (STATE, GRADIENTS),
            "optimizer state and gradients",
            "FSDP's fully_shard(..., reshard_after_forward=False)",
            as_before,
        ),
        (
            (STATE, GRADIENTS, PARAMETERS),
            "optimizer state, gradients and parameters",
            "FSDP's fully_shard",
            more,
        ),
    )
    for stage, (kinds, what, means, traffic) in enumerate(stages, start=1):
        if blocks.has(*kinds) and (stage < 3 or blocks.calls):
            yield Edit(
                f"ZeRO-{stage} on {ranks} GPUs",
                f"{what} split over {ranks} GPUs: {means}, or DeepSpeed",
                f"{ranks} GPUs; {traffic}",
                4,
                partial(_split, blocks, kinds, ranks),
                family="sharding",
            )


def _split(
    blocks: TrainingBlocks, kinds: Sequence[str], ranks: int, table: BlockTable
) -> BlockTable:
    part = blocks.of_kind(table, *kinds, UPDATE)
    split = table.divided(part, ranks)
    if GRADIENTS in kinds:  # a gradient is whole until the ranks have summed it
        # Those of a batch in parts exist from the beginning of the step's passes.
        begins = blocks.passes[blocks.step[table.origin]]
        gradient = np.flatnonzero(blocks.of_kind(table, GRADIENTS) & (table.born != begins))
        at = table.born[gradient]
        split = split.with_copies(gradient, at - 0.25, at + 0.25, table.size[gradient])
    if PARAMETERS in kinds:
        index, born, freed = _gathered(blocks, table)
        split = split.with_copies(index, born, freed, table.size[index])
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
