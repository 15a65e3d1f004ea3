# SPDX-License-Identifier: Apache-2.0
"""What allocbench reads from PyTorch's memory snapshots: one table of the fields.

Reading makes a column of each field, exporting writes the fields, and docs/formats.md lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from allocbench.workloads.vocabulary import MAX_SIZE


class Holds(IntEnum):
    """What a field holds, in the order of `Holds` in native/pickle.hpp."""

    NUMBER = 0
    NAME = 1
    CHOICE = 2
    POOL = 3
    FRAMES = 4
    ROWS = 5


@dataclass(frozen=True)
class Field:
    """A key of a dict, and the meaning of its value.

    other: a key in place of it, of which a dict has at most one. absent: the number of a dict
    without the key. least, most: of a number. of: the form of rows.
    """

    key: str
    holds: Holds
    about: str
    other: str = ""
    absent: int = 0
    least: int = 0
    most: int = MAX_SIZE
    of: str = ""

    @property
    def keys(self) -> list[str]:
        """All keys of the field."""
        return [self.key, *([self.other] if self.other else [])]


@dataclass(frozen=True)
class Form:
    """Dicts of one kind. needed: the keys that tell them from others."""

    name: str
    needed: tuple[str, ...]
    fields: tuple[Field, ...]

    def place(self, key: str) -> int:
        """The number of a field."""
        return next(n for n, field in enumerate(self.fields) if field.key == key)

    def filled(self, **values: Any) -> dict[str, Any]:
        """A dict of this form; raises TypeError for a key that no field has."""
        known = {key for field in self.fields for key in field.keys}
        if unknown := values.keys() - known:
            raise TypeError(f"a {self.name} has no field '{min(unknown)}'")
        return {key: value for key, value in values.items() if value is not None}


_ANY: Mapping[str, Any] = {"least": -MAX_SIZE - 1}
_TIME: Mapping[str, Any] = {"least": -MAX_SIZE // 1000, "most": MAX_SIZE // 1000}

FRAME = Form(
    "frame",
    ("filename",),
    (
        Field("filename", Holds.NAME, "the file of the function"),
        Field("line", Holds.NUMBER, "the line in the file", **_ANY),
        Field("name", Holds.NAME, "the function; of C++, with its types"),
    ),
)
EVENT = Form(
    "event",
    ("action", "size"),
    (
        Field(
            "action",
            Holds.NAME,
            "what happened: `alloc`, `free_completed`, `segment_alloc`, `oom` and so on",
        ),
        Field(
            "addr",
            Holds.NUMBER,
            "the address; an `oom` has the bytes that were free on the device instead",
            other="device_free",
            absent=-1,
        ),
        Field("size", Holds.NUMBER, "bytes requested, or of the segment"),
        Field("stream", Holds.NUMBER, "the stream", **_ANY),
        Field("time_us", Holds.NUMBER, "microseconds since 1970", **_TIME),
        Field("pool_id", Holds.POOL, "the private pool; from PyTorch 2.13 on"),
        Field("frames", Holds.FRAMES, "the call stack, innermost frame first"),
    ),
)
HISTORY = Form(
    "entry of a history",
    ("real_size",),
    (
        Field("real_size", Holds.NUMBER, "bytes requested", absent=-1),
        Field("frames", Holds.FRAMES, "the call stack"),
    ),
)
BLOCK = Form(
    "block",
    ("state",),
    (
        Field("state", Holds.NAME, "`active_allocated`, waiting for a free, or `inactive`"),
        Field("address", Holds.NUMBER, "the address; else blocks follow each other", absent=-1),
        Field("size", Holds.NUMBER, "bytes of the block"),
        Field("requested_size", Holds.NUMBER, "bytes requested", absent=-1),
        Field("frames", Holds.FRAMES, "the call stack of the alloc"),
        Field(
            "history",
            Holds.ROWS,
            "requests and call stacks, newest first; up to PyTorch 2.0",
            of=HISTORY.name,
        ),
    ),
)
SEGMENT = Form(
    "segment",
    ("total_size",),
    (
        Field("device", Holds.NUMBER, "the number of the device"),
        Field("address", Holds.NUMBER, "where it begins"),
        Field("total_size", Holds.NUMBER, "bytes"),
        Field("stream", Holds.NUMBER, "the stream", **_ANY),
        Field("segment_type", Holds.NAME, "`small` or `large`"),
        Field("segment_pool_id", Holds.POOL, "the private pool"),
        Field("is_expandable", Holds.CHOICE, "whether it is a range of an expandable segment"),
        Field("blocks", Holds.ROWS, "the blocks that tile it", of=BLOCK.name),
    ),
)
ANNOTATION = Form(
    "annotation",
    ("stage", "name", "time_us"),
    (
        Field("stage", Holds.NAME, "`START` or `END`"),
        Field("name", Holds.NAME, "of the range, for example `ProfilerStep#3`"),
        Field("device", Holds.NUMBER, "the number of the device", absent=-1),
        Field("time_us", Holds.NUMBER, "microseconds since 1970", **_TIME),
    ),
)
FORMS = (FRAME, EVENT, HISTORY, BLOCK, SEGMENT, ANNOTATION)

WORKSPACES = "allocbench_workspaces"
"""The key of modelled workspaces, which the null GPU adds: [(device, ns, address, bytes, rule)]."""
TENSORS = "allocbench_tensors"
"""The key of the modules' tensors, which `record` adds: [(ns, [(address, module, kind), ...])],
with None in place of a list that equals the one before it."""
