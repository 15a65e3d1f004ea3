# SPDX-License-Identifier: Apache-2.0
"""Compressed and packed input files: their first bytes, and the limit of their expanded size."""

PARQUET = b"PAR1"
IN_MEMORY = 64 << 20
"""Bytes of a pipe or of an expanded file; more goes to a temporary file."""
_MOST_EXPANDED = 1 << 30
_MOST_RATIO = 200


def most_expanded(size: int) -> int:
    """How many bytes a file of this size may expand to: a number, or a multiple of its size."""
    return max(_MOST_EXPANDED, _MOST_RATIO * size)
