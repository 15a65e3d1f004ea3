# SPDX-License-Identifier: Apache-2.0
"""The questions that a trace answers: fit, explain, tune, recommend, and what they share."""

PASSES = 6
"""Passes per time: the minimum and maximum of six enclose the median in 97 of 100 runs."""
ORDERS = 3
"""Perturbed traces from which the confidence of a recommendation is computed."""
TUNING = 60
"""Settings of caching that a recommendation tries."""
