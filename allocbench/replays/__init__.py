# SPDX-License-Identifier: Apache-2.0
"""Replays of a trace through an allocator: counts, times and capacities, as result rows."""

PASSES = 6
"""Passes per time: the minimum and maximum of six enclose the median in 97 of 100 runs."""
LONG = 250_000
"""Events of a trace above which less is timed and tried, because each replay takes long."""
PASSES_OF_LONG = 4
"""Passes of a long trace: their minimum and maximum enclose the median in 88 of 100 runs."""
