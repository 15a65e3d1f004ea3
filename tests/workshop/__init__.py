# SPDX-License-Identifier: Apache-2.0
"""Tests of measurements on a GPU."""
