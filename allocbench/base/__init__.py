# SPDX-License-Identifier: Apache-2.0
"""What every package here may import: the spec grammar, whole-file writing, one-line text.

Nothing in this package imports another part of allocbench or anything outside the standard library.
"""
