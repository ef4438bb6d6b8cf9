"""Decodes the engine's HdrHistograms. In: text. Out: occupied cells with their counts, as arrays.

The format is HdrHistogram's V2 with zlib, in base64: a header, then for each cell in turn its count, or a negative
number that skips so many empty ones; each number is zigzag-coded in groups of 7 bits (LEB128). The library hdrh reads
it too, but allocates all 33,000 cells each time, and a run has thousands of histograms; the tests compare the two."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]

HALF_MAGNITUDE = 10  # log2 of half a bucket's cells: 3 significant digits need 2 x 1,024 cells
_COMPRESSED_COOKIE, _COOKIE = 0x1C849304, 0x1C849303
_COOKIE_MASK = ~0xF0  # the word size, which has no meaning in V2
_HEADER = struct.Struct(">IIiIQQd")
_PAYLOAD_BYTES_MAX = 1 << 20  # more than all cells take: a small text may unpack to gigabytes
_NO_CELLS: Ints = np.empty(0, dtype=np.int64)


def decode(text: str) -> tuple[Ints, Ints]:
    """(cells, counts) of the occupied cells, cells ascending. Raises ValueError for any format other than the engine's:
    times from 1 ns, 3 significant digits."""
    try:
        return _decoded(base64.b64decode(text))
    except (struct.error, zlib.error) as error:
        raise ValueError(f"no HdrHistogram: {error}") from None


def _decoded(packed: bytes) -> tuple[Ints, Ints]:
    cookie, length = struct.unpack_from(">II", packed)
    if cookie & _COOKIE_MASK != _COMPRESSED_COOKIE & _COOKIE_MASK:
        raise ValueError(f"no compressed HdrHistogram: it begins with {cookie:#x}")
    payload = zlib.decompressobj().decompress(packed[8 : 8 + length], _PAYLOAD_BYTES_MAX)
    cookie, length, offset, digits, lowest, _, _ = _HEADER.unpack_from(payload)
    if cookie & _COOKIE_MASK != _COOKIE & _COOKIE_MASK or (offset, digits, lowest) != (0, 3, 1):
        raise ValueError(f"not the engine's HdrHistogram: offset {offset}, {digits} digits, lowest {lowest}")
    numbers = _numbers(np.frombuffer(payload, np.uint8, length, _HEADER.size))
    # A count advances by one cell, a negative number by the cells it skips; a count belongs to the cell at its
    # beginning.
    steps = np.where(numbers < 0, -numbers, 1)
    counted = numbers > 0
    cells = np.cumsum(steps) - steps
    return cells[counted], numbers[counted]


def merge(parts: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """The sum of all histograms, without loss."""
    if len(parts) < 2:
        return parts[0] if parts else (_NO_CELLS, _NO_CELLS)
    cells, place = np.unique(np.concatenate([cells for cells, _ in parts]), return_inverse=True)
    counts = np.zeros(cells.size, dtype=np.int64)
    np.add.at(counts, place, np.concatenate([counts for _, counts in parts]))
    return cells, counts


def bounds(cells: Ints) -> tuple[Ints, Ints]:
    """The lowest value and the width of each cell (HdrHistogram's `get_value_from_index`)."""
    half = 1 << HALF_MAGNITUDE
    bucket = (cells >> HALF_MAGNITUDE) - 1
    within = (cells & (half - 1)) + np.where(bucket < 0, 0, half)
    bucket = np.maximum(bucket, 0)
    return within << bucket, np.int64(1) << bucket


def _numbers(data: np.ndarray[Any, np.dtype[np.uint8]]) -> Ints:
    """Decodes zigzag LEB128, all numbers at once. Numbers of nine bytes, the format's longest, never occur: they begin
    at 2 ** 56."""
    ends = np.flatnonzero(data < 0x80)
    if not ends.size:
        return _NO_CELLS
    starts = np.concatenate(([0], ends[:-1] + 1))
    data = data[: ends[-1] + 1]
    place = np.arange(data.size) - np.repeat(starts, ends - starts + 1)
    parts = (data & 0x7F).astype(np.int64) << (7 * place)
    coded = np.add.reduceat(parts, starts)
    return np.asarray((coded >> 1) ^ -(coded & 1))
