# SPDX-License-Identifier: Apache-2.0
"""Edits of what the allocator holds: values that are kept, its cache, and its settings."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from allocbench.base import units
from allocbench.questions.edits.edit import Edit
from allocbench.questions.switching import how
from allocbench.questions.training_blocks import Names, TrainingBlocks
from allocbench.workloads.block_origins import GRADIENTS, LASTING, PARAMETERS, STATE, places_of
from allocbench.workloads.block_table import BlockTable, Floats, Ints
from allocbench.workloads.pytorch_settings import PytorchRules

_SETTINGS = {
    "expandable_segments:True": "mapping of pages when memory grows",
    "max_split_size_mb:128": "more device calls for large blocks",
    "max_split_size_mb:512": "more device calls for large blocks",
    "garbage_collection_threshold:0.8": "device calls whenever memory is short",
    "roundup_power2_divisions:8": "up to an eighth of each block is unused",
}
"""Settings of PyTorch's allocator, and what they cost."""
_LEAST_KEPT = 0.01  # of the peak of the load: values that are worth a line
_SOON = 64  # events between the alloc of a new value and the free of the one that it replaces


def kept(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Values of a step that their variable keeps until the next step assigns it again."""
    places = places_of(blocks.trace, blocks.allocs)
    found = _kept(blocks, places)
    least = _LEAST_KEPT * blocks.trace.max_load
    for place in sorted({*places[found]}):
        of_place = found[places[found] == place]
        size = int(blocks.table.size[of_place].max())
        if place and size >= least:
            since = int(blocks.step[of_place].min()) + 1
            yield Edit(
                f"free what {place} keeps",
                f"del the value of {place} at the end of a step: since step {since}, a variable"
                f" keeps {units.size(size)} of each step until the next one assigns it again",
                "none, if nothing else reads it",
                2,
                partial(_freed_at_end, blocks, of_place),
            )


def _kept(blocks: TrainingBlocks, places: Names) -> Ints:
    """The blocks of a step that are freed soon after the next step's block of their place begins.

    Nothing in the trace shows that they are read in between.
    """
    last, found = dict[tuple[str, int], int](), list[int]()
    lasting = np.isin(blocks.kind, (PARAMETERS, GRADIENTS, STATE, LASTING))
    keys = [*zip(places, blocks.module, strict=True)]
    for block in np.flatnonzero(~lasting).tolist():
        before = last.get(keys[block])
        if before is not None and blocks.step[before] + 1 == blocks.step[block]:
            freed = int(blocks.freed[before])
            if 0 < freed - int(blocks.allocs[block]) < _SOON:
                found.append(before)
        last[keys[block]] = block
    return np.array(found, np.int64)


def _freed_at_end(blocks: TrainingBlocks, chosen: Ints, table: BlockTable) -> BlockTable:
    index = np.flatnonzero(np.isin(table.origin, chosen))
    return table.ending(index, blocks.starts[blocks.step[table.origin[index]] + 1] + 0.25)


def places(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Places where the program can give the allocator's cache back."""
    instants: Mapping[str, Floats] = {
        "call of the model": blocks.call_begins,
        "update of the optimizer": blocks.updates.astype(np.float64) + 0.25,
    }
    for place, at in instants.items():
        if len(at):
            yield Edit(
                f"empty_cache before each {place}",
                f"torch.cuda.empty_cache() before each {place}",
                "the GPU waits, and segments are allocated again",
                2,
                partial(_trimmed, tuple(at.tolist())),
                {"empty_cache": place.partition(" ")[0]},
            )


def _trimmed(at: tuple[float, ...], table: BlockTable) -> BlockTable:
    return replace(table, trims=(*table.trims, *at))


def settings(blocks: TrainingBlocks) -> Iterator[Edit]:
    """Other settings of PyTorch's allocator."""
    if blocks.trace.module is None:
        return
    version = blocks.trace.provenance.torch
    of_version = f"version={version}," if PytorchRules.of(version) else ""
    for setting, cost in _SETTINGS.items():
        yield Edit(
            setting,
            how(f"caching:{of_version}{setting.replace(':', '=')}"),
            cost,
            1,
            lambda table: table,
            {"setting": setting},
            setting,
            family="setting",
        )
