# SPDX-License-Identifier: Apache-2.0
"""The PyTorch programs that are captured; each runs alone: python -m workloads.models.gpt2."""
