# SPDX-License-Identifier: Apache-2.0
"""What every package may import: traces as arrays, errors, spec grammar, whole files, hooks, text.

Nothing in this package imports another part of allocbench. Importing it needs the standard library
only; numpy is imported where arrays are computed with.
"""
