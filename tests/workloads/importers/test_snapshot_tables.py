# SPDX-License-Identifier: Apache-2.0
"""The tables of a snapshot are the dicts that Python's own unpickler makes, in every protocol."""

import pickle
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocbench.workloads import TraceError
from allocbench.workloads._native import Pickle, Rows
from allocbench.workloads.importers.pickles import load
from allocbench.workloads.snapshot_format import FORMS, FRAME, Field, Form, Holds
from tests.traces import message_of
from tests.workloads.importers.snapshots import (
    CPP_FRAMES,
    FRAMES,
    WRITERS,
    Recorder,
    pickled,
    snapshot,
)

STACKS = [FRAMES, FRAMES[1:], CPP_FRAMES, CPP_FRAMES[1:], FRAMES[2:], []]
BY_NAME = {form.name: form for form in FORMS}


def recorded(events: int, seed: int = 1) -> Recorder:
    draw, recorder = random.Random(seed), Recorder()
    while len(recorder.events) < events:
        if recorder.live and draw.random() < 0.5:
            recorder.free(draw.choice(sorted(recorder.live)))
        else:
            size = draw.choice([7, 300, 70_000, 1 << 20, 1 << 33])
            recorder.alloc(size, draw.choice([0, 0, 0x55AA00]), draw.choice(STACKS))
    return recorder


class Expander:
    """Makes dicts of the rows of tables again; a dict has the fields of its form."""

    def __init__(self, found: Pickle) -> None:
        self.found = found
        self._columns: dict[tuple[str, int, bool], list[int]] = {}
        self._frames: dict[int, list[Any]] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, Rows):
            return [self._row(BY_NAME[value.table], row) for row in value.number.tolist()]
        if isinstance(value, dict):
            return {key: self.of(inside) for key, inside in value.items()}
        return [*map(self.of, value)] if isinstance(value, list) else value

    def _value(self, form: Form, place: int, row: int, end: bool = False) -> int:
        key = form.name, place, end
        if key not in self._columns:
            self._columns[key] = self.found.column(*key).tolist()
        return self._columns[key][row]

    def _row(self, form: Form, row: int) -> dict[str, Any]:
        return {
            field.key: self._field(form, field, place, row)
            for place, field in enumerate(form.fields)
        }

    def _field(self, form: Form, field: Field, place: int, row: int) -> Any:
        number = self._value(form, place, row)
        match field.holds:
            case Holds.NAME:
                return self.found.text(number)
            case Holds.CHOICE:
                return bool(number)
            case Holds.POOL:
                return self.found.pair(number) if number else None
            case Holds.FRAMES:
                if number not in self._frames:
                    self._frames[number] = [
                        self._row(FRAME, frame) for frame in self.found.stack(number)
                    ]
                return self._frames[number]
            case Holds.ROWS:
                end = self._value(form, place, row, end=True)
                return [self._row(BY_NAME[field.of], other) for other in range(number, end)]
        return number


def expected(value: Any) -> Any:
    """What Python unpickled, with the fields of its form alone in each dict that has one."""
    if isinstance(value, list):
        return [*map(expected, value)]
    if not isinstance(value, dict):
        return value
    form = next((form for form in FORMS if value.keys() >= {*form.needed}), None)
    if form is None:
        return {key: expected(inside) for key, inside in value.items()}
    return {field.key: _expected(field, value) for field in form.fields}


def _expected(field: Field, value: dict[str, Any]) -> Any:
    key = next((key for key in field.keys if key in value), None)
    absent = {Holds.NUMBER: field.absent, Holds.NAME: "", Holds.CHOICE: False, Holds.POOL: None}
    return absent.get(field.holds, []) if key is None else expected(value[key])


def assert_read_as_python_does(path: Path) -> Pickle:
    with path.open("rb") as file:
        found = load(file, FORMS)
    assert Expander(found).of(found.data) == expected(pickle.loads(path.read_bytes()))
    return found


@pytest.mark.parametrize("how", WRITERS)
def test_a_recording_of_every_writer(how: int | str, tmp_path: Path) -> None:
    """Longer than a frame of a pickle and than the items of one opcode."""
    path = tmp_path / "snapshot"
    path.write_bytes(pickled(snapshot(recorded(3000)), how))
    found = assert_read_as_python_does(path)
    assert len(found.column("event", 0)) >= 3000
    assert len(found.column("frame", 0)) == len(CPP_FRAMES)


def test_a_file_longer_than_the_part_that_is_read_at_a_time(tmp_path: Path) -> None:
    """What comes first takes nearly a part, so the events cross into the next one."""
    part = 1 << 22
    recorder = recorded(4000)
    for n, event in enumerate(recorder.events):
        event["frames"] = [*STACKS[n % 2], *(24 * FRAMES)]
    path = tmp_path / "snapshot"
    path.write_bytes(pickled({"first": "x" * (part - 300_000), **snapshot(recorder)}))
    assert part + 300_000 < path.stat().st_size < 2 * part
    divided = re.findall(rb"(?:h.|j....|\()\x95.{8}[hj]", path.read_bytes(), re.DOTALL)
    assert len(divided) > 5  # lists that a frame of the pickle divides
    assert_read_as_python_does(path)


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
    data["device_traces"] *= 2
    for number, content in enumerate((data, dict(reversed(data.items())))):
        path = tmp_path / str(number)
        path.write_bytes(pickle.dumps(content, 4))
        assert_read_as_python_does(path)


def test_what_refers_to_itself(tmp_path: Path) -> None:
    """A list and a dict that contain themselves, and an event that does."""
    path = tmp_path / "cycle"
    around: list[Any] = [{"key": 1}]
    around[0]["list"] = around
    path.write_bytes(pickle.dumps({"around": around}, 4))
    with path.open("rb") as file:
        found = load(file, FORMS).data["around"]
    assert found[0]["list"] is found
    event: dict[str, Any] = {"action": "alloc", "size": 7}
    event["itself"] = event
    path.write_bytes(pickle.dumps({"device_traces": [[event]]}, 4))
    with path.open("rb") as file:
        (found,) = load(file, FORMS).data["device_traces"][0]
    assert found["itself"] is found


def test_a_tuple_in_a_list_that_it_contains(tmp_path: Path) -> None:
    inside: list[Any] = []
    inside.append((inside,))
    path = tmp_path / "cycle"
    path.write_bytes(pickle.dumps(inside[0], 4))
    with path.open("rb") as file:
        assert load(file).data[0] is not None


@pytest.mark.parametrize("deep", [100, 1000, 100_000])
@pytest.mark.parametrize("how", [b"]a", b"}", b"\x85"])
def test_values_nested_deep(deep: int, how: bytes, tmp_path: Path) -> None:
    """Containers in containers; deeper ones than a snapshot has are refused."""
    content = {
        b"]a": b"]" * deep + b"a" * (deep - 1),
        b"}": b"}U\x01x" * (deep - 1) + b"}" + b"s" * (deep - 1),
        b"\x85": b")" + b"\x85" * (deep - 1),
    }[how]
    path = tmp_path / "deep"
    path.write_bytes(b"\x80\x04" + content + b".")
    with path.open("rb") as file:
        if deep == 100:
            assert load(file).data is not None
        else:
            told = message_of(lambda: load(file))
            assert told == "holds values that are nested more than 200 deep"


def test_large_values_that_are_named_often_are_made_once(tmp_path: Path) -> None:
    """Each use takes two bytes of the file."""
    text, stack = (
        b"X\x00\x00\x10\x00" + bytes(1 << 20) + b"\x94",
        b"](" + b"h\x01" * 1000 + b"e\x94",
    )
    frame = b"}(U\x08filenameU\x01fU\x04lineK\x01U\x04nameU\x01gu\x94"
    uses = b"](" + (b"h\x00" + b"h\x02") * 100_000 + b"e"
    path = tmp_path / "large"
    path.write_bytes(b"\x80\x04(" + text + frame + stack + uses + b"l.")
    with path.open("rb") as file:
        found = load(file, FORMS).data[3]
    assert len({*map(id, found)}) == 2


VALUES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from(
        [None, True, False, "alloc", "free", 1.5, (), (1, 2), (1, 2, 3, 4), [1], [3, 4], ((1,),)]
    ),
    st.lists(st.sampled_from(FRAMES), max_size=3),
)


@settings(max_examples=200)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 39), st.sampled_from(sorted(recorded(1).events[0])), VALUES),
        max_size=3,
    ),
    how=st.sampled_from([*WRITERS]),
    cut=st.booleans(),
)
def test_events_of_every_form(
    changes: list[tuple[int, str, Any]],
    how: int | str,
    cut: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """They are read as Python reads them, or refused in a line that names the event and the key."""
    recorder = recorded(40)
    for event, key, value in changes:
        recorder.events[event][key] = value
    path = tmp_path_factory.mktemp("changed") / "snapshot"
    content = pickled(snapshot(recorder), how)
    path.write_bytes(content[: len(content) - cut * (len(content) // 3)])
    refused = ""
    try:
        with path.open("rb") as file:
            found = load(file, FORMS)
    except TraceError as error:
        refused = str(error)
    if refused or cut:
        told = re.fullmatch(r"event (\d+) in the file is not valid: its '(\w+)' is .*", refused)
        changed = [(event, key) for event, key, _ in changes]
        assert "is truncated" in refused if not told else (int(told[1]), told[2]) in changed
        return
    found_data, stated = Expander(found).of(found.data), expected(pickle.loads(path.read_bytes()))
    for one, other in zip(found_data["device_traces"][0], stated["device_traces"][0], strict=True):
        if isinstance(other["pool_id"], list):
            other["pool_id"] = tuple(other["pool_id"])
        if not isinstance(other["frames"], list) or not all(
            isinstance(frame, dict) for frame in other["frames"]
        ):
            other["frames"] = []  # a value that is not a list has no frames
        assert one == other


def test_a_frame_that_the_file_does_not_hold(tmp_path: Path) -> None:
    content = pickled(snapshot(recorded(2000)))
    frame = content.index(b"\x95", len(content) // 2)
    while content[frame + 4 : frame + 9] != bytes(5):
        frame = content.index(b"\x95", frame + 1)
    path = tmp_path / "snapshot"
    path.write_bytes(content[: frame + 1] + (2**40).to_bytes(8, "little") + content[frame + 9 :])
    with path.open("rb") as file:
        assert f"a frame of {2**40} bytes was expected" in message_of(lambda: load(file, FORMS))


@pytest.mark.parametrize("count", range(1, 8))
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_events_that_are_not_in_a_list_of_their_own(
    count: int, protocol: int, tmp_path: Path
) -> None:
    """In tuples, dicts and nested lists, after others and before others."""
    event = [{"action": "alloc", "size": n, "x": n} for n in range(count)]
    inline = {"action": "alloc", "size": 7, "x": ["new"]}
    content = [tuple(event), [tuple(event)], [*event, inline], (*event, inline), (inline,)]
    path = tmp_path / "events"
    path.write_bytes(pickle.dumps({"z": content, "x": event[0], "y": [event]}, protocol))
    with path.open("rb") as file:
        found = load(file, FORMS)
    rows = Expander(found)

    def sizes(value: Any) -> Any:
        if isinstance(value, Rows):
            return [row["size"] for row in rows.of(value)]
        if isinstance(value, dict):
            return {key: sizes(inside) for key, inside in value.items()}
        if isinstance(value, tuple):
            return [size for inside in value for size in sizes(inside)]
        return [*map(sizes, value)]

    many = [*range(count)]
    assert sizes(found.data) == {
        "z": [many, [many], [*many, 7], [*many, 7], [7]],
        "x": [0],
        "y": [many],
    }
    assert len(found.column("event", 0)) == count + 1
