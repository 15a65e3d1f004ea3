# SPDX-License-Identifier: Apache-2.0
"""The questions that a trace answers: fit, explain, tune, recommend, and what they share."""

PASSES = 6
"""Passes behind a time: the least and the most of six enclose the median in 97 runs of 100."""
