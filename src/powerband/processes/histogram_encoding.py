"""Encodes times as the engine does: as an HdrHistogram V2 with 3 significant digits, through zlib and base64.
`readings/histogram.py` describes the format and reads it; the tests compare both with the library hdrh."""

from __future__ import annotations

import base64
import struct
import zlib
from collections import Counter
from collections.abc import Mapping

_COMPRESSED_COOKIE, _COOKIE = 0x1C849314, 0x1C849313
_HEADER = struct.Struct(">IIiIQQd")
_HALF_MAGNITUDE = 10  # half a bucket has 2 ** 10 cells
_HIGHEST_NS = 24 * 3600 * 10**9  # a day: a sample of JMeter may be longer than the engine's limit of an hour


def encode(times: Mapping[int, int]) -> str:
    """Encodes a histogram. `times`: how often each value in ns occurred. Returns an empty text if there are none, as
    the engine does."""
    cells: Counter[int] = Counter()
    for value, count in times.items():
        cells[_cell(min(value, _HIGHEST_NS))] += count
    payload = bytearray()
    following = 0
    for cell in sorted(cell for cell, count in cells.items() if count):
        if cell > following:
            payload += _number(following - cell)
        payload += _number(cells[cell])
        following = cell + 1
    if not payload:
        return ""
    packed = zlib.compress(_HEADER.pack(_COOKIE, len(payload), 0, 3, 1, _HIGHEST_NS, 1.0) + payload)
    return base64.b64encode(struct.pack(">II", _COMPRESSED_COOKIE, len(packed)) + packed).decode("ascii")


def _cell(value: int) -> int:
    """Returns the cell of a value. Values below 2,048 have a cell each; from there on each doubling has half as
    many."""
    bucket = max(0, value.bit_length() - _HALF_MAGNITUDE - 1)
    return (bucket << _HALF_MAGNITUDE) + (value >> bucket)


def _number(number: int) -> bytes:
    """Encodes a number as zigzag LEB128."""
    coded = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while coded >= 0x80:
        out.append(coded & 0x7F | 0x80)
        coded >>= 7
    out.append(coded)
    return bytes(out)
