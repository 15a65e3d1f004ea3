# SPDX-License-Identifier: Apache-2.0
"""Sorting is stable, whatever the values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench.workloads.sorting import stable_order


@given(
    values=st.lists(st.integers(0, 9) | st.integers(0, 2**64 - 1) | st.integers(2**40, 2**40 + 3)),
)
def test_as_a_stable_argsort(values: list[int]) -> None:
    array = np.array(values, np.uint64)
    assert stable_order(array).tolist() == sorted(range(len(values)), key=values.__getitem__)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("most", [0, 1, 255, 2**63])
def test_every_type_and_range(dtype: type[np.unsignedinteger], most: int) -> None:
    rng = np.random.default_rng(1)
    high = min(most, int(np.iinfo(dtype).max))
    values = rng.integers(0, high, 5000, endpoint=True, dtype=dtype)
    found = stable_order(values)
    assert found.dtype == np.intp
    assert np.array_equal(found, np.argsort(values, kind="stable"))
