# SPDX-License-Identifier: Apache-2.0
"""A training program that is captured in a moment: a GPT-2 of one layer."""

from dataclasses import replace

from allocbench.workloads.models import gpt2

PROGRAM = replace(gpt2.PROGRAM, full=replace(gpt2.PROGRAM.tiny, layers=1, lengths=(16, 8, 16)))
