# SPDX-License-Identifier: Apache-2.0
"""The mixture of experts trained on shorter sequences with other routes."""

from dataclasses import replace

from allocbench.workloads.models import moe

PROGRAM = replace(moe.PROGRAM, full=replace(moe.PROGRAM.full, length=1920))
