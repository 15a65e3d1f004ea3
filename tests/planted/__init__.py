# SPDX-License-Identifier: Apache-2.0
"""Bugs planted one at a time in a copy of the sources, each of which a test must find.

`make planted` plants them; `tests/test_planted.py` keeps the list and docs/trust.md up to date.
"""
