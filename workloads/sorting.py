# SPDX-License-Identifier: Apache-2.0
"""Stable sorting of integers, and their distinct values."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_KEY_BITS = 64


def stable_order(values: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.intp]:
    """intp (n,), the indices that sort n values; equal values stay in order.

    The same as `np.argsort(values, kind="stable")`, in a fraction of the time where a value and an
    index fit into one key of 64 bits: numpy sorts plain numbers with vector instructions.
    """
    count = len(values)
    if not count:
        return np.empty(0, np.intp)
    least = values.min()
    bits = count.bit_length()
    if int(values.max() - least).bit_length() + bits > _KEY_BITS:
        order: NDArray[np.intp] = np.argsort(values, kind="stable")
        return order
    keys: NDArray[np.uint64] = (values - least).astype(np.uint64)
    keys <<= np.uint64(bits)
    keys |= np.arange(count, dtype=np.uint64)
    keys.sort()
    keys &= np.uint64((1 << bits) - 1)
    return keys.astype(np.intp)


def distinct(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The distinct values in order of appearance, and int32 (n,), the place of each value there."""
    # Buffers instead of pa.array and to_numpy, which import pandas.
    data = pa.py_buffer(np.ascontiguousarray(values))
    array = pa.Array.from_buffers(pa.int64(), len(values), [None, data])
    encoded = array.dictionary_encode()
    return _numbers(encoded.dictionary, np.int64), _numbers(encoded.indices, np.int32)


def _numbers(array: Any, kind: type[np.generic]) -> NDArray[Any]:
    """The values of an Arrow array without nulls and without an offset."""
    return np.frombuffer(array.buffers()[1] or b"", kind, len(array))
