# SPDX-License-Identifier: Apache-2.0
"""The captured PyTorch programs, such as `python -m allocbench.workloads.models.gpt2`."""
