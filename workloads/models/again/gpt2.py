# SPDX-License-Identifier: Apache-2.0
"""GPT-2 trained on other sequence lengths."""

import random
from dataclasses import replace

from allocbench.workloads.models import gpt2

_draw = random.Random(7)
_lengths = tuple(_draw.randrange(256, 1025, 8) for _ in gpt2.PROGRAM.full.lengths)
PROGRAM = replace(gpt2.PROGRAM, full=replace(gpt2.PROGRAM.full, lengths=_lengths), seed=7)
