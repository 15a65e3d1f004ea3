# SPDX-License-Identifier: Apache-2.0
"""The U-Net trained on batches of other aspect ratios."""

from dataclasses import replace

from allocbench.workloads.models import diffusion_train

_ratios = ((64, 64), (56, 72), (48, 80), (80, 48))
PROGRAM = replace(
    diffusion_train.PROGRAM, full=replace(diffusion_train.PROGRAM.full, ratios=_ratios)
)
