# SPDX-License-Identifier: Apache-2.0
"""Tests of tables, charts and the HTML report."""
