"""The bottleneck of a setting is that of most of its trials. The reasons of an answer name that of the chosen setting,
and that of the next smaller one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from fakes.trials import experiment
from powerband.analyze.settings.standing import Standing
from powerband.analyze.settings.why import commonest, why
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Objective
from powerband.model.load import Load
from powerband.model.plan import Setting
from powerband.model.results import Bottleneck, Capacity, Estimate, Problem, SettingResult, TrialResult, Verdict

B = BottleneckName
POOL = Bottleneck(B.POOL_TOO_SMALL, ("all 8 `pool` threads are holding a request", "56 requests queue"), "more")
CPU = Bottleneck(B.SUBJECT_CPU, ("the server uses 98 % of its 2 CPUs",), "more")
ACKED = Bottleneck(B.DELAYED_ACK, ("twice",), "set it")
CROWD = Bottleneck(B.TOO_MANY_RUNNABLE_THREADS, ("200 threads wait for each CPU",), "fewer")
NONE = Bottleneck(B.NONE, ("all was served",), "more")


def threads(count: int) -> Setting:
    return Setting((("threads", count),))


def row(count: int, verdict: Verdict, bottleneck: Bottleneck | None, **figures: float) -> SettingResult:
    values: Mapping[str, float] = {"threads_max": float(count), "subject_cpu_share": 0.2, **figures}
    estimates = {name: Estimate(value, None, None, 0.95, 3) for name, value in values.items()}
    effect = Estimate(0.5, 0.4, 0.6, 0.95, 3)
    return SettingResult(threads(count), 3, 0, estimates, effect, verdict, True, bottleneck=bottleneck)


def said(*rows: SettingResult, chosen: int, spared: Sequence[int] = (), **changes: object) -> str:
    leader = threads(chosen)
    case = experiment({"threads": tuple(int(row.setting.as_dict()["threads"]) for row in rows)}, **changes)
    standing = Standing(
        experiment=case,
        rows=rows,
        leader=leader,
        contenders=frozenset(),
        blocks=3,
        spared=frozenset(map(threads, spared)),
    )
    return " ".join(why(standing, leader))


def test_the_chosen_setting_s_bottleneck_and_what_a_smaller_one_lacks() -> None:
    text = said(row(4, Verdict.WORSE, POOL), row(8, Verdict.WORSE, POOL), row(16, Verdict.EQUIVALENT, CPU), chosen=16)
    assert text == (
        "With threads=16 CPU is the limit. The server uses 98 % of its 2 CPUs. With threads=8 the pool is too small. "
        "All 8 `pool` threads are holding a request. 56 requests queue."
    )


def test_a_smaller_setting_for_which_nothing_is_short_explains_nothing() -> None:
    text = said(row(8, Verdict.WORSE, NONE), row(16, Verdict.EQUIVALENT, CPU), chosen=16)
    assert "threads=8" not in text


def test_where_all_settings_have_as_many_threads_the_best_of_the_worse_ones_says_what_it_lacks() -> None:
    """Connections that a proxy opens, or tasks that a semaphore lets in, change no number of threads."""
    rows = [
        row(count, verdict, found, threads_max=1.0, goodput_per_s=50.0 * count)
        for count, verdict, found in (
            (4, Verdict.WORSE, POOL),
            (8, Verdict.WORSE, POOL),
            (64, Verdict.EQUIVALENT, None),
        )
    ]
    assert said(*rows, chosen=64) == (
        "With threads=64 no limit could be named. The server uses 20 % of its CPUs under 10 users that never pause. "
        "With threads=8 the pool is too small. All 8 `pool` threads are holding a request. 56 requests queue."
    )
    named = [*rows[:2], replace(rows[2], bottleneck=POOL)]
    assert said(*named, chosen=64).startswith("With threads=64 the pool") and "threads=8" not in said(*named, chosen=64)


def test_a_setting_that_fails_its_requests_is_not_said_to_wait() -> None:
    failing = row(8, Verdict.WORSE, None, goodput_per_s=200.0, achieved_rate_per_s=20_000.0)
    text = said(failing, row(16, Verdict.EQUIVALENT, CPU), chosen=16)
    assert text.endswith("With threads=8 the server fails 99 % of its requests.")


def test_where_none_is_named_plain_figures_stand_for_it() -> None:
    text = said(row(8, Verdict.WORSE, None), row(16, Verdict.EQUIVALENT, CPU), chosen=16)
    assert text.endswith(
        "With threads=8 the server reaches 50.0 % of the best goodput and leaves 80 % of its CPUs idle."
    )
    assert said(row(16, Verdict.EQUIVALENT, None, subject_cpu_share=0.95), chosen=16).startswith(
        "With threads=16 CPU is the limit."
    )
    unseen = row(16, Verdict.EQUIVALENT, None, threads_max=2.0)
    assert said(unseen, chosen=16) == (
        "With threads=16 no limit could be named. The server uses 20 % of its CPUs under 10 users that never pause."
    )


def test_the_guess_of_a_capacity_is_no_share_of_the_best() -> None:
    best, seen = row(16, Verdict.EQUIVALENT, None), row(8, Verdict.WORSE, None)
    searched = Objective(metric="capacity", subject_to=["p99 < 50ms"])
    guess = replace(seen, capacity=Capacity(Estimate(500.0, 400.0, 600.0, 0.95, 3), ()))
    assert "reaches 50.0 % of the best capacity" in said(seen, best, chosen=16, objective=searched)
    told = said(guess, best, chosen=16, objective=searched)
    assert "With threads=8 the server does worse and leaves 80 % of its CPUs idle." in told


def test_a_full_cpu_that_the_rules_did_not_name_is_not_called_the_limit() -> None:
    """Erlang's schedulers use 92 % of the CPUs while they wait for work: its threads were watched."""
    busy = {"subject_cpu_share": 0.92, "thread_cpu_share_max": 0.9}
    text = said(row(16, Verdict.EQUIVALENT, None, **busy), chosen=16)
    assert text == "No single resource was found to be the limit."


def test_what_larger_settings_cost_and_that_their_threads_compete() -> None:
    text = said(row(16, Verdict.EQUIVALENT, CPU), row(256, Verdict.WORSE, CROWD), chosen=16)
    assert text.endswith(
        "threads=256 costs more: 256 threads instead of 16. Too many of its threads compete for the CPU."
    )


@pytest.mark.parametrize(
    ("verdict", "limit", "told"),
    [
        (Verdict.WORSE, ACKED, " With threads=64 responses wait for a delayed acknowledgement. Twice. Set it."),
        (Verdict.EQUIVALENT, ACKED, ""),
        (Verdict.WORSE, CPU, ""),
    ],
)
def test_a_larger_setting_that_delayed_acknowledgements_make_worse_is_told_with_its_cure(
    verdict: Verdict, limit: Bottleneck, told: str
) -> None:
    text = said(row(16, Verdict.EQUIVALENT, POOL), row(64, verdict, limit), chosen=16)
    assert text.endswith(f"threads=64 costs more: 64 threads instead of 16.{told}")


@pytest.mark.parametrize(
    ("memory_mib", "told"),
    [
        (150, "has 37 threads instead of 17, but less memory: 150 MiB instead of 520 MiB."),
        (450, "costs more: 37 threads instead of 17."),
        (780, "costs more: 37 threads instead of 17, memory 780 MiB instead of 520 MiB."),
    ],
)
def test_a_setting_with_more_threads_does_not_simply_cost_more_where_it_has_less_memory(
    memory_mib: int, told: str
) -> None:
    """Few processes of many threads beside many processes of one."""
    rows = [
        row(count, Verdict.EQUIVALENT, CPU, rss_bytes_max=float(mib << 20))
        for count, mib in ((17, 520), (37, memory_mib))
    ]
    assert said(*rows, chosen=17).endswith(f" threads=37 {told}")


@pytest.mark.parametrize(
    "figures", [{"rss_bytes_max": 5e8}, {"rss_bytes_max": 5e7}, {"context_switches_per_request": 9.0}]
)
def test_of_short_trials_beside_full_ones_only_the_threads_are_compared(figures: dict[str, float]) -> None:
    usual = {"rss_bytes_max": 2e8, "context_switches_per_request": 2.0}
    rows = [row(40, Verdict.EQUIVALENT, CPU, **usual), row(270, Verdict.WORSE, CPU, **{**usual, **figures})]
    plain = "threads=270 costs more: 270 threads instead of 40."
    assert not said(*rows, chosen=40).endswith(plain)
    assert said(*rows, chosen=40, spared=[270]).endswith(plain)


def test_one_that_serves_as_much_and_answers_sooner_is_named() -> None:
    """Its p99 is lower for certain, whole intervals apart, or by far."""

    def answering(count: int, verdict: Verdict, p99_ms: float, half_ms: float) -> SettingResult:
        p99 = Estimate(p99_ms * 1e6, (p99_ms - half_ms) * 1e6, (p99_ms + half_ms) * 1e6, 0.95, 3)
        plain = row(count, verdict, CPU)
        return replace(plain, estimates={**plain.estimates, "response_time_ns_p99": p99})

    rows = [answering(2, Verdict.EQUIVALENT, 300, 40), answering(4, Verdict.EQUIVALENT, 160, 30)]
    assert said(*rows, chosen=2).endswith(
        "threads=4 answers sooner: a p99 of 160 ms instead of 300 ms. "
        "Use it where response times matter more than cost."
    )
    assert said(rows[0], answering(4, Verdict.EQUIVALENT, 160, 130), chosen=2).endswith(
        "threads=4 may answer sooner (a p99 of 160 ms instead of 300 ms): if response times matter, set a limit for "
        "them (--slo)."
    )
    limited = Objective(subject_to=["p99 < 400ms"])
    assert said(rows[0], answering(4, Verdict.EQUIVALENT, 160, 130), chosen=2, objective=limited).endswith(
        "if response times matter, tighten their limit (--slo)."
    )
    bound, unsure = at_least(rows[1]), replace(rows[1], uncertain_because=("error_rate < 1%: it was 0.5 %",))
    for beside in (answering(4, Verdict.EQUIVALENT, 230, 130), answering(4, Verdict.WORSE, 160, 30), bound, unsure):
        assert " sooner" not in said(rows[0], beside, chosen=2)
    assert "a p99 of 160 ms instead of at least 300 ms." in said(at_least(rows[0]), rows[1], chosen=2)


def at_least(of: SettingResult) -> SettingResult:
    """The row with a p99 that is only a lower bound, as where more than 1 % of the requests fail."""
    name = "response_time_ns_p99"
    return replace(of, estimates={**of.estimates, name: replace(of.estimates[name], at_least=True)})


def test_a_p99_that_is_a_lower_bound_is_no_cost_of_another_setting() -> None:
    small, large = (
        replace(each, estimates={**each.estimates, "response_time_ns_p99": Estimate(ms * 1e6, None, None, 0.95, 3)})
        for each, ms in ((row(2, Verdict.EQUIVALENT, CPU), 50), (row(4, Verdict.EQUIVALENT, CPU), 300))
    )
    assert said(small, large, chosen=2).endswith("p99 response time 300 ms instead of 50.0 ms.")
    assert said(small, at_least(large), chosen=2).endswith("p99 response time at least 300 ms instead of 50.0 ms.")
    assert "p99" not in said(at_least(small), large, chosen=2)


def test_threads_for_all_users_do_not_show_that_these_serve_them() -> None:
    """A runtime of 16 threads may have a pool of four."""
    assert said(row(16, Verdict.EQUIVALENT, None), chosen=16) == (
        "With threads=16 no limit could be named. The server has 16 threads for 10 users and uses 20 % of its CPUs."
    )


@pytest.mark.parametrize("answered", [True, False])
def test_messages_that_nobody_answers_are_not_said_to_be_all_served(answered: bool) -> None:
    step = {"name": "say", "message": "hello", "answered": answered}
    load = {"users": 10, "pace": {"constant": 10_000_000}, "websocket": {}, "scenario": [step]}
    sent = row(16, Verdict.EQUIVALENT, None, offered_rate_per_s=1000.0, goodput_per_s=1000.0)
    text = said(sent, chosen=16, load=Load.model_validate(load))
    assert ("The whole offered load is served." in text) is answered


def test_response_times_at_the_rates_of_different_capacities_are_not_compared() -> None:
    wanted = Objective(metric="capacity", subject_to=["p99 < 400ms"])
    slow, quick = (
        replace(each, estimates={**each.estimates, "response_time_ns_p99": Estimate(ms * 1e6, None, None, 0.95, 3)})
        for each, ms in ((row(2, Verdict.EQUIVALENT, CPU), 300), (row(4, Verdict.EQUIVALENT, CPU), 50))
    )
    assert "sooner" in said(slow, quick, chosen=2)
    assert "sooner" not in said(slow, quick, chosen=2, objective=wanted)
    small, large = replace(quick, setting=threads(2)), replace(slow, setting=threads(4))
    estimates = {**large.estimates, "threads_max": Estimate(8.0, None, None, 0.95, 3)}
    told = said(small, replace(large, estimates=estimates), chosen=2, objective=wanted)
    assert told.endswith("threads=4 costs more: 8 threads instead of 4.")


def test_a_setting_has_the_bottleneck_of_most_of_its_trials_with_the_middle_one_s_evidence() -> None:
    def trial(number: int, name: BottleneckName | None, goodput: float) -> TrialResult:
        named = None if name is None else Bottleneck(name, (f"{goodput:.0f}",), "advice")
        figures = {"goodput_per_s": goodput}
        return TrialResult(number, 0, 1, Setting(()), "measured", (), figures, bottleneck=named)

    trials = [trial(1, B.LOCK, 30), trial(2, B.NONE, 20), trial(3, B.LOCK, 10), trial(4, B.LOCK, 20)]
    found = commonest(trials)
    assert found is not None and (found.name, found.evidence) == (B.LOCK, ("20",))
    said = []
    for each, cpu in zip(trials, (0.9, 0.7, 0.8, 0.96), strict=True):
        clauses = (f"it uses {cpu:.0%}", f"the server uses {100 * cpu:.0f} % of its 2 CPUs")
        named = each.bottleneck and replace(each.bottleneck, evidence=clauses)
        figures = {**each.metrics, "subject_cpu_share": cpu}
        said.append(replace(each, metrics=figures, bottleneck=named))
    found = commonest(said)
    assert found is not None and found.evidence == ("it uses 96%", "the server uses 84 % of its 2 CPUs")
    assert commonest([]) is None
    assert commonest([trial(1, None, 1), trial(2, None, 1), trial(3, B.LOCK, 1)]) is None


def test_one_trial_with_slots_does_not_outvote_those_whose_cpu_was_too_full_for_them() -> None:
    def trial(number: int, name: BottleneckName | None, **slots: float) -> TrialResult:
        named = None if name is None else Bottleneck(name, ("1",), "advice")
        return TrialResult(number, 0, 1, Setting(()), "measured", (), slots, bottleneck=named)

    full, tried = [trial(number, B.SUBJECT_CPU) for number in (2, 3)], trial(1, B.NONE, slots=64.0)
    for trials, name in ((full, B.SUBJECT_CPU), ([trial(2, None), trial(3, B.LOCK)], B.NONE)):
        found = commonest([tried, *trials])
        assert found is not None and found.name is name


def test_a_trial_whose_connections_were_counted_decides_though_its_slots_are_not_known() -> None:
    def trial(number: int, name: BottleneckName, *problems: Problem) -> TrialResult:
        return TrialResult(
            number, 0, 1, Setting(()), "measured", problems, {}, bottleneck=Bottleneck(name, ("1",), "a")
        )

    counted = trial(1, B.POOL_TOO_SMALL, Problem("no_slots", "others used 40 % of the CPUs", fatal=False))
    found = commonest([counted, *(trial(number, B.EVENT_LOOP_BLOCKED) for number in (2, 3, 4))])
    assert found is not None and found.name is B.POOL_TOO_SMALL
