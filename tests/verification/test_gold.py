# SPDX-License-Identifier: Apache-2.0
"""Verdicts on recordings, also on changed ones and with other settings, are as they were frozen."""

import pickle
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench.allocators import SpecError
from allocbench.verification.agreement import Call, _recorded_begin
from allocbench.verification.verify import reason_of_placement, verify_all
from tests.gold import Gold, facts
from tests.synthetic_recordings import CASES, told
from tests.workloads.importers import drawn_files

_SPECS = (
    "caching",
    "caching",
    "caching:version=2.6",
    "caching:expandable_segments=true",
    "caching:max_split_size_mb=24",
    "caching:roundup_power2_divisions=8",
    "caching:garbage_collection_threshold=0.5",
    "caching:per_process_memory_fraction=0.5",
)
_SETTINGS: tuple[dict[str, Any], ...] = (
    *({"roundup_power2_divisions": {}}, {"max_split_size": -1}, {"max_split_size": 64 << 20}),
    *({"expandable_segments": True}, {"expandable_segments": False}),
    *({"garbage_collection_threshold": 0.0}, {"garbage_collection_threshold": 0.8}),
    *(
        {"PYTORCH_CUDA_ALLOC_CONF": conf}
        for conf in ("", "max_split_size_mb:24", "large_segment_size_mb:24")
    ),
    {"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.2"},
)
_PAGE = 2 << 20
_SIZES = (-_PAGE, -512, 512, _PAGE, 11 * _PAGE)


def changed(data: Any, random: Random) -> str:
    """Change one event or segment of a snapshot; returns how."""
    events, segments = data["device_traces"][0], data["segments"]
    wanted: str = random.choice(sorted({event["action"] for event in events}))
    place = random.choice([n for n, event in enumerate(events) if event["action"] == wanted])
    event = events[place]
    match random.randrange(7):
        case 0:
            del events[place]
        case 1:
            other = random.randrange(len(events))
            events[place], events[other] = events[other], event
        case 2 if "size" in event:
            event["size"] = max(1, event["size"] + random.choice(_SIZES))
        case 3 if "addr" in event:
            event["addr"] += random.choice(_SIZES)
        case 4:
            size = 10 * _PAGE
            block: dict[str, Any] = {"size": size, "state": "inactive"}
            new = {"action": "segment_alloc", "addr": 1 << 30, "size": size, "stream": 0}
            events.insert(place, event | new)
            held: dict[str, Any] = {
                "device": 0,
                "address": 1 << 30,
                "total_size": size,
                "stream": 0,
            }
            held |= {"segment_type": "large", "blocks": [block | {"address": 1 << 30}]}
            segments.append(held | {"segment_pool_id": (0, 0), "is_expandable": False})
        case 5 if segments:
            segment = random.choice(segments)
            segment["total_size"] += random.choice(_SIZES)
        case _:
            event["stream"] = event.get("stream", 0) + 7
    return wanted


def _told(path: Path, spec: str, capacity: int | None) -> Any:
    try:
        verdicts = verify_all(path, spec, capacity)
    except SpecError as error:
        return facts(str(error))
    rows = [verdict.row() | {"recording": ""} for verdict in verdicts]
    return [
        [facts(row), len(str(one.difference or one.unknown).split())]
        for row, one in zip(rows, verdicts, strict=True)
    ]


def test_verdicts_on_profiles(gold: Gold, tmp_path: Path) -> None:
    """Without calls to the device, these are derived."""
    path, found = tmp_path / "profile.json", {}
    for seed in range(120):
        path.write_bytes(drawn_files.profile(seed))
        for spec in (_SPECS[0], _SPECS[seed % len(_SPECS)]):
            found[f"{seed} {spec}"] = _told(path, spec, [None, 1 << 34, 1 << 28][seed % 3])
    gold("verdicts_profiles", found)


@given(st.integers(0, 20), st.integers(0, 9), st.integers(0, 25))
def test_a_segment_begins_before_the_next_alloc_in_it(count: int, begin: int, inside: int) -> None:
    """Its alloc `inside` is at byte 40, and was recorded 1,000 bytes higher."""
    address = np.where(np.arange(count) >= inside, 540, 7)
    replayed: Any = SimpleNamespace(address=address)
    recording: Any = SimpleNamespace(address=address + 1000)
    found = _recorded_begin(recording, replayed, Call(begin, 0, 500, 100))
    assert found == (1500 if max(begin, inside) < count else 500)


@pytest.mark.parametrize("address", range(0, 130, 5))
def test_why_a_block_is_elsewhere(address: int) -> None:
    blocks = [(10, 20, 1), (30, 30, 0), (60, 20, 0), (80, 10, 1), (90, 20, 0), (110, 10, 1)]
    made: Any = [SimpleNamespace(address=a, size=b, allocated=bool(c)) for a, b, c in blocks]
    segments: Any = [SimpleNamespace(address=10, size=110, blocks=made)]
    around = [(a, b, c) for a, b, c in blocks if address in range(a, a + b)]
    for other, granted in ((60, 20), (90, 25), (10, 5)):
        found = reason_of_placement(address, other, granted, segments)
        if not around:
            assert "no memory is held there" in found
        elif around[0][2]:
            assert "still allocated there" in found
        elif around[0][0] != address:
            assert "does not begin there" in found
        elif other == 10:
            assert f"did not choose the free block of {around[0][1]} bytes" in found
        elif around[0][1] == 20:
            assert "both are free blocks of 20 bytes" in found
        else:
            assert "has 30 bytes, that of the replay 20" in found


@pytest.mark.parametrize("name", CASES)
def test_verdicts(name: str, gold: Gold, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.pickle"
    found: dict[str, Any] = {}
    for seed in range(24):
        random, data = Random(f"{name} {seed}"), told(name)
        how = changed(data, random) if seed > 5 else ""
        path.write_bytes(pickle.dumps(data))
        own = CASES[name]["allocator"]
        spec = _SPECS[seed] if seed < len(_SPECS) else random.choice((own, own, *_SPECS))
        capacity = random.choice([CASES[name]["capacity"]] * 4 + [None, 1 << 28])
        found[f"{seed} {spec} {capacity} {how}"] = _told(path, spec, capacity)
    for n, settings in enumerate(_SETTINGS):  # others than those in force
        data = told(name)
        data["allocator_settings"] |= settings
        path.write_bytes(pickle.dumps(data))
        found[f"settings {n}"] = _told(path, CASES[name]["allocator"], CASES[name]["capacity"])
    gold(f"verdicts_{name}", found)
