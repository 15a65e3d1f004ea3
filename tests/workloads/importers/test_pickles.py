# SPDX-License-Identifier: Apache-2.0
"""Pickles contain only data: none runs code, and no stated size is trusted."""

import os
import pickle
import pickletools
import struct
from collections import OrderedDict
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench.workloads import TraceError, read
from allocbench.workloads.importers import pickles
from tests.commands import error, folder
from tests.traces import message_of
from tests.workloads.importers.snapshots import Recorder, pickled, snapshot

__all__ = ["folder"]  # the fixture, by its import

MARKER = "ran"


class Runs:
    """Makes a file when it is unpickled."""

    def __reduce__(self) -> Any:
        return Path(MARKER).touch, ()


class Evaluates:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, (f"touch {MARKER}",)


def load(content: bytes, tmp_path: Path) -> Any:
    path = tmp_path / "pickle"
    path.write_bytes(content)
    with path.open("rb") as file:
        return pickles.load(file).data


DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(data=DATA, protocol=st.integers(3, 5))
def test_data_equal_those_that_python_reads(
    data: Any, protocol: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert load(pickle.dumps(data, protocol), tmp_path_factory.mktemp("data")) == data


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_holds_text_numbers_and_long_strings(tmp_path: Path, protocol: int) -> None:
    data = {
        "text\n'\"\\ é 漢": [
            1,
            -1,
            255,
            256,
            65536,
            -(2**31),
            2**31,
            2**70,
            1.5,
            None,
            True,
            False,
        ],
        "nested": {"empty": [(), [], {}], "tuples": [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]},
        "long": "x" * 3_000_000,
        "many": list(range(300_000)),
        "shared": [shared := ["a", "b"], shared],
    }
    assert load(pickle.dumps(data, protocol), tmp_path) == data


@pytest.mark.parametrize(
    "content",
    [
        b"S'it''s\\x41\\n'\n.",
        b"U\x03abc.",
        b"T\x03\x00\x00\x00abc.",
        b"I01\n.",
        b"L-12345678901234567890L\n.",
        b"F-2.5\n.",
        b"(I1\nI2\n0t.",
        b"(I1\nI2\n1I3\n.",
        b"]2a0I7\n.",
        b"\x80\x04\x8f(K\x01K\x01\x90.",
        b"(K\x01\x91.",
        b"\x80\x05\x96\x03\x00\x00\x00\x00\x00\x00\x00abc.",
    ],
)
def test_opcodes_that_this_python_does_not_write(tmp_path: Path, content: bytes) -> None:
    found, stated = load(content, tmp_path), pickle.loads(content)
    if isinstance(stated, set | frozenset):
        assert set(found) == stated
    else:
        assert found == stated


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("held", "name"), [(Runs(), ""), (Evaluates(), "posix.system"), (len, "builtins")]
)
@pytest.mark.parametrize("inside", [True, False])
def test_a_callable_is_refused_and_nothing_runs(
    protocol: int, held: Any, name: str, inside: bool
) -> None:
    recorder = Recorder()
    recorder.alloc(7)
    data = snapshot(recorder) | {"extra": held} if inside else held
    Path("evil.pickle").write_bytes(pickle.dumps(data, protocol))
    for command in ("inspect", "compare", "plan", "replay --allocator bfc"):
        told = error(f"{command} evil.pickle")
        assert told.startswith("error: evil.pickle: is a pickle that holds a callable or an object")
        assert "only plain data is read, and none of it was run" in told
        if protocol >= 3:
            assert name in told
    error("convert evil.pickle -o out.parquet")
    assert not Path(MARKER).exists()
    pickle.loads(pickle.dumps(Runs(), protocol))
    assert Path(MARKER).exists()  # it would have run


@pytest.mark.parametrize("held", [date(2026, 1, 1), OrderedDict(a=1), 1j, range(3), Path], ids=str)
def test_objects_are_refused_too(tmp_path: Path, held: Any) -> None:
    content = pickle.dumps([held], 4)
    assert "holds a callable or an object" in message_of(lambda: load(content, tmp_path))


@pytest.mark.parametrize("op", pickletools.opcodes, ids=lambda op: op.name)
def test_every_opcode_is_read_or_refused(tmp_path: Path, op: pickletools.OpcodeInfo) -> None:
    """Each opcode, on a full stack; those that create or call objects are refused by name."""
    content = b"\x80\x04]\x94(K\x01K\x01" + op.code.encode("latin-1") + b"\x01\n\x01\n" + b"\0" * 9
    makes = op.name in (
        *("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX"),
        *("PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"),
    )
    try:
        load(content, tmp_path)
        told = ""
    except TraceError as refused:
        told = str(refused)
    assert ("holds a callable or an object" in told) == makes
    assert not makes or op.name in told


HUGE = 2**31
CLAIMS = {
    "BINUNICODE": b"X" + struct.pack("<I", HUGE),
    "BINUNICODE8": b"\x8d" + struct.pack("<Q", HUGE),
    "BINBYTES": b"B" + struct.pack("<I", HUGE),
    "BINBYTES8": b"\x8e" + struct.pack("<Q", HUGE),
    "BINBYTES8, more than there is": b"\x8e" + struct.pack("<Q", 2**64 - 1),
    "BYTEARRAY8": b"\x96" + struct.pack("<Q", HUGE),
    "BINSTRING": b"T" + struct.pack("<I", HUGE),
    "LONG4": b"\x8b" + struct.pack("<I", HUGE),
    "FRAME": b"\x95" + struct.pack("<Q", HUGE),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_length_that_the_file_has_not_is_not_believed(tmp_path: Path, claim: str) -> None:
    path = tmp_path / "claims"
    path.write_bytes(b"\x80\x04]\x94" + CLAIMS[claim] + b"abc.")
    told = message_of(lambda: read(path))
    number = 2**64 - 1 if "more" in claim else HUGE
    assert told.startswith(f"{path}: is truncated or not a pickle: ")
    assert str(number) in told
    assert " 4 " in told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x80\x04\x8b\x00\x10\x00\x00" + b"\xff" * 5000 + b".", "a value of 4096 bytes"),
        (b"\x80\x04\x8a\xff" + b"\xff" * 300 + b".", "holds a number of 255 bytes"),
        (b"(I" + b"9" * 5000 + b"\n.", "holds a number of 5000 digits"),
        (b"\x80\x04}r\xff\xff\xff\xffj\xff\xff\xff\xfe.", "is a broken pickle, near byte"),
        (b"\x80\x04}(h\x05u.", "is a broken pickle, near byte 4"),
        (b"\x80\x04u.", "is a broken pickle"),
        (b"\x80\x04]s.", "is a broken pickle"),
        (b"\x80\x04](K\x01u.", "is a broken pickle"),
        (b"\x80\x04}(K\x01u.", "is a broken pickle"),
        (b"\x80\x04\x86.", "is a broken pickle"),
        (b"\x80\x04\x8c\x02\xff\xff.", "is a broken pickle"),
        (b"\x80\x04}\xfe.", "is a broken pickle: no opcode 0xfe, at byte 3"),
        (b"\x80\x04", "is truncated: the pickle does not end within its 2 bytes"),
        (b"\x80\x04}\x94(", "is truncated: the pickle does not end within its 5 bytes"),
        (b"\x80\x04Vabc", "is truncated: the pickle does not end within its 6 bytes"),
        (b"\x80\x04\x80\x09.", "is a pickle of protocol 9; protocols 0 to 5 are supported"),
    ],
)
def test_a_broken_pickle_is_an_error(tmp_path: Path, content: bytes, told: str) -> None:
    assert told in message_of(lambda: load(content, tmp_path))


@pytest.mark.parametrize("how", [0, 2, 4])
def test_a_snapshot_cut_off_anywhere_is_refused(tmp_path: Path, how: int) -> None:
    recorder = Recorder()
    recorder.free(recorder.alloc(7))
    content = pickled(snapshot(recorder), how)
    path = tmp_path / "cut"
    for length in range(4, len(content), 7):
        path.write_bytes(content[:length])
        assert str(path) in message_of(lambda: read(path))


def test_a_large_number_of_a_memo_takes_no_memory(tmp_path: Path) -> None:
    content = b"\x80\x04" + b"}r\xff\xff\xff\xff0" * 1000 + b"}r\x00\x00\x00\x800j\xff\xff\xff\xff."
    assert load(content, tmp_path) == {}


def test_a_dict_like_an_event_with_a_list_for_a_key(tmp_path: Path) -> None:
    """Written as events are, but for one reference: to what can be no key."""
    keys = ("action", "size", "x")
    content = pickle.dumps([["a"], *keys, dict.fromkeys(keys, 1)], 4)
    assert content.count(b"}\x94(h\x03K\x01h\x04K\x01h\x05K\x01u") == 1
    path = tmp_path / "event"
    path.write_bytes(content.replace(b"h\x05K\x01u", b"h\x01K\x01u"))
    assert "event 0 in the file is not valid: its 'action' is 1" in message_of(lambda: read(path))


def test_bytes_after_the_end_are_not_read(tmp_path: Path) -> None:
    assert load(pickle.dumps([1], 4) + b"rubbish", tmp_path) == [1]
