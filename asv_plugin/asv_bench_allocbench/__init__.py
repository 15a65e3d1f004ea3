# SPDX-License-Identifier: Apache-2.0
"""A plugin for asv: benchmarks named latency_* return the seconds of single calls."""
