"""Claims are judged by made-up trials whose truth is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fakes.trials import experiment
from powerband.analyze.settings.claims import judge_claims
from powerband.analyze.settings.compare import Progress, analyse
from powerband.files.experiment_file import load_experiment, profile_names
from powerband.files.library import experiment_names
from powerband.model.experiment import Claim, Experiment, Objective, Parameter, Subject
from powerband.model.load import Load
from powerband.model.plan import Level, Setting, Stage
from powerband.model.results import ClaimResult, Problem, Race, TrialResult

Metrics = Mapping[str, float]


def trial(levels: Mapping[str, Level], block: int, metrics: Metrics, **changes: Any) -> TrialResult:
    number = changes.pop("number", 1)
    problems = (Problem("host_steal", "disturbed"),) if changes.pop("invalid", False) else ()
    return TrialResult(number, block, 1, Setting(tuple(levels.items())), "measured", problems, metrics, **changes)


def series(metric: str, values: Mapping[int, Sequence[float]]) -> list[TrialResult]:
    """Trials with the values of one metric by threads, one for each block."""
    return [
        trial({"threads": threads}, block, {metric: value})
        for threads, blocks in values.items()
        for block, value in enumerate(blocks)
    ]


def claiming(holds: str, factors: Mapping[str, tuple[Level, ...]], **objective: Any) -> Experiment:
    claim = Claim(id="one", says="so it is", holds=holds, published="as printed")
    return experiment(factors, claims=(claim,), objective=Objective(**objective))


def judged(holds: str, trials: Sequence[TrialResult], **objective: Any) -> ClaimResult:
    (result,) = judge_claims(claiming(holds, {"threads": (1, 2)}, **objective), trials)
    return result


GOODPUT = series("goodput_per_s", {1: [100, 101, 99, 100], 2: [200, 203, 196, 201]})
NO_ERRORS = series("error_rate", {1: [0, 0, 0], 2: [0.0, 0.02, 0.0]})
GROWTH = series("jvm_live_growth_bytes", {1: [-9e6, -8e6, -9.5e6, -9e6], 2: [-1e6, 1e6, 2e6, -2e6]})
THREADS = series("threads_max", {1: [4, 4, 4], 2: [8, 8, 8]})


@pytest.mark.parametrize(
    ("holds", "trials", "verdict"),
    [
        ("goodput[threads=2] > 1.9 * goodput[threads=1]", GOODPUT, "held"),
        ("goodput[threads=2] > 2.1 * goodput[threads=1]", GOODPUT, "refuted"),
        ("goodput[threads=2] > 2 * goodput[threads=1]", GOODPUT, "undecided"),
        ("goodput[threads=2] - 1.9 * goodput[threads=1] > 0", GOODPUT, "held"),
        ("0 > goodput[threads=1] - goodput[threads=2]", GOODPUT, "held"),
        ("goodput[threads=2] - goodput[threads=1] < 50/s", GOODPUT, "refuted"),
        ("goodput[threads=2] / goodput[threads=1] <= 2.2", GOODPUT, "held"),
        ("goodput[threads=2] == 2 * goodput[threads=1]", GOODPUT, "held"),
        ("goodput[threads=2] != 2 * goodput[threads=1]", GOODPUT, "refuted"),
        ("goodput[threads=2] == 1.8 * goodput[threads=1]", GOODPUT, "refuted"),
        ("goodput[threads=2] != 1.8 * goodput[threads=1]", GOODPUT, "held"),
        ("goodput[threads=2] == 1.95 * goodput[threads=1]", GOODPUT, "undecided"),
        ("goodput[threads=2] > 150/s and goodput[threads=1] > 90/s", GOODPUT, "held"),
        ("goodput[threads=2] > 150/s and goodput[threads=1] > 110/s", GOODPUT, "refuted"),
        ("goodput[threads=2] > 150/s and goodput[threads=1] > 100/s", GOODPUT, "undecided"),
        ("error_rate[threads=1] == 0", NO_ERRORS, "held"),
        ("error_rate[threads=1] <= 0", NO_ERRORS, "held"),
        ("error_rate[threads=1] > 0", NO_ERRORS, "refuted"),
        ("0 < error_rate[threads=1]", NO_ERRORS, "refuted"),
        ("error_rate[threads=1] != 0", NO_ERRORS, "refuted"),
        ("error_rate[threads=2] == 0", NO_ERRORS, "refuted"),
        ("error_rate[threads=2] <= 0", NO_ERRORS, "refuted"),
        ("error_rate[threads=2] > 0", NO_ERRORS, "held"),
        ("error_rate[threads=2] >= 0", NO_ERRORS, "held"),
        ("error_rate[threads=2] < 0", NO_ERRORS, "refuted"),
        ("error_rate[threads=1] < 1%", NO_ERRORS, "held"),
        ("error_rate[threads=2] < 1%", NO_ERRORS, "undecided"),
        ("error_rate[threads=1] == error_rate[threads=2]", NO_ERRORS, "held"),  # within 3 points of share
        ("jvm_live_growth_bytes[threads=1] == 0", GROWTH, "refuted"),
        ("jvm_live_growth_bytes[threads=1] >= 0", GROWTH, "refuted"),
        ("jvm_live_growth_bytes[threads=1] < 0", GROWTH, "held"),
        ("jvm_live_growth_bytes[threads=2] > 0", GROWTH, "undecided"),
        ("threads[threads=2] == 2 * threads[threads=1]", THREADS, "held"),
        ("threads[threads=2] <= 8", THREADS, "held"),
        ("threads[threads=2] < 8", THREADS, "refuted"),
        ("threads[threads=2] > threads[threads=1]", THREADS, "held"),
    ],
)
def test_verdicts(holds: str, trials: Sequence[TrialResult], verdict: str) -> None:
    assert judged(holds, trials).verdict == verdict


@pytest.mark.parametrize(
    ("holds", "lost", "verdict"),
    [
        ("app_sent - app_received == 0", (150, 160, 140, 155), "refuted"),
        ("0 == app_sent - app_received", (150, 160, 140, 155), "refuted"),
        ("app_sent - app_received != 0", (150, 160, 140, 155), "held"),
        ("app_sent - app_received == 0", (0, 0, 0, 0), "held"),
        ("app_sent - app_received == 0", (0, 0, 1, 0), "undecided"),
        ("app_sent - app_received == 0", (0, 2e-11, -1e-11, 0), "held"),  # which a counter's growth is rounded by
        ("app_sent - app_received <= 0", (0, 2e-11, -1e-11, 0), "held"),
        ("app_sent < app_received", (0, -2e-11, -1e-11, -1e-11), "refuted"),
        ("app_sent == app_received", (150, 160, 140, 155), "held"),  # within 3 %
        ("app_sent_per_s - app_received_per_s == 0", (150, 160, 140, 155), "held"),  # rates are not exact
        ("app_sent - app_received > 0", (150, 160, 140, 155), "held"),
    ],
)
def test_a_difference_of_counts_is_zero_only_if_nothing_is_lost(
    holds: str, lost: Sequence[float], verdict: str
) -> None:
    """1.5 % of 10,000 messages are lost."""
    end = "_per_s" if "_per_s" in holds else ""
    trials = [
        trial({"threads": 1}, block, {f"app_sent{end}": 10_000.0, f"app_received{end}": 10_000.0 - missing})
        for block, missing in enumerate(lost)
    ]
    (found,) = judge_claims(claiming(holds, {"threads": (1,)}), trials)
    assert found.verdict.value == verdict, found.sentence


def test_what_was_measured_is_told() -> None:
    result = judged("goodput[threads=2] > 1.9 * goodput[threads=1]", GOODPUT)
    assert (result.id, result.says, result.published) == ("one", "so it is", "as printed")
    (part,) = result.parts
    assert part.comparison == result.holds and part.where == "" and part.unit == "per_s" and part.blocks == 4
    assert part.left == pytest.approx(200, rel=0.01) and part.right == pytest.approx(190, rel=0.01)
    ratios = np.log([200 / 190, 203 / 191.9, 196 / 188.1, 201 / 190])
    half = 3.182446 * ratios.std(ddof=1) / 2  # Student's t, 3 degrees of freedom, 97.5 %: from a printed table
    assert part.interval is not None and part.scale == "ratio" and part.interval.confidence == 0.95
    assert part.interval.low == pytest.approx(np.exp(ratios.mean() - half), rel=1e-6)
    assert part.interval.high == pytest.approx(np.exp(ratios.mean() + half), rel=1e-6)
    assert result.sentence.startswith(f"{result.holds}: the left side, 200/s, is 1.05")
    assert result.sentence.endswith(", over 4 rounds).")


def test_what_never_varies_is_told_without_an_interval() -> None:
    assert judged("threads[threads=2] < threads[threads=1]", THREADS).sentence == (
        "8 is 2 times 4 in each of 3 rounds."
    )


def test_drift_of_the_machine_cancels() -> None:
    slow, quick = [100.0, 200.0, 400.0, 50.0], [111.0, 220.0, 442.0, 55.2]
    trials = series("goodput_per_s", {1: slow, 2: quick})
    assert judged("goodput[threads=2] > 1.05 * goodput[threads=1]", trials).verdict == "held"


def test_shares_are_compared_by_difference() -> None:
    trials = series("error_rate", {1: [0.0, 0.001, 0.0], 2: [0.10, 0.11, 0.12]})
    (part,) = judged("error_rate[threads=2] > error_rate[threads=1] + 5%", trials).parts
    assert part.verdict == "held" and part.scale == "difference" and part.unit == "ratio"
    assert part.interval is not None and part.interval.value == pytest.approx(0.0597, abs=1e-4)
    assert part.sentence.startswith("11.0 % against 5.03 %, a difference of 5.97 points (95 % interval ")


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        ([], "No trial of threads=1 was valid."),
        (GOODPUT[:4], "No trial of threads=2 was valid."),
        ([GOODPUT[0], GOODPUT[4]], "Only 1 round has a valid trial of each setting that it compares; "),
        ([GOODPUT[0], GOODPUT[5]], "No round has a valid trial of each setting"),
        (THREADS, "No valid trial of threads=1 measured goodput."),
        (
            [*(replace(each, stage=Stage.SCREEN) for each in GOODPUT[:4]), *GOODPUT[4:]],
            "No full trial of threads=1 was run in the race; short ones and first looks do not count.",
        ),
    ],
)
def test_without_two_blocks_nothing_is_decided(trials: Sequence[TrialResult], said: str) -> None:
    result = judged("goodput[threads=1] < goodput[threads=2]", trials)
    assert result.verdict == "undecided"
    assert result.sentence.startswith(said)


def test_a_division_by_zero_is_said() -> None:
    result = judged("error_rate[threads=1] / error_rate[threads=2] < 1", NO_ERRORS)
    assert result.verdict == "undecided" and "In round 1 it divides by zero" in result.sentence


def test_invalid_trials_do_not_count_and_the_last_attempt_does() -> None:
    wrong = [trial({"threads": 2}, 3, {"goodput_per_s": 1.0}, invalid=True, number=9)]
    early = [trial({"threads": 2}, 0, {"goodput_per_s": 1.0}, number=0)]
    assert judged("goodput[threads=2] > 190/s", [*GOODPUT, *wrong, *early]).verdict == "held"


def test_quiet_times_prove_no_more_than_their_resolution() -> None:
    """Two equal quantiles of a histogram with three digits may differ below its resolution, unlike two equal counts."""
    trials = series("response_time_ns_p99", {1: [5e7, 5e7], 2: [5e7, 5e7]})
    assert judged("p99[threads=1] < p99[threads=2]", trials).verdict == "undecided"
    assert judged("p99[threads=1] == p99[threads=2]", trials).verdict == "held"


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [
        ("p99[threads=2] > 10 * p99[threads=1]", "held"),
        ("p99[threads=1] < p99[threads=2]", "held"),
        ("p99[threads=2] < 1s", "refuted"),
        ("p99[threads=2] < 1min", "undecided"),
        ("p99[threads=2] / p99[threads=1] < 2000", "undecided"),
        ("p99[threads=2] != p99[threads=1]", "undecided"),
        ("p50[threads=2] < 1min", "held"),
        ("p99[threads=1] < 1s", "held"),
    ],
)
def test_where_requests_got_no_answer_a_percentile_is_only_a_lower_bound(holds: str, verdict: str) -> None:
    """With 2 threads one request in twenty fails: their p99 is the length of the window, 10 s, or more."""
    fine = {"response_time_ns_p50": 1e7, "response_time_ns_p99": 1.2e7}
    failing = {**fine, "response_time_ns_p99": 1e10, "error_rate": 0.05}
    trials = [
        trial({"threads": threads}, block, metrics)
        for threads, metrics in ((1, fine), (2, failing))
        for block in range(4)
    ]
    result = judged(holds, trials)
    assert result.verdict == verdict
    assert ("Response time p99 of threads=2 is only a lower bound" in result.sentence) == ("p99[threads=2]" in holds)


def test_factors_left_out_must_all_agree() -> None:
    def trials(third: float) -> list[TrialResult]:
        noise = [1.0, 1.01, 0.99, 1.0, 1.005]
        return [
            trial({"core": core, "queue": queue}, block, {"goodput_per_s": base * wave})
            for core, queue, base in [(1, 10, 100), (2, 10, 200), (1, 20, 100), (2, 20, third)]
            for block, wave in enumerate(noise if core == 1 else noise[::-1])
        ]

    made = claiming("goodput[core=2] > goodput[core=1]", {"core": (1, 2), "queue": (10, 20)})
    (held,) = judge_claims(made, trials(180))
    assert held.verdict == "held" and [part.where for part in held.parts] == ["queue=10", "queue=20"]
    assert all(part.interval is not None and part.interval.confidence == pytest.approx(0.975) for part in held.parts)
    assert held.sentence.startswith(
        "All 2 comparisons are confirmed; goodput[core=2] > goodput[core=1] at queue=10: 200/s"
    )
    (refuted,) = judge_claims(made, trials(50))
    assert refuted.verdict == "refuted" and [part.verdict for part in refuted.parts] == ["held", "refuted"]
    assert refuted.sentence.startswith("1 of 2 comparisons is refuted; goodput[core=2] > goodput[core=1] at queue=20")
    (undecided,) = judge_claims(made, trials(100))
    assert undecided.verdict == "undecided" and "The interval includes both" in undecided.sentence


POOLS = Subject(
    name="fake",
    command=("fake", "{model}", "{threads}"),
    parameters={
        "model": Parameter(type="string", default="fixed", help="x"),
        "threads": Parameter(type="int", default=8, help="x", used_when={"model": ("fixed",)}),
    },
)


@pytest.mark.parametrize(
    ("holds", "verdict", "where"),
    [
        ("goodput[model=cached,threads=64] > goodput[model=fixed,threads=64]", "refuted", [""]),
        ("goodput[model=cached,threads=64] > goodput[model=fixed,threads=8]", "held", [""]),
        ("goodput[model=cached] > goodput[model=fixed]", "refuted", ["threads=8", "threads=64"]),
        ("goodput[threads=8] < goodput[threads=64]", "held", ["model=fixed"]),
        ("goodput[model=cached] > 1000/s", "held", ["threads=8"]),
    ],
)
def test_a_setting_is_found_by_the_values_that_the_server_reads(holds: str, verdict: str, where: list[str]) -> None:
    """A cached pool reads no number of threads: the run has one setting of it."""
    levels: dict[str, tuple[Level, ...]] = {"model": ("fixed", "cached"), "threads": (8, 64)}
    made = experiment(levels, subject=POOLS, claims=(Claim(id="one", says="so it is", holds=holds),))
    rates = {("fixed", 8): 400.0, ("fixed", 64): 2000.0, ("cached", 8): 1200.0}
    assert [setting.as_dict() for setting in made.settings()] == [{"model": m, "threads": n} for m, n in rates]
    trials = [
        trial({"model": model, "threads": threads}, block, {"goodput_per_s": rate * wave})
        for (model, threads), rate in rates.items()
        for block, wave in enumerate([1.0, 1.01, 0.99])
    ]
    (result,) = judge_claims(made, trials)
    assert result.verdict == verdict and [part.where for part in result.parts] == where


@pytest.mark.parametrize(
    "holds",
    [
        "goodput[model=cached,threads=8] < goodput[model=cached,threads=64]",
        "goodput[model=fixed,threads=8] < goodput[model=fixed,threads=64] and "
        "goodput[model=cached,threads=8] < goodput[model=cached,threads=64]",
    ],
)
def test_a_claim_of_an_older_run_that_compares_a_setting_with_itself_is_undecided(holds: str) -> None:
    claim = Claim(id="one", says="so it is", holds=holds)
    made = experiment({"model": ("fixed", "cached"), "threads": (8, 64)}, subject=POOLS, claims=(claim,))
    (result,) = judge_claims(made, [])
    assert result.verdict == "undecided" and result.parts == ()


def test_numbers_beyond_a_float_are_no_error() -> None:
    trials = series("goodput_per_s", {1: [1e-90, 1e90], 2: [1.0, 1.0]})
    result = judged("goodput[threads=1] < goodput[threads=2]", trials)
    assert result.verdict == "undecided" and result.parts[0].interval is not None
    too_large = judged("goodput[threads=1] * goodput[threads=1] < 1", trials)
    assert too_large.verdict == "undecided" and "too large" in too_large.sentence


@pytest.mark.parametrize("name", experiment_names())
def test_shipped_claims_can_be_judged(name: str) -> None:
    """Without any trial, each claim finds its settings and is undecided only for want of trials."""
    for profile in (None, *profile_names(name)):
        made = load_experiment(name, profile)
        for result in judge_claims(made, []):
            assert result.parts and result.verdict == "undecided" and "was valid" in result.sentence


@pytest.mark.parametrize(("per_s", "verdict"), [(5.0, "undecided"), (1000.0, "held")])
@pytest.mark.parametrize("holds", ["error_rate[threads=1] < 0.1%", "0.1% > error_rate[threads=1]"])
def test_a_share_of_few_requests_confirms_no_bound(holds: str, per_s: float, verdict: str) -> None:
    """No error in three rounds of 10 s."""
    trials = [trial({"threads": 1}, block, {"error_rate": 0.0, "achieved_rate_per_s": per_s}) for block in range(3)]
    found = judged(holds, trials)
    assert found.verdict.value == verdict, found.sentence


@pytest.mark.parametrize(("window_s", "verdict"), [(2.0, "undecided"), (None, "held")])
def test_a_share_of_short_trials_is_of_the_requests_that_they_had(window_s: float | None, verdict: str) -> None:
    """No error in three rounds at 100/s: 600 requests in trials of 2 s, as a race shortens them, or 3,000."""
    metrics = {"error_rate": 0.0, "achieved_rate_per_s": 100.0}
    trials = [trial({"threads": 1}, block, metrics, window_s=window_s) for block in range(3)]
    found = judged("error_rate[threads=1] < 0.4%", trials)
    assert found.verdict.value == verdict, found.sentence


@pytest.mark.parametrize(("users", "verdict"), [(10, "undecided"), (100, "held")])
def test_a_share_is_of_the_requests_of_its_setting(users: int, verdict: str) -> None:
    """No error in five rounds, in which each user sends ten requests."""
    claim = Claim(id="one", says="so it is", holds=f"error_rate[load.users={users}] < 0.5%")
    load = Load(users=100, requests_per_user=10, duration=10 * 10**9)
    made = experiment({"load.users": (10, 100)}, load=load, claims=(claim,))
    trials = [trial({"load.users": users}, block, {"error_rate": 0.0}) for block in range(5)]
    (found,) = judge_claims(made, trials)
    assert found.verdict.value == verdict, found.sentence


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [
        ("p99[threads=1] < 50ms", "undecided"),
        ("p99[threads=1] < 10ms", "refuted"),
        ("p99[threads=1] > 10ms", "held"),
        ("p50[threads=1] < 50ms", "held"),
    ],
)
def test_starts_with_too_few_requests_for_a_percentile_are_not_left_out_of_a_claim(holds: str, verdict: str) -> None:
    """Two of six starts answered so few requests that they have no p99: they may be the slowest."""
    times = {"response_time_ns_p50": 1e7, "response_time_ns_p99": 2e7}
    few = {"response_time_ns_p50": 1.1e7}
    trials = [trial({"threads": 1}, block, few if block in (2, 4) else times) for block in range(6)]
    found = judged(holds, trials)
    assert found.verdict == verdict
    assert ("Response time p99 of threads=1 is not known of all rounds" in found.sentence) == ("p99" in holds)


@pytest.mark.parametrize(
    ("holds", "load", "verdict"),
    [
        ("p99[threads=1] < p99[threads=2]", Load(jmeter="plan.jmx"), "undecided"),
        ("p99[threads=2] - p99[threads=1] > 0", Load(jmeter="plan.jmx"), "undecided"),
        ("p99[threads=1] != p99[threads=2]", Load(jmeter="plan.jmx"), "undecided"),
        ("p99[threads=1] < p99[threads=4]", Load(jmeter="plan.jmx"), "held"),
        ("p99[threads=4] - p99[threads=1] > 2.5ms", Load(jmeter="plan.jmx"), "held"),
        ("p99[threads=4] - p99[threads=1] > 3.5ms", Load(jmeter="plan.jmx"), "undecided"),
        ("p99[threads=1] < 2.4ms", Load(jmeter="plan.jmx"), "undecided"),
        ("2.4ms > p99[threads=1]", Load(jmeter="plan.jmx"), "undecided"),
        ("p99[threads=1] < 3ms", Load(jmeter="plan.jmx"), "held"),
        ("p99[threads=1] > 3ms", Load(jmeter="plan.jmx"), "refuted"),
        ("response_time_ns_mean[threads=1] < 2.4ms", Load(jmeter="plan.jmx"), "held"),
        ("p99[threads=1] < p99[threads=2]", Load(users=10), "held"),
    ],
)
def test_a_claim_on_times_is_judged_no_closer_than_the_clock_of_the_load_counts(
    holds: str, load: Load, verdict: str
) -> None:
    """JMeter reads 2, 3 and 6 ms in every round, each from half a ms below to half a ms above the truth."""
    names = ("response_time_ns_p99", "response_time_ns_mean")
    trials = [
        trial({"threads": threads}, block, dict.fromkeys(names, ms * 1e6))
        for threads, ms in ((1, 2.0), (2, 3.0), (4, 6.0))
        for block in range(4)
    ]
    made = claiming(holds, {"threads": (1, 2, 4)}).model_copy(update={"load": load})
    (found,) = judge_claims(made, trials)
    assert found.verdict == verdict, found.sentence
    assert ("since the load's clock counts steps of 1.00 ms" in found.sentence) is (verdict == "undecided")


@pytest.mark.parametrize(
    ("holds", "allowed", "verdict"),
    [
        ("error_rate[threads=1] == 0", 0.0, "undecided"),
        ("error_rate[threads=1] != 0", 0.0, "undecided"),
        ("error_rate[threads=1] < 1%", 0.0, "undecided"),
        ("error_rate[threads=1] == 0", 0.95, "held"),
        ("error_rate[threads=2] == 0", 0.0, "held"),
        ("p99[threads=1] < 50ms", 0.0, "undecided"),
        ("goodput[threads=1] > goodput[threads=2]", 0.0, "undecided"),
        ("goodput[threads=1] - goodput[threads=2] > 0", 0.0, "undecided"),
        # What a setting that fails shows in the rounds in which it worked would only be worse in the others.
        ("goodput[threads=1] > 190/s", 0.0, "undecided"),
        ("goodput[threads=1] > 300/s", 0.0, "refuted"),
        ("p99[threads=1] < 10ms", 0.0, "refuted"),
        ("p99[threads=1] > 10ms", 0.0, "held"),
    ],
)
def test_rounds_in_which_a_setting_worked_confirm_nothing_that_its_failed_starts_may_refute(
    holds: str, allowed: float, verdict: str
) -> None:
    """threads=1 answers no request in three of five rounds."""
    fine = {"error_rate": 0.0, "response_time_ns_p99": 2e7}
    trials = [trial({"threads": 1}, block, {**fine, "goodput_per_s": 200.0 + block}) for block in range(5)]
    nothing = (Problem("no_request_ok", "not one request was answered"),)
    for block in (1, 3, 4):
        trials[block] = replace(trials[block], problems=nothing, metrics={"error_rate": 1.0})
    trials += [trial({"threads": 2}, block, {**fine, "goodput_per_s": 100.0 + block}) for block in range(5)]
    found = judged(holds, trials, allow_failed_starts=allowed)
    assert found.verdict == verdict, found.sentence
    assert ("threads=1 failed 3 of 5 starts" in found.sentence) is ("threads=1" in holds and not allowed)


def test_a_start_that_failed_in_a_round_that_was_not_over_leaves_a_claim_open() -> None:
    """The answer counts that start, too; the round itself is no look."""
    claims = (Claim(id="one", says="so it is", holds="goodput[threads=1] > 1/s"),)
    made = experiment({"threads": (1, 2)}, claims=claims, measure={"repeats": 5}, design={"order": "race"})
    values = {threads: [100.0 * threads + block for block in range(5)] for threads in (1, 2)}
    ran = [replace(each, number=number) for number, each in enumerate(series("goodput_per_s", values), 1)]
    died = replace(trial({"threads": 1}, 5, {}, number=11), status="failed", problems=(Problem("died", "it died"),))
    progress = Progress(race=Race((), (), trials=11, grid_trials=16, ended_by="stopped", blocks=5, half=(5,)))
    found = [analyse(made, trials, progress).claims[0] for trials in (ran, [*ran, died])]
    assert [each.verdict for each in found] == ["held", "undecided"]
    assert "threads=1 failed 1 of 6 starts" in found[1].sentence and found[1].parts[0].blocks == 5


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [("finish_s[threads=1] < 10s", "undecided"), ("finish_s[threads=1] > 4s", "held")],
)
def test_rounds_in_which_not_all_users_finished_are_not_left_out_of_a_claim(holds: str, verdict: str) -> None:
    """Such a trial has no time to finish: it would be longer than its window."""
    trials = [trial({"threads": 1}, block, {"error_rate": 0.0, "finish_s": 5.0 + block / 100}) for block in range(5)]
    trials[2] = replace(trials[2], metrics={"error_rate": 0.0})
    found = judged(holds, trials)
    assert found.verdict == verdict, found.sentence
    assert "of threads=1 is not known of all rounds: some trials did not measure it" in found.sentence
