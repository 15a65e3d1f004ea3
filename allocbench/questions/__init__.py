# SPDX-License-Identifier: Apache-2.0
"""The questions that a trace or a program answers: fit, explain, tune, recommend and others."""

ORDERS = 3
"""Perturbed traces from which the confidence of a recommendation is computed."""
BUDGET = 60
"""Settings of an allocator that are tried: every change of one, and combinations."""
