# SPDX-License-Identifier: Apache-2.0
"""Pickles that hold only data: lists, dicts, tuples, texts, bytes, numbers, booleans and None.

They are read by native code (`native/pickle.hpp`) that knows the opcodes of protocols 0 to 5
(`pickletools` documents them) and refuses every one that could name, create or call something
else. It reads a window of the file at a time, and checks every length against the file.

A memory snapshot may have other forms: a page that `torch.cuda._memory_viz` writes contains the
pickle as base64. A program may also have written the snapshot, or the list of segments, as JSON.
"""

import binascii
import codecs
import json
import os
import pickle
import re
from collections.abc import Sequence
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from allocbench.workloads._native import Pickle, PickleError, read_pickle
from allocbench.workloads.snapshot_format import FRAME, Form
from allocbench.workloads.trace import TraceError

_BEGINS = re.compile(
    rb"\x80[\x02-\x05]|[(}\]](?:[dl]p|q|r|\()|c[\w.]+\n[\w.]+\n(?:p\d+\n|q|r|\()", re.DOTALL
)

_PAGE = re.compile(rb"(?is)\s*<!doctype html>.{0,2000}\"base64\": ?\"gA")
_DATA = re.compile(rb'"base64": ?"([A-Za-z0-9+/=]*)"')
_JSON = re.compile(
    rb'\s*(?:\{\s*"(?:segments|device_traces)":|\[\s*\{.{0,2000}"total_size":)', re.S
)
_HEAD = 4096
_MOST = 1 << 28
"""Bytes of a snapshot in these forms, which are read as a whole."""


def is_pickle(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a pickle."""
    return _BEGINS.match(head) is not None


def load(file: BinaryIO, forms: Sequence[Form] = ()) -> Pickle:
    """The pickle in an open file; dicts of some forms become rows of tables.

    forms: FRAME is the first one. Raises TraceError for a truncated, broken or unsafe pickle.
    """
    assert not forms or forms[0] is FRAME
    tables = [(form.name, list(form.needed), list(form.fields)) for form in forms]
    left = os.fstat(file.fileno()).st_size - file.tell()
    try:
        return read_pickle(tables, left, file.read, _text_of)
    except PickleError as error:
        raise TraceError(str(error)) from None


def _text_of(op: bytes, line: bytes) -> bytes | None:
    """UTF-8 of the line of an opcode of protocol 0; None if it is broken."""
    try:
        if op == b"V":
            text = line.decode("raw-unicode-escape")
        elif len(line) < 2 or line[:1] not in (b"'", b'"') or line[:1] != line[-1:]:
            return None
        else:
            text = codecs.escape_decode(line[1:-1])[0].decode("latin-1")
    except ValueError:
        return None
    return text.encode("utf-8", "surrogatepass")


def is_snapshot(head: bytes) -> bool:
    """Whether a file that begins with these bytes may be a snapshot in any form."""
    return is_pickle(head) or bool(_PAGE.match(head) or _JSON.match(head))


def as_pickle(file: BinaryIO) -> BinaryIO:
    """An open snapshot as a file with a pickle; raises TraceError."""
    head = file.read(_HEAD)
    file.seek(0)
    if is_pickle(head):
        return file
    data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise TraceError(
            f"is a snapshot in a page or as JSON of more than {_MOST:,} bytes; pickle it instead"
        )
    if _PAGE.match(head):
        found = _DATA.search(data)
        if found is None:
            raise TraceError("is a page of memory_viz, but cut: its snapshot does not end")
        try:
            return _file(binascii.a2b_base64(found[1]))
        except binascii.Error as error:
            raise TraceError(f"is a page of memory_viz, but damaged: {error}") from error
    try:
        return _file(pickle.dumps(json.loads(data), protocol=4))
    except ValueError as error:
        raise TraceError(f"is a snapshot as JSON, but damaged: {error}") from error


def _file(content: bytes) -> BinaryIO:
    file = TemporaryFile()  # noqa: SIM115  closed with its reader
    file.write(content)
    file.seek(0)
    return cast(BinaryIO, file)
