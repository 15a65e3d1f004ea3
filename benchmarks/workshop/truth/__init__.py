# SPDX-License-Identifier: Apache-2.0
"""Peaks predicted on the null GPU, compared with peaks that others measured on real GPUs."""
