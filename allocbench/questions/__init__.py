# SPDX-License-Identifier: Apache-2.0
"""The questions that a trace answers: fit, explain, tune, recommend, and what they share."""

PASSES = 6
"""Passes per time: the minimum and maximum of six enclose the median in 97 of 100 runs."""
