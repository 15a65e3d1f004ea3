# SPDX-License-Identifier: Apache-2.0
"""Inputs that reached new code in earlier runs, in one file: `corpus.zip`, by target."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

_FILE = Path(__file__).with_name("corpus.zip")


def kept() -> dict[str, list[bytes]]:
    """The inputs of each target."""
    inputs: dict[str, list[bytes]] = {}
    with ZipFile(_FILE) as file:
        for name in file.namelist():
            inputs.setdefault(name.partition("/")[0], []).append(file.read(name))
    return inputs


def keep(inputs: Mapping[str, Sequence[bytes]]) -> None:
    """Replace the inputs of these targets. The same inputs make the same file."""
    content: dict[str, Sequence[bytes]] = {**kept(), **inputs}
    with ZipFile(_FILE, "w", ZIP_DEFLATED, compresslevel=9) as file:
        for target in sorted(content):
            for name, data in sorted((_name(data), data) for data in set(content[target])):
                file.writestr(ZipInfo(f"{target}/{name}"), data, ZIP_DEFLATED)


def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
