# SPDX-License-Identifier: Apache-2.0
"""verify finds and names a change in a recording."""

import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from allocbench.verification.verify import Verdict, verify
from tests.synthetic_recordings import told


def events_of(data: Any, action: str = "") -> list[dict[str, Any]]:
    return [e for e in data["device_traces"][0] if not action or e["action"] == action]


def ends_of(data: Any, begin: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that end the block of an alloc."""
    events = data["device_traces"][0]
    found = []
    for event in events[events.index(begin) + 1 :]:
        if event.get("addr") == begin["addr"] and event["action"].startswith("free_"):
            found.append(event)
            if event["action"] == "free_completed":
                return found
    raise AssertionError("the block is never freed")


def freed_alloc(data: Any, least: int = 0, most: int = 1 << 40, skip: int = 0) -> dict[str, Any]:
    """An alloc in a range of bytes whose block is freed later."""
    for event in events_of(data, "alloc")[skip:]:
        if least <= event["size"] <= most:
            try:
                ends_of(data, event)
            except AssertionError:
                continue
            return event
    raise AssertionError("there is no such alloc")


def held_segment(event: dict[str, Any], size: int) -> dict[str, Any]:
    return {
        "device": 0,
        "address": event["addr"],
        "total_size": size,
        "stream": 0,
        "segment_type": "small" if size == 2 << 20 else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "blocks": [{"address": event["addr"], "size": size, "state": "inactive"}],
    }


def larger_segment(data: Any) -> None:
    event = next(e for e in events_of(data, "segment_alloc") if e["size"] > 20 << 20)
    event["size"] += 2 << 20
    for segment in data["segments"]:
        if segment["address"] == event["addr"]:
            segment["total_size"] += 2 << 20


def kept_segment(data: Any) -> None:
    """A segment that was given back is kept, so that the recording holds more."""
    event = events_of(data, "segment_free")[0]
    data["device_traces"][0].remove(event)
    data["segments"].append(held_segment(event, event["size"]))


def needless_segment(data: Any) -> None:
    events = data["device_traces"][0]
    event = events_of(data, "segment_alloc")[0] | {"addr": 1 << 30, "size": 30 << 20}
    events.insert(len(events) // 2, event)
    data["segments"].append(held_segment(event, event["size"]))


def missing_segment(data: Any) -> None:
    """A segment seems to be held from the start."""
    event = events_of(data, "segment_alloc")[3]
    data["device_traces"][0].remove(event)


def needless_trim(data: Any) -> None:
    """A segment is returned while a block lives in it, and obtained again at once."""
    events = data["device_traces"][0]
    event = events_of(data, "segment_alloc")[0]
    at = events.index(event) + 40
    events[at:at] = [event | {"action": "segment_free"}, dict(event)]


def moved_block(data: Any) -> None:
    """A small block lies 512 bytes further up."""
    event = freed_alloc(data, most=1 << 18, skip=20)
    moved = event["addr"] + 512
    for end in ends_of(data, event):
        end["addr"] = moved
    event["addr"] = moved


def other_segment(data: Any) -> None:
    """A block lies in a segment that was obtained before."""
    event = freed_alloc(data, least=10 << 20, skip=60)
    moved = events_of(data, "segment_alloc")[0]["addr"]
    for end in ends_of(data, event):
        end["addr"] = moved
    event["addr"] = moved


def other_order(data: Any) -> None:
    """Two blocks of one pool in a row change places."""
    allocs = events_of(data, "alloc")
    events = data["device_traces"][0]
    for one, two in pairwise(allocs):
        at = events.index(one)
        is_next = events[at + 1] is two
        if is_next and max(one["size"], two["size"]) < 1 << 20 and one["size"] != two["size"]:
            events[at], events[at + 1] = two, one
            return
    raise AssertionError("there are no such allocs")


def other_stream(data: Any) -> None:
    """A block is requested on a stream that never had memory."""
    event = freed_alloc(data, least=2 << 20, most=9 << 20)
    for one in (event, *ends_of(data, event)):
        one["stream"] = 999


def other_pool(data: Any) -> None:
    """A block of a private pool seems to be of the default one."""
    event = next(e for e in events_of(data, "alloc") if e["pool_id"] != (0, 0))
    for one in (event, *ends_of(data, event)):
        one["pool_id"] = (0, 0)


def other_size(data: Any) -> None:
    event = freed_alloc(data, most=1 << 18)
    for one in (event, *ends_of(data, event)):
        one["size"] += 64 << 10


def larger_map(data: Any) -> None:
    event = events_of(data, "segment_map")[0]
    event["size"] += 20 << 20


def saved(data: Any, folder: Path) -> Path:
    path = folder / "changed.pickle"
    path.write_bytes(pickle.dumps(data))
    return path


@pytest.mark.parametrize(
    ("name", "change", "kind", "reason"),
    [
        ("cold", larger_segment, "segment calls", "other settings or another version"),
        ("empty_cache", kept_segment, "segment calls", "keeps 1 segments"),
        ("retry", kept_segment, "segment calls", "keeps 1 segments"),
        (
            "cold",
            needless_segment,
            "segment calls",
            "a free block of 13008896 bytes is large enough",
        ),
        (
            "cold",
            missing_segment,
            "segment calls",
            "a free block of 39845888 bytes is large enough",
        ),
        ("cold", needless_trim, "segment calls", "holds blocks in the replay"),
        ("cold_2.11", moved_block, "placement", "a free block contains it"),
        ("cold_2.11", other_segment, "placement", "too few for the 20971520 of the block"),
        ("cold_2.11", other_order, "placement", "a free block contains it"),
        ("cold", other_size, "placement", "a block is still allocated there"),
        ("streams", other_stream, "segment calls", "without a new segment"),
        ("pools", other_pool, "segment calls", "it is in another pool"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_deviation_is_found_and_named(
    name: str, change: Callable[[Any], None], kind: str, reason: str, tmp_path: Path
) -> None:
    data = told(name)
    change(data)
    verdict = verify(saved(data, tmp_path))
    assert verdict.exit_code == 1, verdict
    assert verdict.difference is not None
    assert verdict.difference.kind == kind, str(verdict.difference)
    assert reason in verdict.difference.reason


CONF = "PYTORCH_CUDA_ALLOC_CONF"


def test_a_start_that_other_settings_cannot_have_made_gives_no_verdict(tmp_path: Path) -> None:
    data = told("large_segment_expandable")
    data["allocator_settings"][CONF] = "expandable_segments:True"
    verdict = verify(saved(data, tmp_path), "caching:version=2.13")
    assert verdict.exit_code == 2
    assert "cannot take over what the program held when it began" in verdict.unknown


def test_a_recording_that_contradicts_itself_gives_no_verdict(tmp_path: Path) -> None:
    data = told("expandable")
    larger_map(data)
    verdict = verify(saved(data, tmp_path))
    assert verdict.exit_code == 2
    assert "23068672 bytes were mapped" in verdict.unknown


def verdict_without(tmp_path: Path, data: Any, at: int) -> Verdict:
    """The verdict of `verify` on a recording that lacks one event."""
    events = data["device_traces"][0]
    lacking = data | {"device_traces": [events[:at] + events[at + 1 :]]}
    return verify(saved(lacking, tmp_path), "caching:version=2.13")


def test_each_missing_free_is_found_and_named(tmp_path: Path) -> None:
    data = told("cold")
    kinds = set()
    for at, event in enumerate(data["device_traces"][0]):
        if event["action"] != "free_completed":
            continue
        verdict = verdict_without(tmp_path, data, at)
        assert verdict.exit_code == 1, at
        assert verdict.frees_missing == verdict.row()["frees_missing"] == 1
        assert verdict.difference is not None
        assert "the recording lacks the free of" in verdict.difference.reason, at
        kinds.add(verdict.difference.kind)
    assert kinds == {"missing free", "placement"}


def test_each_missing_alloc_is_found(tmp_path: Path) -> None:
    """One whose block could have lived at the start makes another start, which is impossible."""
    data = told("cold")
    named = 0
    for at, event in enumerate(data["device_traces"][0]):
        if event["action"] != "alloc":
            continue
        verdict = verdict_without(tmp_path, data, at)
        assert verdict.exit_code == (1 if verdict.agreement else 2), at
        if verdict.difference and verdict.difference.kind == "missing alloc":
            named += 1
            assert verdict.allocs_missing == verdict.row()["allocs_missing"] == 1
    assert named >= 20


def test_a_block_that_should_live_at_the_end_but_does_not_lacks_its_free(tmp_path: Path) -> None:
    data = told("cold")
    segment, place = next(
        (segment, place)
        for segment in data["segments"]
        for place, block in enumerate(segment["blocks"])
        if block["state"] == "active_allocated"
    )
    block = segment["blocks"][place]
    block["state"] = "inactive"
    verdict = verify(saved(data, tmp_path), "caching:version=2.13")
    assert verdict.agreement is not None
    assert verdict.agreement.equal
    assert verdict.exit_code == 1
    assert verdict.difference is not None
    assert verdict.difference.event is None
    assert f"allocator has no block at {block['address']:#x}" in str(verdict.difference)
