# SPDX-License-Identifier: Apache-2.0
"""Replays of a trace through an allocator: counts, times and capacities, as result rows."""

PASSES = 6
"""Passes per time: the minimum and maximum of six enclose the median in 97 of 100 runs."""
