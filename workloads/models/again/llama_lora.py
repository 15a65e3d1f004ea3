# SPDX-License-Identifier: Apache-2.0
"""Llama-3-8B fine-tuned on other sequence lengths."""

from dataclasses import replace

from allocbench.workloads.models import llama_lora

_lengths = (2560, 3840, 3328)
PROGRAM = replace(llama_lora.PROGRAM, full=replace(llama_lora.PROGRAM.full, lengths=_lengths))
