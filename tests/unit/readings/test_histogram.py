"""Histograms as the engine writes them are checked with the library that defines the format."""

import base64
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from fakes.trials import histogram
from powerband.readings.histogram import bounds, decode, merge

HIGHEST = 3_600_000_000_000
values = st.lists(st.integers(1, HIGHEST), max_size=200)


@given(values, st.integers(1, 2**40))
def test_cells_and_counts_are_those_of_the_library(times: list[int], often: int) -> None:
    made = HdrHistogram(1, HIGHEST, 3)
    for value in times:
        made.record_value(value, often)
    cells, counts = decode(made.encode().decode())
    known = np.array(made.counts, dtype=np.int64)
    assert cells.tolist() == np.flatnonzero(known).tolist()
    assert counts.tolist() == known[known > 0].tolist()


@given(st.integers(1, HIGHEST))
def test_a_value_lies_within_the_bounds_of_its_cell(value: int) -> None:
    cells, _ = decode(histogram([value]))
    low, size = bounds(cells)
    assert low[0] <= value < low[0] + size[0]
    assert size[0] <= max(1, low[0] / 1000)


@given(st.lists(values, max_size=4))
def test_merging_is_decoding_all_together(parts: list[list[int]]) -> None:
    cells, counts = merge([decode(histogram(part)) for part in parts])
    known_cells, known_counts = decode(histogram([value for part in parts for value in part]))
    assert (cells.tolist(), counts.tolist()) == (known_cells.tolist(), known_counts.tolist())


def test_another_precision_is_refused() -> None:
    coarse = HdrHistogram(1, HIGHEST, 2)
    coarse.record_value(5)
    with pytest.raises(ValueError, match="2 digits"):
        decode(coarse.encode().decode())


def test_what_is_no_histogram_is_refused() -> None:
    with pytest.raises(ValueError, match="no compressed HdrHistogram"):
        decode(base64.b64encode(struct.pack(">II", 1, 1) + zlib.compress(b"x")).decode())


@pytest.mark.parametrize("packed", [b"", b"\x1c\x84\x93\x04", b"\x1c\x84\x93\x14\x00\x00\x00\x04abcd", b"\x00" * 40])
def test_what_is_no_histogram_is_a_value_error(packed: bytes) -> None:
    with pytest.raises(ValueError, match="HdrHistogram"):
        decode(base64.b64encode(packed).decode())


def test_a_small_text_never_unpacks_to_much(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zlib.compress(b"\x00" * (1 << 28), 9)
    packed = b"\x1c\x84\x93\x14" + len(bomb).to_bytes(4, "big") + bomb
    tracemalloc.start()
    with pytest.raises(ValueError, match="HdrHistogram"):
        decode(base64.b64encode(packed).decode())
    assert tracemalloc.get_traced_memory()[1] < 1 << 23
    tracemalloc.stop()
