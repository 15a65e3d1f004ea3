# SPDX-License-Identifier: Apache-2.0
"""ELF files for x86-64: what shared libraries import, and a library of jumps to another one.

Formats: the System V ABI (ELF-64, the AMD64 supplement) and, for symbol versions, the Linux
Standard Base. Section headers are written as well, because linkers need them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
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


_PAGE = 0x1000
_EXECUTABLE, _WRITABLE, _READABLE = 1, 2, 4
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_GLOBAL_FUNCTION = 0x12  # binding and type of a symbol
_RELOCATION = 6  # R_X86_64_GLOB_DAT
_CORE_INDEX, _FIRST_VERSION = 1, 2


@dataclass(frozen=True)
class Jump:
    """What a function does: it jumps to `target` of the other library.

    With `name` and `status`, its first two arguments are replaced by them.
    """

    target: str
    name: str | None = None
    status: int = 0


@dataclass
class _Strings:
    data: bytearray = field(default_factory=lambda: bytearray(1))
    offsets: dict[str, int] = field(default_factory=dict)

    def add(self, text: str) -> int:
        if text not in self.offsets:
            self.offsets[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self.offsets[text]


def hash_of(name: str) -> int:
    """The hash of a symbol, as the System V ABI defines it."""
    value = 0
    for letter in name.encode():
        value = (value << 4) + letter
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value & 0xFFFFFFFF


def shared_library(soname: str, needed: str, functions: Mapping[str, tuple[str, Jump]]) -> bytes:
    """The bytes of a library.

    needed: the SONAME of the library with the targets. functions: name -> version (or "") and jump.
    """
    strings = _Strings()
    targets = sorted({jump.target for _, jump in functions.values()})
    versions = sorted({version for version, _ in functions.values() if version})
    numbers = {version: _FIRST_VERSION + n for n, version in enumerate(versions)}
    names = [*targets, *functions]
    slots = {target: n for n, target in enumerate(targets)}

    code = _code(functions, slots)
    verdef = _version_definitions(strings, soname, versions) if versions else b""
    indices = [0] * (len(targets) + 1) + [
        numbers.get(version, _CORE_INDEX) for version, _ in functions.values()
    ]
    name_offsets = [strings.add(name) for name in names]
    needed_offset, soname_offset = strings.add(needed), strings.add(soname)

    layout = _FileLayout(64 + 4 * 56)
    layout.place(".hash", _hash_table(names), 8)
    layout.place(".dynsym", bytes(24 * (len(names) + 1)), 8)
    layout.place(".dynstr", bytes(strings.data), 1)
    if versions:
        layout.place(".gnu.version", struct.pack(f"<{len(indices)}H", *indices), 2)
        layout.place(".gnu.version_d", verdef, 8)
    layout.place(".rela.dyn", bytes(24 * len(targets)), 8)
    layout.place(".text", bytes(len(code.data)), 16)
    writable = layout.next_page()
    layout.place(".dynamic", bytes(16 * 16), 8)
    layout.place(".got", bytes(8 * len(targets)), 8)

    text, got = layout.at(".text"), layout.at(".got")
    layout.fill(".dynsym", _symbol_table(names, name_offsets, code, text, layout.index(".text")))
    # One relocation for each target: its address belongs into its slot.
    slot_of = [(got + 8 * n, (n + 1) << 32 | _RELOCATION, 0) for n in range(len(targets))]
    layout.fill(".rela.dyn", b"".join(struct.pack("<QQq", *slot) for slot in slot_of))
    layout.fill(".text", code.linked(text, got))
    layout.fill(".dynamic", _dynamic(layout, needed_offset, soname_offset, len(versions)))
    return _file(layout, writable)


def _symbol_table(
    names: Sequence[str], offsets: Sequence[int], code: _Code, text: int, section: int
) -> bytes:
    """The symbol table: functions that the code defines, and the others, which are undefined.

    offsets: of the names in the string table. text: where the code begins; section: its number.
    """
    symbols = [struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)]
    for name, offset in zip(names, offsets, strict=True):
        index, value, size = 0, 0, 0
        if name in code.starts:
            begin, size = code.starts[name]
            index, value = section, text + begin
        symbols.append(struct.pack("<IBBHQQ", offset, _GLOBAL_FUNCTION, 0, index, value, size))
    return b"".join(symbols)


class _FileLayout:
    """Sections one after the other; an offset in the file is the address in memory."""

    def __init__(self, begin: int) -> None:
        self.sections: dict[str, tuple[int, bytes]] = {}
        self.end = begin

    def place(self, name: str, data: bytes, align: int) -> None:
        self.end = -(-self.end // align) * align
        self.sections[name] = (self.end, data)
        self.end += len(data)

    def fill(self, name: str, data: bytes) -> None:
        offset, reserved = self.sections[name]
        assert len(data) == len(reserved), name
        self.sections[name] = (offset, data)

    def next_page(self) -> int:
        self.end = -(-self.end // _PAGE) * _PAGE
        return self.end

    def at(self, name: str) -> int:
        return self.sections[name][0]

    def size(self, name: str) -> int:
        return len(self.sections[name][1])

    def index(self, name: str) -> int:
        return 1 + list(self.sections).index(name)


@dataclass
class _Code:
    """Functions, followed by the texts that they name.

    starts: function -> offset and bytes. jumps: where the distance to which slot is to be put.
    """

    data: bytearray = field(default_factory=bytearray)
    starts: dict[str, tuple[int, int]] = field(default_factory=dict)
    jumps: list[tuple[int, int]] = field(default_factory=list)

    def linked(self, text: int, got: int) -> bytes:
        """The code at an address, with its slots at another."""
        linked = bytearray(self.data)
        for place, slot in self.jumps:
            struct.pack_into("<i", linked, place, got + 8 * slot - (text + place + 4))
        return bytes(linked)


def _code(functions: Mapping[str, tuple[str, Jump]], slots: Mapping[str, int]) -> _Code:
    code, texts = _Code(), list[tuple[int, str]]()
    data = code.data
    for name, (_, jump) in functions.items():
        start = len(data)
        if jump.name is not None:
            data += b"\x48\x8d\x3d"  # lea rdi, [rip + text]
            texts.append((len(data), jump.name))
            data += bytes(4)
            data += b"\xbe" + struct.pack("<i", jump.status)  # mov esi, status
        data += b"\xff\x25"  # jmp [rip + slot]
        code.jumps.append((len(data), slots[jump.target]))
        data += bytes(4)
        code.starts[name] = start, len(data) - start
        data += b"\xcc" * (-len(data) % 8)
    for place, text in texts:
        struct.pack_into("<i", data, place, len(data) - (place + 4))
        data += text.encode() + b"\0"
    return code


def _hash_table(names: Sequence[str]) -> bytes:
    buckets = [0] * max(1, len(names) // 2)
    chains = [0] * (len(names) + 1)
    for index, name in enumerate(names, 1):
        bucket = hash_of(name) % len(buckets)
        chains[index], buckets[bucket] = buckets[bucket], index
    words = [len(buckets), len(chains), *buckets, *chains]
    return struct.pack(f"<{len(words)}I", *words)


def _version_definitions(strings: _Strings, soname: str, versions: Sequence[str]) -> bytes:
    """The library itself, then its versions; each with one name."""
    entries = [(soname, _CORE_INDEX, 1)]
    entries += [(version, _FIRST_VERSION + n, 0) for n, version in enumerate(versions)]
    data = b""
    for position, (name, index, flags) in enumerate(entries):
        to_next = 0 if position + 1 == len(entries) else 28
        data += struct.pack("<HHHHIII", 1, flags, index, 1, hash_of(name), 20, to_next)
        data += struct.pack("<II", strings.add(name), 0)
    return data


def _dynamic(layout: _FileLayout, needed: int, soname: int, versions: int) -> bytes:
    tags = [
        (1, needed),
        (14, soname),
        (4, layout.at(".hash")),
        (5, layout.at(".dynstr")),
        (6, layout.at(".dynsym")),
        (10, layout.size(".dynstr")),
        (11, 24),
        (7, layout.at(".rela.dyn")),
        (8, layout.size(".rela.dyn")),
        (9, 24),
        (24, 0),  # all symbols are bound at once
    ]
    if versions:
        tags += [
            (0x6FFFFFF0, layout.at(".gnu.version")),
            (0x6FFFFFFC, layout.at(".gnu.version_d")),
            (0x6FFFFFFD, versions + 1),
        ]
    tags += [(0, 0)] * (16 - len(tags))
    return b"".join(struct.pack("<QQ", *tag) for tag in tags)


# section -> type, flags, section it refers to, size of an entry
_KINDS = {
    ".hash": (5, 2, ".dynsym", 4),
    ".dynsym": (11, 2, ".dynstr", 24),
    ".dynstr": (3, 2, "", 0),
    ".gnu.version": (0x6FFFFFFF, 2, ".dynsym", 2),
    ".gnu.version_d": (0x6FFFFFFD, 2, ".dynstr", 0),
    ".rela.dyn": (4, 2, ".dynsym", 24),
    ".text": (1, 6, "", 0),
    ".dynamic": (6, 3, ".dynstr", 16),
    ".got": (1, 3, "", 8),
    ".shstrtab": (3, 0, "", 0),
}


def _file(layout: _FileLayout, writable: int) -> bytes:
    end = layout.end
    names = _Strings()
    for name in [*layout.sections, ".shstrtab"]:
        names.add(name)
    layout.place(".shstrtab", bytes(names.data), 1)
    headers_at = -(-layout.end // 8) * 8

    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    count = len(layout.sections) + 1
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, headers_at, 0, 64, 56, 4, 64, count, count - 1
    )
    text_end = layout.at(".text") + layout.size(".text")
    segments = [
        (_LOAD, _READABLE | _EXECUTABLE, 0, text_end, _PAGE),
        (_LOAD, _READABLE | _WRITABLE, writable, end - writable, _PAGE),
        (_DYNAMIC, _READABLE | _WRITABLE, layout.at(".dynamic"), layout.size(".dynamic"), 8),
        (_STACK, _READABLE | _WRITABLE, 0, 0, 16),
    ]
    for kind, flags, offset, size, align in segments:
        header += struct.pack("<IIQQQQQQ", kind, flags, offset, offset, offset, size, size, align)

    image = bytearray(headers_at)
    image[: len(header)] = header
    table = bytes(64)
    for name, (offset, data) in layout.sections.items():
        image[offset : offset + len(data)] = data
        kind, flags, link, entry = _KINDS[name]
        info = len(data) // 28 if name == ".gnu.version_d" else int(name == ".dynsym")
        address = 0 if name == ".shstrtab" else offset
        linked = layout.index(link) if link else 0
        table += struct.pack(
            "<IIQQQQIIQQ",
            names.offsets[name], kind, flags, address, offset, len(data), linked, info, 8, entry,
        )  # fmt: skip
    return bytes(image) + table
