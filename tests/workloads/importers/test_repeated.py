# SPDX-License-Identifier: Apache-2.0
"""Events that the native scanner reads are those that the opcodes say, read one by one."""

from __future__ import annotations

import pickle
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocbench.workloads import Trace, TraceError, read
from allocbench.workloads._native import EventRun, EventScanner
from allocbench.workloads.importers import pickles, snapshot_columns
from allocbench.workloads.importers.repeated import Memo, References, RepeatedDicts, each
from tests.traces import assert_same, message_of
from tests.workloads.importers.snapshots import CPP_FRAMES, FRAMES, Recorder, pickled, snapshot

STACKS = [FRAMES, FRAMES[1:], CPP_FRAMES, CPP_FRAMES[1:], FRAMES[2:], []]


def plainly(path: Path) -> Trace:
    """The trace of a snapshot, every opcode of it read by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RepeatedDicts, "read", lambda *ignored: (0, None))
        return read(path)


def outcome(reader: Callable[[Path], Trace], path: Path) -> Trace | str:
    try:
        return reader(path)
    except TraceError as error:
        return str(error)


def same(path: Path) -> Trace | str:
    """What both ways of reading a file give."""
    fast, plain = outcome(read, path), outcome(plainly, path)
    if isinstance(fast, str) or isinstance(plain, str):
        assert fast == plain
    else:
        assert_same(fast, plain)
    return fast


def recorded(events: int, seed: int = 1) -> Recorder:
    draw, recorder = random.Random(seed), Recorder()
    while len(recorder.events) < events:
        if recorder.live and draw.random() < 0.5:
            recorder.free(draw.choice(sorted(recorder.live)))
        else:
            size = draw.choice([7, 300, 70_000, 1 << 20, 1 << 33])
            recorder.alloc(size, draw.choice([0, 0, 0x55AA00]), draw.choice(STACKS))
    return recorder


def counted_packs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for every event that is read one opcode at a time."""
    packs: list[int] = []
    packer = snapshot_columns.Columns._packer

    def counting(self: Any, places: Any) -> Any:
        pack = packer(self, places)
        return lambda values: packs.append(1) or pack(values)  # type: ignore[func-returns-value]

    monkeypatch.setattr(snapshot_columns.Columns, "_packer", counting)
    return packs


@pytest.mark.parametrize("how", [3, 4, 5, "cpp"])
def test_a_long_recording(how: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a frame of a pickle, the items of one opcode, and the window that is read."""
    monkeypatch.setattr(pickles, "_WINDOW", 1 << 17)
    recorder = recorded(20_000)
    path = tmp_path / "snapshot"
    path.write_bytes(pickled(snapshot(recorder), how))
    assert path.stat().st_size > 10 * (1 << 17)
    assert isinstance(same(path), Trace)


def test_the_scanner_reads_nearly_all_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packs = counted_packs(monkeypatch)
    recorder = recorded(20_000)
    path = tmp_path / "snapshot"
    path.write_bytes(pickled(snapshot(recorder)))
    read(path)
    assert 0 < len(packs) < len(recorder.events) / 100
    plainly(path)
    assert len(packs) > len(recorder.events)


def test_a_frame_of_the_pickle_may_divide_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recorded(20_000)
    for n, event in enumerate(recorder.events):
        event["frames"] = [*STACKS[n % 2], *(12 * FRAMES)]
    path = tmp_path / "snapshot"
    path.write_bytes(pickled(snapshot(recorder)))
    divided = re.findall(rb"(?:h.|j....|\()\x95.{8}[hj]", path.read_bytes(), re.DOTALL)
    assert len(divided) > 20
    assert isinstance(same(path), Trace)
    packs = counted_packs(monkeypatch)
    read(path)
    assert len(packs) < len(divided)


def test_the_same_lists_and_tuples_in_many_events(tmp_path: Path) -> None:
    """Frames and pools are references, to what events contain and to what comes before them."""
    recorder = recorded(3000)
    shared = [list(stack) for stack in STACKS]
    for n, event in enumerate(recorder.events):
        event |= {"frames": shared[n % len(shared)], "pool_id": (0, n % 2)}
    data = snapshot(recorder)
    for segment in data["segments"]:
        for block in segment["blocks"]:
            block["frames"] = shared[1]
    backwards = dict(reversed(data.items()))
    assert next(iter(backwards)) == "external_annotations"
    for number, content in enumerate((data, backwards)):
        path = tmp_path / str(number)
        path.write_bytes(pickle.dumps(content, 4))
        trace = same(path)
        assert isinstance(trace, Trace)
        assert trace.pools


VALUES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from(
        [None, True, False, "alloc", "free", 1.5, (), (1, 2), (1, 2, 3, 4), [1], ((1,),)]
    ),
    st.lists(st.sampled_from(FRAMES), max_size=3),
)


@settings(max_examples=150)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 39), st.sampled_from(sorted(recorded(1).events[0])), VALUES),
        max_size=3,
    ),
    ended=st.integers(0, 1),
)
def test_events_of_every_form(
    changes: list[tuple[int, str, Any]], ended: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    recorder = recorded(40)
    for event, key, value in changes:
        recorder.events[event][key] = value
    path = tmp_path_factory.mktemp("changed") / "snapshot"
    content = pickled(snapshot(recorder))
    path.write_bytes(content[: len(content) - ended * (len(content) // 3)])
    same(path)


def test_a_frame_that_the_file_does_not_hold(tmp_path: Path) -> None:
    content = pickled(snapshot(recorded(2000)))
    frame = content.index(b"\x95", len(content) // 2)
    while content[frame + 4 : frame + 9] != bytes(5):
        frame = content.index(b"\x95", frame + 1)
    path = tmp_path / "snapshot"
    path.write_bytes(content[: frame + 1] + (2**40).to_bytes(8, "little") + content[frame + 9 :])
    assert f"a frame of {2**40} bytes was expected" in message_of(lambda: read(path))
    assert isinstance(same(path), str)


def test_an_action_that_no_number_is_left_for(tmp_path: Path) -> None:
    recorder = recorded(600)
    for n, event in enumerate(recorder.events):
        event["action"] = f"action {n % 300}"
    path = tmp_path / "snapshot"
    path.write_bytes(pickled(snapshot(recorder)))
    assert "event 256 in the file is not valid" in str(same(path))


def test_an_event_that_ends_at_any_byte() -> None:
    """The scanner stops before it. That it reads nothing after the end, `make asan` sees."""
    before = bytes(600)  # so long that the bytes have memory of their own
    values = {
        b"h\x00": b"h\x07",  # the action
        b"h\x01": b"\x8a\x06\x00\x00\x00\x00\x00\x7f",
        b"h\x02": b"J\x00\x10\x00\x00",
        b"h\x03": b"K\x03",
        b"h\x04": b"\x8a\x08\x01\x02\x03\x04\x05\x06\x07\x08",
        b"h\x05": b"]\x94(h\x08j\x09\x00\x00\x00e",
        b"h\x06": b"K\x00M\x01\x00\x86\x94",
    }
    event = b"}\x94(" + b"".join(key + value for key, value in values.items()) + b"u"
    scanner = EventScanner(list(values), list(range(7)))

    def scan(data: bytes) -> EventRun:
        return scanner.scan(
            before + data,
            begin=len(before),
            left=0,
            action=lambda place: (place, True),
            label=len,
            label_at=lambda place: place,
            pool=len,
            pool_at=lambda place: place,
        )

    for length in range(len(event)):
        run = scan(event[:length])
        assert (len(run), run.end) == (0, len(before))
    run = scan(event)
    assert (len(run), run.end) == (1, len(before) + len(event))
    assert run.action.tolist() == [7]
    assert run.address.tolist() == [0x7F << 40]
    assert (run.size.tolist(), run.stream.tolist()) == ([4096], [3])
    assert run.time.tolist() == [0x0807060504030201]
    assert (run.label.tolist(), run.pool.tolist()) == ([7], [5])


def test_a_memo_with_runs_and_changes() -> None:
    memo = Memo()
    memo[0], memo[1], memo[9] = "a", "b", "far"
    assert (len(memo), memo[0], memo[1], memo[9]) == (3, "a", "b", "far")
    memo[0] = "c"
    assert memo[0] == "c"
    assert memo.changes == 1
    with pytest.raises((KeyError, IndexError)):
        memo[5]
    assert list(References(memo, b"h\x00j\x01\x00\x00\x00")) == ["c", "b"]


@pytest.mark.parametrize("count", range(1, 8))
def test_events_that_are_not_in_a_list_of_their_own(count: int, tmp_path: Path) -> None:
    """In tuples, dicts and nested lists, after others and before others."""
    keys = ("action", "size", "x")
    strings = [*keys, "alloc"]
    event = [dict.fromkeys(keys, n) | {"action": "alloc"} for n in range(count)]
    inline = dict.fromkeys(keys, 7) | {"action": "alloc", "x": ["new"]}
    content = [strings, tuple(event), [tuple(event)], [*event, inline], (*event, inline), (inline,)]
    path = tmp_path / "events"
    path.write_bytes(pickle.dumps({"segments": content, "x": event[0], "y": [event]}, 4))

    def loaded() -> tuple[Any, list[int]]:
        columns = snapshot_columns.Columns()
        with path.open("rb") as file:
            return pickles.DataPickle(file, columns.packer_for).load(), columns.size.tolist()

    found, sizes = loaded()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RepeatedDicts, "read", lambda *ignored: (0, None))
        expected, plain_sizes = loaded()
    assert sizes == plain_sizes
    assert apart(found) == apart(expected)


def apart(value: Any) -> Any:
    """Nested values, with each event on its own."""
    if isinstance(value, dict):
        return {key: apart(inside) for key, inside in value.items()}
    return type(value)(map(apart, each(value))) if isinstance(value, list | tuple) else value
