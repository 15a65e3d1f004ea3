# SPDX-License-Identifier: Apache-2.0
"""The strategy `caching` compared with recordings of PyTorch on real GPUs."""
