from __future__ import annotations

from pathlib import Path

import pytest

from fakes.trials import Figures, failed_record, record_of, spec, trial_series, write_trial
from powerband.analyze.trial.series import TrialSeries
from powerband.store import TrialDir


def test_the_series_of_an_even_trial_are_flat(tmp_path: Path) -> None:
    directory = TrialDir(tmp_path / "0001")
    figures = Figures()
    series = trial_series(directory, write_trial(directory, record_of(spec(), figures), figures))
    assert series.phases_s["go"] == 0 and series.phases_s["measure"] == 2 and series.phases_s["launched"] == -1
    load = series.load
    assert load.t_s == tuple(float(t) for t in range(1, 13))
    assert load.rate_per_s == pytest.approx([1000.0] * 12)
    assert load.failed_per_s == pytest.approx([0.0] * 12)
    assert load.response_time_ns_p99 == pytest.approx([1e7] * 12, rel=1e-3)
    subject = series.subject
    assert subject.cpu_user_cores == pytest.approx([0.375] * len(subject.t_s), rel=1e-3)
    assert subject.context_switches_per_s == pytest.approx([2000.0] * len(subject.t_s), rel=1e-2)
    assert set(subject.threads) == {4.0}
    assert series.host.busy_share == pytest.approx([0.425] * len(series.host.t_s), rel=1e-3)
    (pool,) = series.pools
    assert pool.pool == "worker" and pool.states == series.states
    assert [name for name, _ in pool.states.bands] == ["on_cpu", "run_wait", "blocked"]
    together = [sum(parts) for parts in zip(*(values for _, values in pool.states.bands), strict=True)]
    assert together == pytest.approx([4.0] * len(pool.states.t_s))


def test_a_trial_that_never_began_has_empty_series(tmp_path: Path) -> None:
    directory = TrialDir(tmp_path / "0001")
    assert trial_series(directory, write_trial(directory, failed_record(spec()), None)) == TrialSeries()
