"""Series for the page: one unit per panel, nothing before the start, long lines thinned."""

from dataclasses import replace

from fakes import synthetic, synthetic_verdicts
from fakes.trials import histogram
from powerband.analyze.trial.series import LoadSeries, TrialSeries
from powerband.analyze.trial.thread_states import ThreadStates
from powerband.analyze.trial.threads import LabelledSeries
from powerband.model.plan import Stage
from powerband.readings.fleet import MergedTimes
from powerband.report.html.tracks import (
    POINTS_MAX,
    _bands,
    _comparable,
    _labelled_panel,
    _panel,
    _quantiles,
    _thinned,
    _view,
    _within,
    trials_shown,
)


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
    (whole,) = _panel("Rate", "per_s", seconds, [("ok", seconds)])
    (track,) = _thinned([whole], POINTS_MAX)
    assert POINTS_MAX / 2 <= len(track.points) <= POINTS_MAX
    steps = [b[0] - a[0] for a, b in zip(track.points, track.points[1:], strict=False)]
    assert max(steps) <= 5.0 and track.points[-1] == whole.points[-1]


def test_a_stall_of_one_second_stays_in_an_hour() -> None:
    seconds = tuple(map(float, range(3600)))
    rate = tuple(0.0 if second == 1803 else 50.0 for second in range(3600))
    p99 = tuple(9.0 if second in (1803, 3599) else 1.0 for second in range(3600))
    whole = _panel("Load", "per_s", seconds, [("ok", rate), ("p99", p99)])
    tracks = _thinned(whole, POINTS_MAX)
    assert (1803.0, 0.0) in tracks[0].points and [t for t, value in tracks[1].points if value == 9.0] == [1803, 3599]
    for thin, long in zip(tracks, whole, strict=True):
        assert set(thin.points) <= set(long.points) and len(thin.points) <= POINTS_MAX + 2
    assert [t for t, _ in tracks[0].points] == [t for t, _ in tracks[1].points]
    parts = _thinned(
        [replace(track, band=True) for track in _panel("States", "count", seconds, [("", rate)])], POINTS_MAX
    )
    assert sorted({value for _, value in parts[0].points if value is not None}) == [50.0 * 8 / 9, 50.0]


def test_a_short_run_shows_every_trial() -> None:
    analysis = synthetic.analysis()
    assert trials_shown(analysis, 200) == {trial.number for trial in analysis.trials}


def test_a_long_run_shows_each_setting_and_what_went_wrong() -> None:
    analysis = synthetic.analysis(blocks=60)
    shown = trials_shown(analysis, 100)
    assert len(shown) == 100
    assert {12, 30} <= shown  # the invalid ones
    by_setting = {row.setting: 0 for row in analysis.settings}
    for trial in analysis.trials:
        by_setting[trial.setting] += trial.number in shown and trial.valid
    assert min(by_setting.values()) >= 10
    assert max(by_setting.values()) - min(by_setting.values()) <= 1
    broken = replace(analysis, trials=tuple(replace(trial, status="failed") for trial in analysis.trials))
    assert len(trials_shown(broken, 100)) == 25


def test_only_trials_under_one_load_share_a_histogram() -> None:
    race = synthetic_verdicts.race_analysis()
    assert _comparable(race) == {t.number for t in race.trials if t.valid and t.stage is Stage.COMPARE}
    search = synthetic_verdicts.capacity_analysis()
    rates = {t.setting.id: t.rate_per_s for t in search.trials if t.number in _comparable(search)}
    assert "threads=4" not in rates  # it met the SLO at no rate
    assert rates["threads=8"] == next(p.rate_per_s for p in synthetic_verdicts.capacity(8).curve[3:4])


def test_users_of_websockets_have_panels_and_nobody_lost_has_none() -> None:
    load = LoadSeries(
        t_s=(1.0, 2.0), rate_per_s=(5.0, 5.0), failed_per_s=(0.0, 0.0), in_flight=(1.0, 1.0),
        response_time_ns_p50=(None, None), response_time_ns_p99=(None, None),
        joined=(10.0, 20.0), drops_per_s=(0.0, 2.0), joins_failed_per_s=(0.0, 0.0), delivered_per_s=(0.0, 0.0),
    )  # fmt: skip
    tracks = {(track.panel, track.label): track.points for track in _view(TrialSeries(load=load), 1).tracks}
    assert tracks["Users", "joined"] == ((1.0, 10.0), (2.0, 20.0))
    assert tracks["Users lost", "dropped"] == ((1.0, 0.0), (2.0, 2.0))
    assert {("Users lost", "failed to join"), ("Deliveries", "")}.isdisjoint(tracks)


def test_labelled_series_have_the_unit_of_their_name() -> None:
    def shown(name: str, value: float) -> tuple[str, str, float | None]:
        (track,) = _labelled_panel(LabelledSeries(name, (1.0,), (("worker 0", (value,)),)))
        assert track.label == "worker 0"
        return track.panel, track.unit, track.points[0][1]

    assert shown("cpu_seconds_total", 0.5) == ("cpu_seconds_total/s", "cores", 0.5)
    assert shown("delay_seconds", 0.002) == ("delay_seconds", "ms", 2.0)
    assert shown("resident_bytes", 2.0**20) == ("resident_bytes", "MiB", 1.0)
    assert shown("pings_total", 7.0) == ("pings_total/s", "/s", 7.0)
    assert shown("load_1m", 3.0)[0] == "load_1m"


def test_thread_states_stand_on_each_other_under_the_words_that_people_know() -> None:
    tracks = _bands("Thread states", ThreadStates((1.0, 2.0), (("on_cpu", (0.5, 1.0)), ("novel", (3.5, 3.0)))))
    assert [(track.label, track.unit, track.band) for track in tracks] == [
        ("on a CPU", "", True),
        ("blocked on other things", "", True),
    ]
    assert tracks[0].points == ((1.0, 0.5), (2.0, 1.0))


def test_a_page_of_very_many_lines_is_thinned_as_a_whole() -> None:
    views = synthetic.page().trials
    whole = sum(len(track.points) for view in views for track in view.tracks)
    assert _within(views, whole) == views
    thinned = _within(views, whole // 2)
    assert sum(len(track.points) for view in thinned for track in view.tracks) <= whole // 2 + len(views) * 12
    assert [len(view.tracks) for view in thinned] == [len(view.tracks) for view in views]
    assert thinned[0].tracks[0].points[0] == views[0].tracks[0].points[0]


def test_a_percentile_of_merged_requests_needs_ten_beyond_it() -> None:
    named = dict(_quantiles(MergedTimes([histogram(list(range(1000, 2000)))])).named)
    assert named["p99"] is not None and named["maximum"] is not None
    assert named["p99.9"] is None and named["p99.99"] is None
