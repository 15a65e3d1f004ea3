# SPDX-License-Identifier: Apache-2.0
"""Tests of what is specific to each planner."""
