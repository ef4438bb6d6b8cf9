"""JMeter's results are read while they grow: cut anywhere, quoted, damaged."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from powerband.loads.jmeter.jtl import COLUMNS, JtlReader, JtlSample

HEADER = "timeStamp,elapsed,label,responseCode,responseMessage,success,bytes,sentBytes,grpThreads,allThreads,threadName"
ROW = "1700000000123,45,Front page,200,OK,true,310,120,4,8,Some users 1-2"
SAMPLE = JtlSample(1_700_000_000_123, 45, "Front page", "200", "OK", True, 310, 120, 8, "Some users")
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
samples = st.builds(
    JtlSample,
    st.integers(1, 2**42),
    st.integers(0, 10**7),
    texts,
    texts,
    texts,
    st.booleans(),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.integers(0, 10**4),
    texts,
    st.integers(0, 10**7),
)


def written(rows: list[JtlSample]) -> bytes:
    """The rows as JMeter writes them: texts with a comma, a quote or a line break are quoted."""

    def quoted(value: object) -> str:
        text = str(value)
        return f'"{text.replace(chr(34), chr(34) * 2)}"' if set(text) & set(',"\r\n') else text

    lines = [
        (*COLUMNS, "IdleTime"),
        *([*row[:5], str(row.ok).lower(), *row[6:9], f"{row.group} 1-2", row.idle_ms] for row in rows),
    ]
    return "".join(",".join(map(quoted, line)) + "\n" for line in lines).encode()


def read(file: Path, *parts: bytes) -> list[JtlSample]:
    """The samples that are read, with a look after each part is written."""
    file.unlink(missing_ok=True)
    reader, found = JtlReader(file), []
    found += reader.read()
    for part in parts:
        with file.open("ab") as out:
            out.write(part)
        found += reader.read()
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(samples, max_size=8), st.lists(st.integers(0, 2000), max_size=4))
def test_wherever_it_is_cut_the_same_is_read(tmp_path: Path, rows: list[JtlSample], cuts: list[int]) -> None:
    data = written(rows)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parts = [data[start:end] for start, end in pairwise(edges)]
    assert read(tmp_path / "x.jtl", *parts) == rows


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(samples, min_size=1, max_size=5), st.data())
def test_a_file_that_ends_anywhere_gives_its_whole_rows(
    tmp_path: Path, rows: list[JtlSample], data: st.DataObject
) -> None:
    whole = written(rows)
    found = read(tmp_path / "x.jtl", whole[: data.draw(st.integers(0, len(whole)))])
    assert found == rows[: len(found)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_anything_else_is_refused_with_a_sentence(tmp_path: Path, data: bytes) -> None:
    try:
        read(tmp_path / "x.jtl", HEADER.encode() + b"\n" + data)
    except ValueError as error:
        assert str(error)


def test_columns_are_found_by_name_and_those_of_variables_are_left(tmp_path: Path) -> None:
    head, row = f'Latency,{HEADER},"user"', f'7,{ROW},"some, body"'
    assert read(tmp_path / "x.jtl", f"{head}\r\n{row}\r\n".encode()) == [SAMPLE]


def test_a_message_over_several_lines_is_one_field(tmp_path: Path) -> None:
    row = ROW.replace("OK", '"no ""page"",\nnowhere"').encode()
    (found,) = read(tmp_path / "x.jtl", f"{HEADER}\n".encode(), row[:40], row[40:60], row[60:] + b"\n")
    assert found.message == 'no "page",\nnowhere'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("timeStamp,elapsed\n", "column label is missing"),
        (f"{HEADER}\nyesterday,45,a,200,OK,true,1,1,1,1\n", "none of its results"),
        (f"{HEADER}\n{ROW[:20]}\n", "none of its results"),
        (f'{HEADER}\n"{"x" * (1 << 20)}', "a row is longer"),
    ],
)
def test_damage_is_told(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(tmp_path / "x.jtl", text.encode())


def test_pauses_within_a_transaction_are_read_where_they_are_written(tmp_path: Path) -> None:
    rows = f"{HEADER},IdleTime\n{ROW},2970\n{ROW},-1\n"
    assert read(tmp_path / "x.jtl", rows.encode()) == [SAMPLE._replace(idle_ms=2_970), SAMPLE]


def test_a_sample_that_never_began_and_one_of_negative_time(tmp_path: Path) -> None:
    rows = f"{HEADER}\n{ROW.replace('1700000000123', '0')}\n{ROW.replace(',45,', ',-1,')}\n"
    assert read(tmp_path / "x.jtl", rows.encode()) == [SAMPLE._replace(elapsed_ms=0)]
