"""Names of settings in pictures: what varies, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from fakes import synthetic
from powerband.model.results import ChangeCost, Verdict
from powerband.report.wording.names import short_names


def test_of_many_factors_the_levels_of_those_that_vary() -> None:
    analysis = synthetic.many_factor_analysis()
    short = short_names(analysis)
    assert short.heading == "threads / queue / cache" and short.told == " Names: threads / queue / cache."
    assert short.of(analysis.settings[0].setting) == short.row(analysis.settings[0].setting) == "4 / 10 / none"
    assert len(set(short.names.values())) == len(analysis.settings)


def test_one_factor_is_named_beside_the_axis_and_in_full_where_there_is_none() -> None:
    short = short_names(synthetic.analysis())
    setting = synthetic.setting(threads=32)
    assert (short.heading, short.of(setting), short.row(setting), short.told) == ("threads", "32", "threads=32", "")
    other = synthetic.setting(threads=99)
    assert short.of(other) == other.id


def test_where_factors_vary_one_at_a_time_the_change() -> None:
    base = synthetic.two_factor_analysis()
    changed = base.settings[1].setting
    cost = ChangeCost(changed, "threads", 8, 4, None, Verdict.WORSE)
    short = short_names(replace(base, settings=base.settings[:2], changes=(cost,)))
    assert (short.of(base.settings[0].setting), short.row(changed)) == ("baseline", "threads=8")
    assert short_names(replace(base, settings=())).names == {}
