# SPDX-License-Identifier: Apache-2.0
"""Bugs planted one at a time in a copy of the source, each of which the tests must find."""
