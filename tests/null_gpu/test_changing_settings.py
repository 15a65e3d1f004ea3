# SPDX-License-Identifier: Apache-2.0
"""Programs of PyTorch that change allocator settings while they run, and `caching`."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from allocbench import allocators
from allocbench.allocators import Change
from allocbench.workloads import ALLOC, FREE
from tests.null_gpu import VERSIONS, seen
from tests.traces import Event, make

MIB = 1 << 20
FRACTION = 0.0012  # of the memory of a card of 80 GB
CONFS = (
    "expandable_segments:True",
    "expandable_segments:False,roundup_power2_divisions:4",
    "max_split_size_mb:32,garbage_collection_threshold:0.5",
    "expandable_segments:True,roundup_power2_divisions:[1:2,8:4,>:1]",
    "",
)


def program(seed: int) -> list[list[Any]]:
    """Random allocs, frees, settings, fractions and calls of empty_cache."""
    drawn = random.Random(seed)
    steps: list[list[Any]] = [["fraction", FRACTION]]
    live: list[int] = []
    for block in range(120):
        steps.append(["alloc", block, int(2 ** drawn.uniform(8, 24.5))])
        live.append(block)
        while live and drawn.random() < 0.5:
            steps.append(["free", live.pop(drawn.randrange(len(live)))])
        if drawn.random() < 0.15:
            steps.append(["settings", drawn.choice(CONFS)])
        if drawn.random() < 0.05:
            steps.append(["empty_cache"])
        if drawn.random() < 0.05:
            steps.append(["fraction", FRACTION * drawn.choice([0.5, 1])])
    steps.append(["alloc", 120, 512])
    return steps


def replayed(steps: list[list[Any]]) -> tuple[list[Event], list[Change]]:
    """The events of a program, and what it changes before them."""
    events: list[Event] = []
    changes: list[Change] = []
    for kind, *values in steps:
        if kind == "alloc":
            events.append((ALLOC, *values))
        elif kind == "free":
            events.append((FREE, values[0], 0))
        elif kind == "settings":
            changes.append(Change(len(events), settings=values[0]))
        elif kind == "fraction":
            changes.append(Change(len(events), memory_fraction=values[0]))
        else:
            changes.append(Change(len(events), empty_cache=True))
    return events, changes


@pytest.mark.parametrize("version", VERSIONS)
def test_caching_does_what_pytorch_does(version: str, tmp_path: Path) -> None:
    failed = 0
    for seed in range(3):
        steps = program(seed)
        file = tmp_path / f"{seed}.json"
        file.write_text(json.dumps(steps))
        shown = seen("changing_settings", tmp_path, str(file), version=version)
        events, changes = replayed(steps)
        release = version.rpartition(".")[0]
        made = allocators.make(
            f"caching:version={release}", allocators.SimulatedDevice(shown["total"])
        )
        found = allocators.replay(
            make(events), made, samples=len(events), placements=True, keep=True, changes=changes
        )
        timeline = found.timeline
        levels = zip(timeline["allocated"].tolist(), timeline["reserved"].tolist(), strict=True)
        assert [list(level) for level in levels] == [row[1:] for row in shown["seen"]]
        places = zip(
            *(found.placements[name].tolist() for name in ("segment", "offset")), strict=True
        )
        live: dict[int, tuple[int, int, int]] = {}
        for (op, block, _), (address, *_) in zip(events, shown["seen"], strict=True):
            if op == FREE:
                live.pop(block, None)
                continue
            segment, offset = next(places)
            assert (address is None) == (segment < 0)
            failed += address is None
            if address is not None:
                for other_segment, other_offset, other in live.values():
                    if other_segment == segment:
                        assert other - address == other_offset - offset
                live[block] = segment, offset, address
    assert failed > 0
