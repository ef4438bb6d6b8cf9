"""Reads sections and symbols of a 64-bit little-endian ELF file (elf(5)), as far as they identify an executable's
runtime.

In: a path. Out: the bytes of a section, the address of a symbol. Not here: what they mean (`processes/runtimes.py`).
"""

from __future__ import annotations

import struct
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

_SECTION_BYTES_MAX = 64 << 20  # arbitrary: a section is read whole; the symbols of large Go programs take some MB
_SECTIONS_MAX = 4096  # arbitrary: executables have some forty
_SYMBOL_BYTES = 24
_SEGMENT_BYTES = 56
_LOADED = 1  # PT_LOAD
_MOVABLE = 3  # ET_DYN: addresses are relative to where the file was loaded


class ElfError(ValueError):
    """The file is no ELF file, or not as elf(5) describes it."""


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


class Elf:
    """An open ELF file, to be used in a `with` block. `first_address`: the address, as in the file, of its first part
    that is loaded. `movable`: its addresses are relative to where it was loaded. Raises OSError if it cannot be read,
    ElfError if it is no such file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        try:
            self._sections = self._read_sections()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Elf:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def _read_sections(self) -> dict[str, _Section]:
        header = self._file.read(64)
        if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
            raise ElfError("no 64-bit little-endian ELF file")
        self.movable = struct.unpack_from("<H", header, 16)[0] == _MOVABLE
        self.first_address = self._first_address(header)
        (table,) = struct.unpack_from("<Q", header, 40)
        length, count, names_at = struct.unpack_from("<HHH", header, 58)
        if length < 64 or not names_at < count <= _SECTIONS_MAX:
            raise ElfError("no table of sections")
        data = self._at(table, length * count)
        sections = [_Section(*struct.unpack_from("<IIQQQQI", data, at * length)) for at in range(count)]
        names = self._bytes(sections[names_at])
        self._list = sections
        return {_text(names, section.name): section for section in reversed(sections)}

    def _first_address(self, header: bytes) -> int:
        (table,) = struct.unpack_from("<Q", header, 32)
        length, count = struct.unpack_from("<HH", header, 54)
        data = self._at(table, length * count)
        for at in range(0, len(data) - _SEGMENT_BYTES + 1, max(length, _SEGMENT_BYTES)):
            kind, _, _, address = struct.unpack_from("<IIQQ", data, at)
            if kind == _LOADED:
                return int(address)
        raise ElfError("nothing of it is loaded")

    def _at(self, offset: int, size: int) -> bytes:
        if size > _SECTION_BYTES_MAX or offset >> 63 != 0:
            raise ElfError("a part is too large, or lies too far")
        try:
            self._file.seek(offset)
            data = self._file.read(size)
        except OSError as error:
            raise ElfError(f"a part cannot be read: {error}") from error
        if len(data) < size:
            raise ElfError("a part is cut short")
        return data

    def _bytes(self, section: _Section) -> bytes:
        return self._at(section.offset, section.size)

    def section(self, name: str) -> bytes | None:
        """Returns the section's bytes; None if there is no section of that name."""
        found = self._sections.get(name)
        return None if found is None else self._bytes(found)

    def place(self, name: str) -> tuple[int, int] | None:
        """Returns the section's address, as in the file, and its size in bytes once loaded; None if there is no section
        of that name."""
        found = self._sections.get(name)
        return None if found is None else (found.address, found.size)

    def symbol(self, name: str) -> int | None:
        """Returns the symbol's address, as in the file; None if it is missing, as in a stripped file."""
        table = self._sections.get(".symtab")
        if table is None or not table.link < len(self._list):
            return None
        names, symbols = self._bytes(self._list[table.link]), self._bytes(table)
        at = names.find(b"\0" + name.encode() + b"\0") + 1
        if at == 0:
            return None
        wanted, found = struct.pack("<I", at), -1
        while (found := symbols.find(wanted, found + 1)) >= 0:
            if found % _SYMBOL_BYTES == 0 and found + _SYMBOL_BYTES <= len(symbols):
                return int(struct.unpack_from("<Q", symbols, found + 8)[0])
        return None


def _text(names: bytes, at: int) -> str:
    return names[at : max(at, names.find(b"\0", at))].decode(errors="replace")
