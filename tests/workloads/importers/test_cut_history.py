# SPDX-License-Identifier: Apache-2.0
"""Histories whose beginning was lost: the trace begins with what a model says was held then."""

import pickle
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from allocbench.workloads import ALLOC, FREE, TRIM
from allocbench.workloads.files import read_recording
from tests.workloads.importers import drawn


class Held:
    """What the entries of a history leave: ranges of memory by stream, and live blocks."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.segments: dict[int, int] = {}  # address: size
        self.pages: list[tuple[int, int, int]] = []
        self.live: dict[int, tuple[int, int]] = {}  # address: size and stream
        for one in entries:
            action, at, size = one["action"], one.get("addr", 0), one["size"]
            if action == "segment_alloc":
                self.segments[at] = size
            elif action == "segment_free":
                del self.segments[at]
            elif action in ("segment_map", "segment_unmap"):
                self.pages = [
                    part
                    for begin, end, stream in self.pages
                    for part in (
                        (begin, min(end, at), stream),
                        (max(begin, at + size), end, stream),
                    )
                    if part[0] < part[1]
                ]
                if action == "segment_map":
                    self.pages.append((at, at + size, one["stream"]))
            elif action == "alloc":
                self.live[at] = size, one["stream"]
            elif action == "free_completed":
                del self.live[at]

    @property
    def ranges(self) -> dict[int, int]:
        """The bytes of segments and of pages, by address."""
        return self.segments | {begin: end - begin for begin, end, _ in self.pages}


def joined(ranges: dict[int, int]) -> list[tuple[int, int]]:
    """Begins and ends of the same bytes: two ranges that touch are one."""
    found: list[tuple[int, int]] = []
    for begin, size in sorted(ranges.items()):
        if found and found[-1][1] == begin:
            found[-1] = found[-1][0], begin + size
        else:
            found.append((begin, begin + size))
    return found


@pytest.mark.parametrize("spec", drawn.SPECS[:6])
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_what_was_held_where_the_history_begins(first: int, spec: str, tmp_path: Path) -> None:
    for seed in range(first, first + 20):
        _check_a_cut(drawn.snapshot(seed, spec, "sim:80GiB"), Random(seed), tmp_path / "a.pickle")


def _check_a_cut(snapshot: dict[str, Any], rng: Random, path: Path) -> None:
    entries = snapshot["device_traces"][0]
    cut = rng.randrange(len(entries))
    while cut and entries[cut]["action"] == "free_completed":  # its request is the entry before
        cut -= 1
    snapshot["device_traces"][0] = entries[cut:]
    before, after = Held(entries[:cut]), Held(entries)
    path.write_bytes(pickle.dumps(snapshot))
    found = read_recording(path)
    read = found.trace
    count = read.provenance.live_at_start
    begun = zip(found.address[:count].tolist(), read.size[:count].tolist(), strict=True)
    assert dict(begun) == {at: size for at, (size, _) in before.live.items()}
    streams = {int(n) for n in read.stream[:count]}
    assert len(streams) == len({stream for _, stream in before.live.values()})
    told = [
        (op, size)
        for op, size in zip(read.op.tolist(), read.size.tolist(), strict=True)
        if op in (ALLOC, FREE)
    ][count:]
    kinds = {"alloc": ALLOC, "free_completed": FREE}
    wanted = [
        (kinds[one["action"]], one["size"] * (one["action"] == "alloc"))
        for one in entries[cut:]
        if one["action"] in kinds
    ]
    assert told == wanted
    assert read.coverage.begins == ("later" if before.ranges else "start")
    if read.layout is None:
        assert not before.live
    else:
        layout = dict(zip(read.layout.address.tolist(), read.layout.size.tolist(), strict=True))
        assert joined(layout) == joined(before.ranges)
        assert read.layout.block_address.tolist() == found.address[:count].tolist()
    final = {at: size for at, (size, _) in after.live.items()}
    alive = np.setdiff1d(read.block[read.op == ALLOC], read.block[read.op == FREE])
    assert sorted(final.values()) == sorted(read.size[read.op == ALLOC][alive].tolist())
    released = {"segment_free", "segment_unmap"} & {one["action"] for one in entries[cut:]}
    assert TRIM not in read.op or released
