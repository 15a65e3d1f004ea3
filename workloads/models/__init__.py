# SPDX-License-Identifier: Apache-2.0
"""The captured PyTorch programs. Each runs alone: `python -m allocbench.workloads.models.gpt2`."""
