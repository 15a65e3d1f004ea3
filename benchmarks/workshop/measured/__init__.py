# SPDX-License-Identifier: Apache-2.0
"""Peaks predicted by `fit` before they were measured on a GPU."""
