"""Histograms that the control plane writes are checked with our own reader and the library that defines the format."""

from __future__ import annotations

from collections import Counter

from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from powerband.processes.histogram_encoding import encode
from powerband.readings.fleet import MergedTimes
from powerband.readings.histogram import bounds, decode

values = st.lists(st.integers(0, 3_600_000_000_000), max_size=200)


@given(values, st.integers(1, 2**40))
def test_what_is_written_is_read_again(times: list[int], often: int) -> None:
    cells, counts = (
        decode(encode({value: often * count for value, count in Counter(times).items()})) if times else ([], [])
    )
    low, size = bounds(cells) if times else ([], [])
    assert sum(int(count) for count in counts) == often * len(times)
    for value in times:
        assert any(first <= value < first + width for first, width in zip(low, size, strict=True))


@given(st.lists(st.integers(1, 3_600_000_000_000), min_size=1, max_size=50))
def test_the_library_reads_it(times: list[int]) -> None:
    read = HdrHistogram.decode(encode(Counter(times)))
    assert read.get_total_count() == len(times)
    known = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in times:
        known.record_value(value)
    for share in (0, 50, 99, 100):
        assert read.get_value_at_percentile(share) == known.get_value_at_percentile(share)


def test_nothing_is_no_histogram_and_a_day_is_the_most() -> None:
    assert encode({}) == "" == encode({5: 0})
    assert MergedTimes([encode({10**18: 2})]).count == 2
