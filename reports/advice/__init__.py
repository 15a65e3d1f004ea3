# SPDX-License-Identifier: Apache-2.0
"""Advice in words: what each choice costs, which one is best, and how certain that is."""
