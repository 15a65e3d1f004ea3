# SPDX-License-Identifier: Apache-2.0
"""The list of edits: changes of a program that need less memory, and what each one does.

An edit changes the blocks of a recording as the program's change would: some become smaller, live
shorter, or are allocated a second time. It is offered only if the recording shows what it needs:
kinds of blocks, modules, shapes, steps.
"""

from dataclasses import replace

from allocbench.questions.edits import allocator, optimizers, parameters, passes
from allocbench.questions.edits.edit import Edit, go_together
from allocbench.questions.training_blocks import TrainingBlocks

__all__ = ["Edit", "edits", "go_together"]
_FAMILIES = (
    optimizers.update,
    optimizers.state,
    optimizers.gradients,
    passes.loss,
    passes.scores,
    passes.batch,
    passes.activations,
    parameters.precision,
    parameters.trained,
    parameters.buckets,
    allocator.kept,
    allocator.places,
    allocator.settings,
)


def edits(blocks: TrainingBlocks, ranks: int) -> list[Edit]:
    """The edits that a program's recording shows enough for. ranks: GPUs of sharded training."""
    found = [
        replace(edit, family=edit.family or family.__name__)
        for family in _FAMILIES
        for edit in family(blocks)
    ]
    return [*found, *parameters.sharding(blocks, ranks)]
