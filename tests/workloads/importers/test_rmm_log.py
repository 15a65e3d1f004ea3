# SPDX-License-Identifier: Apache-2.0
"""Logs of RMM in every form of pointers and times, and every kind of error."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocbench.workloads import Trace, TraceError, read
from allocbench.workloads.importers import rmm_log
from allocbench.workloads.importers.rmm_log import HEADER, OtherForm
from tests.commands import folder
from tests.traces import assert_same

__all__ = ["folder"]  # the fixture, by its import

LOG = f"""{HEADER}
11,23:59:59.999990,allocate,0x7f00,1000,0x2
12,23:59:59.999999,allocate,0x8f00,7,0x0
11,00:00:00.000001,free,0x7f00,1000,0x2
11,00:00:00.000002,allocate failure,(nil),99999999999,0x2
11,00:00:00.000003,allocate,0x7f00,50,0x2
"""


def rows(trace: Trace) -> list[tuple[int, int, int, int]]:
    columns = (trace.op, trace.block, trace.size, trace.stream)
    return list(zip(*(column.tolist() for column in columns), strict=True))


ROWS = ("allocate,0x7f0012400000,1048576,0x0", "free,0x7f0012400000,1048576,0x0")
FIELDS = (
    st.sampled_from(["7", "", "a thread", '"7"', "\xe9"]),
    st.sampled_from(["23:59:59.999999", "00:00:00.000001", "1:02:03.5", "12.5", "00:00:0a.000000"]),
    st.sampled_from(["allocate", "free", "deallocate", "allocate failure", "grow", ""]),
    st.sampled_from(["0x7f0012400000", "0X7F", "16", "(nil)", "0x", "0x8000000000000000", "-1"]),
    st.sampled_from(["1048576", "0", "1", "0x10", " 7", "9223372036854775808", ""]),
    st.sampled_from(["0x0", "0x2", "0", "(nil)", "s"]),
)


@settings(max_examples=150)
@given(
    changes=st.lists(
        st.integers(0, 5).flatmap(
            lambda field: st.tuples(st.integers(0, 29), st.tuples(st.just(field), FIELDS[field]))
        ),
        max_size=4,
    ),
    ending=st.sampled_from(["\n", "\r\n"]),
    more=st.sampled_from(["", "\n", "1,2\n", "1,2", HEADER + "\n"]),
)
def test_columns_and_rows_are_read_alike(
    changes: list[tuple[int, tuple[int, str]]],
    ending: str,
    more: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rows = [f"1,15:47:02.8419{n:02},{ROWS[n % 2]}".split(",") for n in range(30)]
    for row, (field, text) in changes:
        rows[row][field] = text
    path = tmp_path_factory.mktemp("rmm") / "log.csv"
    lines = [rmm_log.HEADER, *(",".join(row) for row in rows)]
    path.write_bytes((ending.join(lines) + ending + more).encode("latin-1"))

    def outcome() -> Trace | str:
        try:
            return read(path)
        except TraceError as error:
            return str(error)

    found = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rmm_log, "_all_rows", raises_other_form)
        expected = outcome()
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected
    else:
        assert_same(found, expected)


def raises_other_form(file: Any) -> None:
    raise OtherForm


def test_a_log_as_rmm_writes_it_is_read_as_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several blocks, past midnight, and with failed requests."""
    monkeypatch.setattr(rmm_log, "_BLOCK", 1 << 12)
    hours = ("23", "00", "13", "23", "01")
    lines = [rmm_log.HEADER]
    for n in range(2000):
        action = ("allocate", "allocate failure", "free")[n % 3]
        time = f"{hours[n // 400]}:00:{n // 60 % 60:02}.{n:06}"
        lines.append(f"{n % 7},{time},{action},0x{n // 3:x},{n // 3 + 1},0x{n % 5}")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    with monkeypatch.context() as patch:
        patch.setattr(rmm_log, "_all_rows", raises_other_form)
        expected = read(path)
    monkeypatch.setattr(rmm_log, "_row_by_row", None)
    found = read(path)
    assert_same(found, expected)
    assert found.provenance.extra["failed_requests"] == 667
    assert found.time_ns is not None
    assert found.time_ns.max() > 24 * 3600 * 10**9
