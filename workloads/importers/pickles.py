# SPDX-License-Identifier: Apache-2.0
"""Pickles that hold only data: lists, dicts, tuples, texts, bytes, numbers, booleans and None.

They are read by native code (`native/pickle.hpp`) that knows the opcodes of protocols 0 to 5
(`pickletools` documents them) and refuses every one that could name, create or call something
else. It reads a window of the file at a time, and checks every length against the file.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Sequence
from typing import BinaryIO

from allocbench.workloads._native import Pickle, PickleError, read_pickle
from allocbench.workloads.snapshot_format import FRAME, Form
from allocbench.workloads.trace import TraceError

_BEGINS = re.compile(
    rb"\x80[\x02-\x05]|[(}\]](?:[dl]p|q|r|\()|c[\w.]+\n[\w.]+\n(?:p\d+\n|q|r|\()", re.DOTALL
)


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
