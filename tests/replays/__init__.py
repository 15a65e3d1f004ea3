# SPDX-License-Identifier: Apache-2.0
"""Tests of replays and their result rows."""
