# SPDX-License-Identifier: Apache-2.0
"""A plugin of asv: benchmarks named latency_ return the seconds of single calls."""
