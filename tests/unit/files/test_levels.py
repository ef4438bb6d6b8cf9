import pytest

from powerband.files.levels import as_written, parse_levels, parse_range


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("1..64", [1, 2, 4, 8, 16, 32, 64]),
        ("10..100", [10, 20, 40, 80, 100]),
        ("1..65", [1, 2, 4, 8, 16, 32, 65]),  # 64 is too close to the end to be a level
        ("0..8", [0, 1, 2, 4, 8]),
        ("0.5..4", [0.5, 1.0, 2.0, 4.0]),
        ("1 .. 2", [1, 2]),
        ("1..8 step 1", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("1..8 step 3", [1, 4, 7, 8]),
        ("0..1 step 0.25", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("1ms..8ms", ["1ms", "2ms", "4ms", "8ms"]),
        ("500us..2ms", ["500us", "1ms", "2ms"]),
        ("1000ms..4000ms", ["1000ms", "2000ms", "4000ms"]),
        ("480m..1920m", ["480m", "960m", "1920m"]),
        ("256M..1024M step 256M", ["256M", "512M", "768M", "1024M"]),
        ("0.5s..4s", ["0.5s", "1.0s", "2.0s", "4.0s"]),
        ("0.00005s..0.0001s", ["0.00005s", "0.0001s"]),
        ("1x..8x", ["1x", "2x", "4x", "8x"]),
        ("1s..2s step 500ms", ["1s", "1500ms", "2s"]),
    ],
)
def test_ranges(text: str, levels: list[object]) -> None:
    found = parse_range(text)
    assert found == levels
    assert [type(level) for level in found or ()] == [type(level) for level in levels]


@pytest.mark.parametrize("text", ["4", "fixed", "a..b", "1...5", "..5", "1.."])
def test_what_is_no_range(text: str) -> None:
    assert parse_range(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("8..1", "from the smaller to the larger"),
        ("4..4", "from the smaller to the larger"),
        ("1..8 step 0", "step must be above 0"),
        ("0..5000 step 1", "more than 1000 values"),
        ("1..8ms", "both carry a unit"),
        ("1x..8s", "mixes units, .* is no duration"),
        ("1M..2G", "mixes units"),
    ],
)
def test_ranges_that_make_no_sense(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_range(text)


def test_levels_of_an_option() -> None:
    def levels(text: str) -> list[object]:
        return [as_written(level).value for level in parse_levels(text)]

    assert levels("1..4,16") == [1, 2, 4, 16]
    assert levels("fixed, cached,true,1.5,2ms") == ["fixed", "cached", True, 1.5, "2ms"]
    assert levels("1.9, 1.10,007,0x10,True,1e3") == [1.9, "1.10", "007", "0x10", "True", "1e3"]
    assert levels("""'1.9', "a,b" ,"","1..x",it's""") == ["1.9", "a,b", "", "1..x", "it's"]
    for text in ("1..x", "-4..4", "1e3..1e5"):
        with pytest.raises(ValueError, match="is no range"):
            parse_levels(text)
    with pytest.raises(ValueError, match="a value is empty"):
        parse_levels("1,,2")
