# SPDX-License-Identifier: Apache-2.0
"""Run a training program on other data: `python -m benchmarks.workshop.second_runs gpt2-train`."""

import random
import sys
from dataclasses import replace
from typing import Any

from benchmarks.workshop.models import diffusion_train, dlrm, gpt2, llama_lora, moe, resnet
from benchmarks.workshop.models.program import ModelProgram


def other(
    program: ModelProgram[Any], seed: int | None = None, **changes: object
) -> ModelProgram[Any]:
    """A program with another full configuration, and with another seed if one is given."""
    full = replace(program.full, **changes)
    return replace(program, full=full, seed=program.seed if seed is None else seed)


_draw = random.Random(7)
PROGRAMS = {
    "diffusion-train": other(
        diffusion_train.PROGRAM, ratios=((64, 64), (56, 72), (48, 80), (80, 48))
    ),
    "dlrm-train": other(dlrm.PROGRAM, longest_bag=9),
    "gpt2-train": other(
        gpt2.PROGRAM,
        seed=7,
        lengths=tuple(_draw.randrange(256, 1025, 8) for _ in gpt2.PROGRAM.full.lengths),
    ),
    "llama3-8b-lora": other(llama_lora.PROGRAM, lengths=(2560, 3840, 3328)),
    "moe-train": other(moe.PROGRAM, length=1920),
    "resnet50-train": other(resnet.PROGRAM, images=980, validation_images=800),
}

if __name__ == "__main__":
    _, name, *arguments = sys.argv
    PROGRAMS[name].main(arguments)
