# SPDX-License-Identifier: Apache-2.0
"""What every package may import: spec grammar, op codes, whole files, hooks, one-line text.

Nothing in this package imports another part of allocbench or anything outside the standard library.
"""
