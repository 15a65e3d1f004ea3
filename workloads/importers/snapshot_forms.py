# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots in other forms than a pickle.

A page that `torch.cuda._memory_viz` writes contains the pickle as base64. A program may also have
written the snapshot, or the list of segments, as JSON.
"""

from __future__ import annotations

import binascii
import json
import pickle
import re
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from allocbench.workloads.importers.pickles import is_pickle
from allocbench.workloads.vocabulary import TraceError

_PAGE = re.compile(rb"(?is)\s*<!doctype html>.{0,2000}\"base64\": ?\"gA")
_DATA = re.compile(rb'"base64": ?"([A-Za-z0-9+/=]*)"')
_JSON = re.compile(
    rb'\s*(?:\{\s*"(?:segments|device_traces)":|\[\s*\{.{0,2000}"total_size":)', re.S
)
_HEAD = 4096
_MOST = 1 << 28
"""Bytes of a snapshot in these forms, which are read as a whole."""


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
