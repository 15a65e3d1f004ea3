# SPDX-License-Identifier: Apache-2.0
"""Sorting is stable, whatever the values."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench.workloads.importers.rmm_log import HEADER
from allocbench.workloads.sorting import distinct, stable_order
from tests.workloads.importers.snapshots import Recorder, pickled, snapshot


@given(
    values=st.lists(st.integers(0, 9) | st.integers(0, 2**64 - 1) | st.integers(2**40, 2**40 + 3))
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


@given(st.lists(st.integers(0, 3) | st.integers(-(2**63), 2**63 - 1)), st.integers(1, 2))
def test_distinct_values_are_in_order_of_appearance(values: list[int], step: int) -> None:
    array = np.array(values, np.int64)[::step]
    found, index = distinct(array)
    assert found.tolist() == list(dict.fromkeys(array.tolist()))
    assert found.dtype == np.int64
    assert index.dtype == np.int32
    np.testing.assert_array_equal(found[index], array)


@pytest.mark.parametrize("name", ["snapshot", "log"])
def test_reading_a_recording_does_not_import_pandas(name: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"{HEADER}\n1,10:00:00.000001,allocate,0x1,5,0x0\n")
    recorder = Recorder()
    recorder.alloc(100)
    (tmp_path / "snapshot").write_bytes(pickled(snapshot(recorder)))
    code = "import sys; from allocbench.workloads import read; read(sys.argv[1])"
    program = f"{code}; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program, tmp_path / name]).returncode == 0
