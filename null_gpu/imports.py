# SPDX-License-Identifier: Apache-2.0
"""What the shared libraries of a folder import from libraries that are not in it."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_DRIVER_NAME = re.compile(rb"\0((?:cu|nvml)[A-Z]\w{2,60})(?=\0)")
_UNDEFINED = 0  # number of the section that a symbol is not in


@dataclass
class Imports:
    """The imports of libraries.

    needed: SONAMEs of other libraries. symbols: name -> the SONAME and the version that it
    requires, both "" if it has no version. named: names of the driver's functions among a library's
    strings: it looks them up in the driver at run time.
    """

    needed: set[str] = field(default_factory=set)
    symbols: dict[str, tuple[str, str]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)


def read(folder: Path) -> Imports:
    """The imports of all libraries in a folder; raises OSError, or ELFError for a non-ELF file."""
    imports, defined, own = Imports(), set[str](), set[str]()
    for path in sorted(folder.glob("*.so*")):
        again = path.is_symlink() and path.resolve().parent == folder.resolve()
        if again or not path.is_file():
            continue
        own.add(path.name)
        with path.open("rb") as file:
            elf = _elf(file)
            needed = {
                tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
            }
            imports.needed |= needed
            for name, is_defined, wanted in _symbols(elf):
                if is_defined:
                    defined.add(name)
                else:
                    imports.symbols[name] = max(imports.symbols.get(name, ("", "")), wanted)
            if any("cuda" in soname for soname in needed) and (
                texts := elf.get_section_by_name(".rodata")
            ):
                names = _DRIVER_NAME.findall(texts.data())
                imports.named |= {name.decode() for name in names}
    imports.needed -= own
    for name in defined & imports.symbols.keys():
        del imports.symbols[name]
    return imports


def exported(library: Path) -> set[str]:
    """The names of the symbols that a library defines."""
    with library.open("rb") as file:
        return {name for name, is_defined, _ in _symbols(_elf(file)) if is_defined}


def _elf(file: Any) -> Any:
    from elftools.elf.elffile import ELFFile

    return ELFFile(file)


def _symbols(elf: Any) -> Iterator[tuple[str, bool, tuple[str, str]]]:
    """Each dynamic symbol: its name, whether it is defined, the library and version it requires.

    The tables are read directly, because PyTorch's have hundreds of thousands of symbols.
    """
    wanted = dict[int, tuple[str, str]]()
    if needs := elf.get_section_by_name(".gnu.version_r"):
        for library, versions in needs.iter_versions():
            for version in versions:
                wanted[version["vna_other"]] = library.name, version.name
    table = elf.get_section_by_name(".dynsym").data()
    names = elf.get_section_by_name(".dynstr").data()
    versions = elf.get_section_by_name(".gnu.version")
    indices = struct.unpack(f"<{len(table) // 24}H", versions.data()) if versions else None
    for position, symbol in enumerate(struct.iter_unpack("<IBBHQQ", table)):
        begin, section = symbol[0], symbol[3]
        if begin:
            name = names[begin : names.index(0, begin)].decode()
            has = wanted.get(indices[position] & 0x7FFF, ("", "")) if indices else ("", "")
            yield name, section != _UNDEFINED, has
