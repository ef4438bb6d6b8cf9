"""The settings that no other beats in every respect, checked against the definition and against known cases."""

from __future__ import annotations

import random
from dataclasses import replace

from fakes import synthetic
from powerband.analyze.settings.trade_offs import TradeOffStanding, trade_offs
from powerband.model.plan import Stage
from powerband.model.results import Analysis, Estimate, Race, SettingResult, TrialResult, Verdict

THROUGHPUT, TAIL, CPU, MEMORY = "goodput_per_s", "response_time_ns_p99", "subject_cpu_ns_per_request", "rss_bytes_max"


def row(level: int, *values: float, spread: float = 0.0, feasible: bool = True) -> SettingResult:
    """A setting. `values`: throughput, p99, CPU of a request, memory; `spread`: the half-width of each interval."""
    estimates = {
        metric: Estimate(value, value - spread, value + spread, 0.95, 5)
        for metric, value in zip((THROUGHPUT, TAIL, CPU, MEMORY), values, strict=False)
    }
    of = synthetic.setting(threads=level)
    return SettingResult(of, 5, 0, estimates, None, Verdict.WORSE, feasible)


def of(*rows: SettingResult) -> Analysis:
    return synthetic.analysis(settings=rows, claims=())


def standings(analysis: Analysis) -> dict[str, TradeOffStanding]:
    found = trade_offs(analysis)
    assert found is not None
    return {each.setting.id: each.standing for each in found.rows}


def test_each_standing_has_its_case() -> None:
    analysis = of(
        row(1, 100, 10, 5, 50),
        row(2, 200, 20, 5, 50),  # more throughput, for a longer tail
        row(3, 150, 25, 6, 60),  # worse than 2 in every respect, beyond the intervals
        row(4, 199.9, 20.05, 5.05, 50.05, spread=0.2),  # worse than 2 in every respect, within the intervals
        row(5, 300, 1, 1, 1, feasible=False),  # best of all, but violates the SLO
    )
    analysis = replace(analysis, settings=tuple(
        replace(each, estimates={name: Estimate(e.value, e.value - 0.2, e.value + 0.2, 0.95, 5)
                                 for name, e in each.estimates.items()})
        for each in analysis.settings
    ))  # fmt: skip
    assert standings(analysis) == {
        "threads=1": TradeOffStanding.UNBEATEN,
        "threads=2": TradeOffStanding.UNBEATEN,
        "threads=3": TradeOffStanding.BEATEN,
        "threads=4": TradeOffStanding.CLOSE,
        "threads=5": TradeOffStanding.NOT_ALLOWED,
    }
    found = trade_offs(analysis)
    assert found is not None
    by = {each.setting.id: each.beaten_by for each in found.rows}
    assert by["threads=3"] == by["threads=4"] == synthetic.setting(threads=2)
    assert by["threads=1"] is by["threads=5"] is None


def test_the_front_is_that_of_its_definition_on_random_points() -> None:
    dice = random.Random(11)
    rows = [row(level, *(float(dice.randrange(6)) for _ in range(4))) for level in range(1, 41)]
    found = trade_offs(of(*rows))
    assert found is not None

    def better(one: SettingResult, other: SettingResult, names: tuple[str, ...]) -> bool:
        ahead = [(one.estimates[n].value - other.estimates[n].value) * (1 if n == THROUGHPUT else -1) for n in names]
        return all(gain >= 0 for gain in ahead) and any(gain > 0 for gain in ahead)

    everything = (THROUGHPUT, TAIL, CPU, MEMORY)
    for each, mine in zip(found.rows, rows, strict=True):
        beaten = any(better(other, mine, everything) for other in rows)
        assert (each.standing is not TradeOffStanding.UNBEATEN) == beaten
        if each.beaten_by is not None:
            winner = next(other for other in rows if other.setting == each.beaten_by)
            assert better(winner, mine, everything)
            assert not any(better(other, winner, everything) for other in rows)
    for (a, b), front in found.fronts.items():
        pair = (found.measures[a].metric, found.measures[b].metric)
        wanted = {mine.setting for mine in rows if not any(better(other, mine, pair) for other in rows)}
        assert set(front) == wanted and len(front) == len(wanted)
        along = [next(m for m in rows if m.setting == s).estimates[pair[0]].value for s in front]
        assert along == sorted(along)


def test_equal_settings_do_not_beat_each_other() -> None:
    assert set(standings(of(row(1, 1, 1, 1, 1), row(2, 1, 1, 1, 1))).values()) == {TradeOffStanding.UNBEATEN}


def bounded(of: SettingResult, metric: str) -> SettingResult:
    """The row with an estimate of this metric that is only a lower bound."""
    return replace(of, estimates={**of.estimates, metric: replace(of.estimates[metric], at_least=True)})


def test_a_p99_that_is_a_lower_bound_beats_none() -> None:
    """With threads=2 more than 1 % of the requests fail. The bound of its p99 is below the p99 of threads=1."""
    rows = row(1, 100, 10, 5, 50), bounded(row(2, 100, 9, 5, 50), TAIL)
    assert standings(of(*rows)) == {"threads=1": TradeOffStanding.UNBEATEN, "threads=2": TradeOffStanding.CLOSE}
    alike = replace(rows[1], setting=synthetic.setting(threads=3))
    assert standings(of(rows[1], alike))["threads=2"] is TradeOffStanding.UNBEATEN


def test_of_two_lower_bounds_none_is_better_for_certain() -> None:
    """threads=1 serves a little more, within the intervals; the bounds themselves lie apart in the named measure."""
    ahead, behind = row(1, 100.05, 9, 5, 50, spread=0.1), row(2, 100, 10, 5, 50, spread=0.1)
    tails = [bounded(each, TAIL) for each in (ahead, behind)]
    assert standings(of(*tails))["threads=2"] is TradeOffStanding.CLOSE
    served = [bounded(each, THROUGHPUT) for each in (row(1, 101, 9.95, 5, 50, spread=0.1), behind)]
    assert standings(of(*served))["threads=2"] is TradeOffStanding.CLOSE


def test_short_trials_are_not_weighed_against_full_ones() -> None:
    """threads=3 left the race after its short trials, in which a server has touched little of its memory."""
    rows = row(1, 100, 10, 5, 50), row(2, 90, 11, 6, 60), row(3, 20, 30, 9, 5)
    first = [TrialResult(n, 0, 1, each.setting, "measured", (), {}, stage=Stage.SCREEN) for n, each in enumerate(rows)]
    later = [replace(each, block=1, stage=Stage.COMPARE) for each in first]
    assert standings(replace(of(*rows), trials=(*first, *later[:2]))) == {
        "threads=1": TradeOffStanding.UNBEATEN,
        "threads=2": TradeOffStanding.BEATEN,
    }
    assert len(standings(replace(of(*rows), trials=tuple(first)))) == 3, "short ones are comparable with each other"
    race = Race((), (), trials=5, grid_trials=9, ended_by="stopped", blocks=1, half=(1,))
    assert len(standings(replace(of(*rows), trials=(*first, *later[:2]), race=race))) == 3, "half a block counts not"
    assert trade_offs(replace(of(*rows), trials=(*first, later[0]))) is None


def test_what_is_not_known_of_all_is_not_weighed() -> None:
    few = row(3, 50, 9)
    analysis = of(row(1, 100, 10, 5, 50), row(2, 200, 20, 5, 50), few)
    found = trade_offs(analysis)
    assert found is not None and [each.setting.id for each in found.rows] == ["threads=1", "threads=2"]
    bare = of(row(1, 100), row(2, 200))
    assert trade_offs(bare) is None  # throughput alone is no trade-off
    assert trade_offs(of(row(1, 100, 10, 5, 50))) is None


def test_an_objective_of_its_own_is_weighed_too_and_in_its_direction() -> None:
    rows = [row(1, 100, 10, 5, 50), row(2, 100, 10, 5, 50)]
    own = [
        replace(each, estimates={**each.estimates, "ready_s": Estimate(float(i), i, i, 0.95, 5)})
        for i, each in enumerate(rows)
    ]
    analysis = replace(of(*own), objective="ready_s", direction="minimise")
    found = trade_offs(analysis)
    assert found is not None and (found.measures[0].metric, found.measures[0].most) == ("ready_s", False)
    assert standings(analysis) == {"threads=1": TradeOffStanding.UNBEATEN, "threads=2": TradeOffStanding.BEATEN}


def test_p99s_at_the_rates_of_different_capacities_are_not_weighed() -> None:
    """threads=2 holds twice the rate for the same CPU and memory; its p99 is that of trials at higher rates."""
    slow, quick = (
        replace(each, estimates={**each.estimates, "capacity_per_s": Estimate(held, held, held, 0.95, 5)})
        for each, held in ((row(1, 100, 10, 5, 50), 100.0), (row(2, 200, 20, 5, 50), 200.0))
    )
    assert set(standings(of(slow, quick)).values()) == {TradeOffStanding.UNBEATEN}
    searched = replace(of(slow, quick), objective="capacity_per_s")
    found = trade_offs(searched)
    assert found is not None and [each.metric for each in found.measures] == ["capacity_per_s", CPU, MEMORY]
    assert standings(searched) == {"threads=1": TradeOffStanding.BEATEN, "threads=2": TradeOffStanding.UNBEATEN}
