"""Series for the page: one unit a panel, nothing before the start, long lines thinned."""

from powerband.report.tracks import POINTS_MAX, _panel


def test_lines_of_a_panel_share_the_unit_of_the_largest() -> None:
    p50, p99 = _panel("Response time", "ns", (1.0, 2.0), [("p50", (2e3, 3e3)), ("p99", (5e6, None))])
    assert (p50.unit, p99.unit) == ("ms", "ms")
    assert p50.points == ((1.0, 0.002), (2.0, 0.003))
    assert p99.points == ((1.0, 5.0), (2.0, None))


def test_what_came_before_the_start_is_not_shown() -> None:
    (track,) = _panel("Threads", "count", (-1.0, 0.0, 1.0), [("alive", (1.0, 2.0, 3.0))])
    assert track.points == ((0.0, 2.0), (1.0, 3.0))


def test_a_line_without_values_is_left_out() -> None:
    assert _panel("Memory", "bytes", (1.0,), [("resident", (None,))]) == []


def test_long_lines_are_thinned_evenly() -> None:
    seconds = tuple(i / 10 for i in range(10_000))
    (track,) = _panel("Rate", "per_s", seconds, [("ok", seconds)])
    assert POINTS_MAX / 2 <= len(track.points) <= POINTS_MAX
    steps = {round(b[0] - a[0], 6) for a, b in zip(track.points, track.points[1:], strict=False)}
    assert steps == {2.5}
