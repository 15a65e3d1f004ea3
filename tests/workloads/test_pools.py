# SPDX-License-Identifier: Apache-2.0
"""Private pools in traces: files of each format, and imported snapshots."""

from pathlib import Path
from typing import Any

import numpy as np

from allocbench.workloads import ALLOC, FREE, TRIM, PrivatePool, Trace, read, write
from allocbench.workloads.vocabulary import (
    CAPTURE_BEGIN,
    CAPTURE_END,
    POOL_CREATE,
    POOL_ENTER,
    POOL_LEAVE,
    POOL_RELEASE,
)
from tests.traces import assert_same, make

EVENTS = [
    (ALLOC, 0, 1048576),
    (POOL_CREATE, 0, 0),
    (POOL_ENTER, 0, 0),
    (ALLOC, 1, 4096),
    (POOL_LEAVE, 0, 0),
    (POOL_RELEASE, 0, 0),
    (CAPTURE_BEGIN, 0, 0),
    (ALLOC, 2, 8192),
    (CAPTURE_END, 0, 0),
    (FREE, 2, 0),
    (POOL_RELEASE, 0, 0),
    (TRIM, 0, 0),
]
POOL = [0, 1, 1, 1, 1, 1, 2, 2, 2, 0, 2, 0]
STREAM = [0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0]


def pooled(**changes: Any) -> Trace:
    pools = (PrivatePool("0.1", use_on_oom=True), PrivatePool("1.0"))
    found: dict[str, Any] = {"pool": np.array(POOL, np.uint16), "pools": pools}
    return make(EVENTS, stream=np.array(STREAM, np.uint16), **(found | changes))


def test_parquet_keeps_pools_and_files_without_pools_keep_their_version(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    trace = pooled()
    trace.validate()
    write(trace, path)
    again = read(path)
    assert_same(trace, again)
    assert again.pools == trace.pools
    assert b'"version": 2' in path.read_bytes()
    write(make([(ALLOC, 0, 5)]), path)
    assert b'"version": 1' in path.read_bytes()


def test_csv_keeps_pools_as_the_documentation_shows_them(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    shown = page.partition("op,id,size,stream,pool\n")[2].partition("```")[0]
    path = tmp_path / "trace.csv"
    write(pooled(), path)
    assert path.read_text() == f"op,id,size,stream,pool\n{shown}"
    again = read(path)
    assert_same(pooled(), again)
    assert again.pools == pooled().pools
