"""Timers: exact pauses, pauses with the same mean and spread, and rates that become open loads."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path

import pytest

from fakes.plans import converted, data, element, group, plan, sampler, timer
from powerband.jmx.converted import Conversion
from powerband.jmx.elements.timers import Pause
from powerband.jmx.plan_findings import ImportRefused

MS = 1_000_000


def ms(low: float, high: float | None = None) -> Pause:
    return Pause(round(low * MS), round((low if high is None else high) * MS))


def pauses(*children: str) -> list[Pause]:
    return [step.pause for step in converted(plan(group(*children))).steps]


def refused(*children: str) -> str:
    with pytest.raises(ImportRefused) as error:
        converted(plan(group(*children)))
    return str(error.value)


@pytest.mark.parametrize(
    ("made", "pause"),
    [
        (timer("ConstantTimer", "300"), ms(300)),
        (timer("ConstantTimer", ""), ms(0)),
        (timer("UniformRandomTimer", "100", "50.0"), ms(100, 150)),
        (timer("GaussianRandomTimer", "300", "0"), ms(300)),
        (timer("GaussianRandomTimer", "300", "100.0"), ms(127, 473)),
        (timer("PoissonRandomTimer", "100", "400"), ms(465, 535)),
        (timer("PoissonRandomTimer", "100", "0"), ms(100)),
    ],
)
def test_one_timer(made: str, pause: Pause) -> None:
    assert pauses(made, sampler()) == [pause]


@pytest.mark.parametrize(("mean", "deviation"), [(300, 100), (100, 100), (0, 100), (1000, 10)])
def test_gaussian_pauses_keep_mean_and_spread_of_the_folded_distribution(mean: int, deviation: int) -> None:
    drawn = [abs(random.Random(index).gauss(mean, deviation)) for index in range(20_000)]
    (pause,) = pauses(timer("GaussianRandomTimer", str(mean), str(deviation)), sampler())
    low, high = pause.low_ns / MS, pause.high_ns / MS
    assert (low + high) / 2 == pytest.approx(statistics.fmean(drawn), rel=0.03)
    if low > 0:
        assert (high - low) / math.sqrt(12) == pytest.approx(statistics.stdev(drawn), rel=0.05)


def test_timers_add_up_and_stand_at_the_step_before() -> None:
    of_all, of_second = timer("ConstantTimer", "100"), timer("UniformRandomTimer", "10", "20")
    first, second, third = (sampler(name=name) for name in ("a", "b", "c"))
    second = sampler(of_second, name="b")
    assert pauses(first, second, third, of_all) == [ms(110, 130), ms(100), ms(100)]


def test_a_timer_applies_to_its_branch_only() -> None:
    slow = element("GenericController", "Slow", sampler(name="a"), timer("ConstantTimer", "50"), sampler(name="b"))
    assert pauses(slow, sampler(name="c")) == [ms(50), ms(0), ms(50)]


def action(*children: str, name: str = "Think", duration: str = "0", kind: int = 1) -> str:
    properties = {"ActionProcessor.action": kind, "ActionProcessor.target": 0, "ActionProcessor.duration": duration}
    return element("TestAction", name, *children, **properties)


def test_pauses_that_stand_between_requests() -> None:
    think = action(timer("UniformRandomTimer", "10", "5"), duration="2")
    assert pauses(sampler(name="a"), think, sampler(name="b")) == [ms(12, 17), ms(0)]
    of_all = timer("ConstantTimer", "100")  # the timer delays an action too
    assert pauses(of_all, sampler(name="a"), action(duration="7"), sampler(name="b")) == [ms(207), ms(100)]
    assert pauses(action(duration="3"), sampler(name="a"), sampler(name="b"), action(duration="4")) == [ms(0), ms(7)]


def test_actions_that_are_refused() -> None:
    assert "it stops users" in refused(sampler(), action(kind=0))
    assert "the duration is 'long'" in refused(sampler(), action(duration="long"))
    held = element("ConstantThroughputTimer", "Rate", throughput=60.0, calcMode=1)
    assert "a Flow Control Action as well" in refused(held, sampler(), action())


def test_the_sum_of_random_timers_keeps_mean_and_spread() -> None:
    # Uniform on [0, 300] and [100, 500]: mean 450, half width sqrt(300^2 + 400^2) / 2.
    two = timer("UniformRandomTimer", "0", "300"), timer("UniformRandomTimer", "100", "400", name="Second")
    made = converted(plan(group(*two, timer("ConstantTimer", "50", name="Third"), sampler())))
    assert [step.pause for step in made.steps] == [ms(250, 750)]
    assert [about for note, about in made.notes.items() if note.startswith("The sum")] == [("Timer", "Second")]


def test_numbers_that_are_none() -> None:
    assert "the delay is 'soon'" in refused(timer("ConstantTimer", "soon"), sampler())
    assert "the delay is '-1'" in refused(timer("ConstantTimer", "-1"), sampler())
    assert "more than a day" in refused(timer("ConstantTimer", "99999999999"), sampler())


def paced(kind: str, *children: str, users: str = "10", **properties: str | int | float) -> Conversion:
    held = element(kind, "Rate", **properties)
    return converted(plan(group(held, *children, users=users)))


def test_a_constant_throughput_of_all_threads_is_a_rate() -> None:
    load = paced("ConstantThroughputTimer", sampler(), throughput=600.0, calcMode=1).load
    assert (load.rate_per_s, load.arrivals, load.users) == (10, "constant", 10)


def test_a_constant_throughput_of_each_thread_is_a_rate_times_threads() -> None:
    of_each = {"throughput": 60.0, "calcMode": 0}
    assert paced("ConstantThroughputTimer", sampler(), **of_each).load.rate_per_s == 10
    assert paced("ConstantThroughputTimer", sampler(), sampler(name="b"), **of_each).load.rate_per_s == 5
    old = {"throughput": "60", "calcMode": "this thread only"}
    assert paced("ConstantThroughputTimer", sampler(), **old).load.rate_per_s == 10


def test_a_precise_throughput_has_poisson_arrivals() -> None:
    load = paced("PreciseThroughputTimer", sampler(), throughput=7200.0, throughputPeriod=3600).load
    assert (load.rate_per_s, load.arrivals) == (2, "poisson")


def test_of_a_pass_only_the_requests_in_scope_count() -> None:
    held = element("ConstantThroughputTimer", "Rate", throughput=60.0, calcMode=2)
    load = converted(plan(group(sampler(name="free"), sampler(held, name="held"), users="4"))).load
    assert load.rate_per_s == 1


def test_pauses_of_an_open_load_stand_between_steps() -> None:
    steps = paced(
        "ConstantThroughputTimer",
        timer("ConstantTimer", "5"),
        sampler(),
        sampler(name="b"),
        throughput=60.0,
        calcMode=1,
    ).steps
    assert [step.pause for step in steps] == [ms(5), ms(0)]


@pytest.mark.parametrize(
    ("kind", "properties", "why"),
    [
        ("ConstantThroughputTimer", {"throughput": 0.0}, "its throughput is 0"),
        ("ConstantThroughputTimer", {"throughput": "fast"}, "the throughput is 'fast'"),
        ("ConstantThroughputTimer", {"throughput": 1.0, "calcMode": "9"}, "its mode is '9'"),
        ("PreciseThroughputTimer", {"throughput": 1.0, "batchSize": 3}, "come in batches of 3"),
        ("PreciseThroughputTimer", {"throughput": 1.0, "throughputPeriod": 0}, "its throughput period is 0 s"),
    ],
)
def test_rates_that_are_refused(kind: str, properties: dict[str, str | int | float], why: str) -> None:
    assert why in refused(element(kind, "Rate", **properties), sampler())


def test_one_rate_and_no_loops() -> None:
    held = {"throughput": 60.0, "calcMode": 1}
    two = [element("ConstantThroughputTimer", name, **held) for name in ("One", "Two")]
    assert "it holds a rate, and so does" in refused(*two, sampler())
    with pytest.raises(ImportRefused, match="both a number of loops and a throughput timer"):
        converted(plan(group(two[0], sampler(), loops="5")))


@pytest.mark.parametrize("kind", ["ConstantThroughputTimer", "PreciseThroughputTimer"])
def test_a_rate_with_several_rows_of_data_is_refused(tmp_path: Path, kind: str) -> None:
    """An arrival sends the whole scenario at once, and so would send all rows in a burst."""
    held = element(kind, "Rate", throughput=1200.0, calcMode=1)
    text = plan(group(held, data("rows.csv", "a"), sampler(path="/${a}"), users="8"))
    (tmp_path / "rows.csv").write_text("1\n2\n3\n")
    with pytest.raises(ImportRefused, match="each arrival would send all 3 rows of the data") as error:
        converted(text, folder=tmp_path)
    assert [each.path for each in error.value.refusals] == ["Test Plan > Users > Rate"]
    assert len(converted(text, "Rate", folder=tmp_path).steps) == 3
    (tmp_path / "rows.csv").write_text("1\n")
    assert converted(text, folder=tmp_path).load.rate_per_s is not None


@pytest.mark.parametrize("on_error", ["continue", "startnextloop"])
def test_what_a_failed_request_of_an_open_load_costs_is_told(on_error: str) -> None:
    held = element("ConstantThroughputTimer", "Rate", throughput=60.0, calcMode=1)
    of = {"ThreadGroup.on_sample_error": on_error}
    notes = converted(plan(group(held, sampler(), sampler(name="b"), **of))).notes
    told = [note for note in notes if note.startswith("After a failed request")]
    assert len(told) == 1 and "the rest of that pass is not sent" in told[0]
    alone = converted(plan(group(held, sampler(), **of))).notes
    assert not any(note.startswith("After a failed request") for note in alone)
