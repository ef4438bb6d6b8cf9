"""Two revisions of a server in one run: the verdict on NEW, setting by setting, is checked against known answers."""

import io
import json
import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from rich.console import Console
from scipy.stats import ttest_rel

from fakes.trials import experiment
from powerband.analyze.runs.changes import RunComparison
from powerband.analyze.runs.revisions import compare_revisions, holds_revisions
from powerband.analyze.settings.compare import Progress, analyse
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Experiment, Objective
from powerband.model.load import Load
from powerband.model.plan import Setting, Stage
from powerband.model.results import (
    Analysis,
    Bottleneck,
    Departure,
    Estimate,
    Look,
    Problem,
    Race,
    TrialResult,
    Verdict,
)
from powerband.report.documents.markdown import render_markdown
from powerband.report.html.verdicts import why_section
from powerband.report.terminal.text import print_answer

FACTORS = {"threads": (2, 4), "revision": ("old", "new")}


def case(pairs: bool = True, **objective: object) -> Experiment:
    factors = FACTORS if pairs else {"revision": ("old", "new")}
    return experiment(factors, objective=Objective.model_validate(objective))


def trials(
    values: dict[tuple[object, ...], list[float]], metric: str = "goodput_per_s", names: tuple[str, ...] = ()
) -> list[TrialResult]:
    """Trials by the levels of the factors, with one value for each block."""
    names = names or (("threads", "revision") if len(next(iter(values))) == 2 else ("revision",))
    results = []
    for levels, row in values.items():
        setting = Setting(tuple(zip(names, levels, strict=True)))  # type: ignore[arg-type]
        for block, value in enumerate(row):
            metrics = {"error_rate": 0.0, metric: value}
            results.append(TrialResult(len(results) + 1, block, 1, setting, "measured", (), metrics))
    return results


def compared(of: Experiment, results: list[TrialResult]) -> RunComparison:
    return compare_revisions(of, analyse(of, results))


DRIFT = [100.0, 130.0, 80.0, 110.0, 95.0, 120.0]


def test_drift_of_the_machine_cancels_within_a_block() -> None:
    old = DRIFT
    new = [value * 0.9 * shift for value, shift in zip(DRIFT, (1.001, 0.999, 1.0, 1.002, 0.998, 1.0), strict=True)]
    found = compared(case(pairs=False), trials({("old",): old, ("new",): new}))
    (change,) = found.changes
    known = ttest_rel([math.log(x) for x in new], [math.log(x) for x in old]).confidence_interval(0.95)
    differences = sorted(math.log(y / x) for x, y in zip(old, new, strict=True))
    half_step = max(b - a for a, b in pairwise(differences)) / (2 * len(old))
    assert change.verdict is found.verdict is Verdict.WORSE
    assert change.ratio is not None
    assert change.ratio.low == pytest.approx(math.exp(known.low - half_step), rel=1e-6)
    assert change.ratio.high == pytest.approx(math.exp(known.high + half_step), rel=1e-6)
    assert change.smallest_difference == pytest.approx(math.exp((known.high - known.low) / 2 + half_step) - 1)
    assert found.paired and found.names == ("old", "new")
    assert "new is worse than old: goodput −10.0 %" in found.sentence


@pytest.mark.parametrize(
    ("direction", "factor", "verdict"),
    [
        ("maximise", 1.2, Verdict.BETTER),
        ("maximise", 0.8, Verdict.WORSE),
        ("minimise", 1.2, Verdict.WORSE),
        ("minimise", 0.8, Verdict.BETTER),
        ("maximise", 1.004, Verdict.EQUIVALENT),
        ("maximise", 0.996, Verdict.EQUIVALENT),
    ],
)
def test_whichever_leads_the_verdict_is_on_the_new_one(direction: str, factor: float, verdict: Verdict) -> None:
    objective = {"metric": "response_time_ns_p99", "direction": direction}
    values = {("old",): DRIFT, ("new",): [value * factor for value in DRIFT]}
    (change,) = compared(case(pairs=False, **objective), trials(values, "response_time_ns_p99")).changes
    assert change.verdict is verdict
    assert change.ratio is not None and change.ratio.value == pytest.approx(factor)


def test_what_rests_on_a_lower_bound_of_p99_has_no_more_than_that() -> None:
    """2 % of the requests of the new one fail; its p99 is a window at least."""
    aim = {"metric": "response_time_ns_p99", "direction": "minimise"}
    rows = trials({("old",): [value * 1e5 for value in DRIFT], ("new",): [5e9] * len(DRIFT)}, aim["metric"])
    failing = [replace(row, metrics={**row.metrics, "error_rate": 0.02}) for row in rows]
    worse = [bad if row.setting.as_dict()["revision"] == "new" else row for row, bad in zip(rows, failing, strict=True)]
    found = compared(case(pairs=False, **aim), worse)
    assert found.verdict is Verdict.WORSE and "p99 at least 5.00 s instead of" in found.sentence
    assert "%" not in found.sentence
    both = compared(case(pairs=False, **aim), failing)
    assert both.verdict is Verdict.INCONCLUSIVE and "would decide" not in both.sentence
    assert "response time p99 is only a lower bound in old and new" in both.sentence


def test_each_setting_has_a_verdict_and_the_worst_is_that_of_all() -> None:
    rng = random.Random(3)
    wobble = [[rng.uniform(0.998, 1.002) for _ in DRIFT] for _ in range(4)]
    factors = {(2, "old"): 1.0, (2, "new"): 1.0, (4, "old"): 2.0, (4, "new"): 1.6}
    values: dict[tuple[object, ...], list[float]] = {
        levels: [value * factor * off for value, off in zip(DRIFT, noise, strict=True)]
        for (levels, factor), noise in zip(factors.items(), wobble, strict=True)
    }
    found = compared(case(), trials(values))
    assert {change.setting.id: change.verdict for change in found.changes} == {
        "threads=2": Verdict.EQUIVALENT,
        "threads=4": Verdict.WORSE,
    }
    assert found.verdict is Verdict.WORSE
    assert "in 1 of 2 settings: threads=4, goodput −20" in found.sentence
    assert all(change.ratio is not None and change.ratio.confidence == pytest.approx(0.975) for change in found.changes)
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize(("gone", "verdict", "ratio"), [("old", Verdict.BETTER, 9.0), ("new", Verdict.WORSE, 1 / 9)])
def test_where_one_left_the_race_after_its_short_trials_these_compare_the_two(
    gone: str, verdict: Verdict, ratio: float
) -> None:
    """A race of four settings eliminates one revision with 2 threads, while the new one with 4 leads."""
    made = experiment(FACTORS, design={"seed": 7, "order": "race", "screen": "500ms"})
    rates: dict[tuple[object, ...], float] = {(2, "old"): 900.0, (2, "new"): 900.0, (4, "old"): 950.0}
    rates |= {(4, "new"): 1000.0, (2, gone): 100.0}
    settings = {(each.as_dict()["threads"], each.as_dict()["revision"]): each for each in made.settings()}
    results = list[TrialResult]()
    for block, stage in enumerate([Stage.SCREEN] * 2 + [Stage.COMPARE] * 3):
        for place, (levels, setting) in enumerate(settings.items()):
            if stage is Stage.COMPARE and levels == (2, gone):
                continue
            metrics = {"goodput_per_s": rates[levels] * (1 + 0.002 * ((block * 7 + place) % 5 - 2)), "error_rate": 0.0}
            metrics["rss_bytes_max"] = 1e8 if stage is Stage.SCREEN else 3e8  # it grows
            results.append(TrialResult(len(results) + 1, block, 1, setting, "measured", (), metrics, stage=stage))
    left = Departure(settings[2, gone], 1, "worse", Estimate(0.1, 0.09, 0.11, 0.95, 2), worse=True)
    look = Look(1, settings[4, "new"], {}, (left.setting,))
    race = Race((look,), (left,), len(results), 20, "decided", 5)
    found = compare_revisions(made, analyse(made, results, Progress(race=race)))
    change = next(change for change in found.changes if change.setting.as_dict() == {"threads": 2})
    assert (change.verdict, change.because) == (verdict, "")
    assert change.ratio is not None and change.ratio.value == pytest.approx(ratio, rel=0.02)
    assert "memory" not in " ".join(found.further), "that of short trials is no less"


def test_a_new_one_that_fails_by_itself_is_worse_and_one_that_was_disturbed_is_not_known() -> None:
    results = trials({("old",): DRIFT})
    new = Setting((("revision", "new"),))
    died = Problem("died", "the server exited with code 1")
    failed = [TrialResult(9, 0, 1, new, "failed", (died,), {})]
    (change,) = compared(case(pairs=False), [*results, *failed]).changes
    assert (change.verdict, change.second) == (Verdict.WORSE, None)
    assert change.because == "new could not be measured: the server exited with code 1"
    disturbed = [replace(failed[0], status="measured", problems=(Problem("host_foreign", "others took CPU"),))]
    found = compared(case(pairs=False), [*results, *disturbed])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.sentence == "Nothing can be compared: new could not be measured: others took CPU."
    (change,) = compared(case(pairs=False), results).changes
    assert (change.verdict, change.because) == (Verdict.INCONCLUSIVE, "new was not tried")


@pytest.mark.parametrize(
    ("bounded", "p50_ns", "verdict", "said"),
    [
        ("new", 640e6, Verdict.WORSE, "response time p99 at least 642 ms instead of 20.2 ms"),
        ("old", 640e6, Verdict.BETTER, "response time p99 20.2 ms instead of at least 642 ms"),
        ("new", 10e6, Verdict.INCONCLUSIVE, "new could not be measured: only 500 requests"),
    ],
)
def test_a_revision_with_too_few_requests_for_a_p99_is_worse_where_a_lower_percentile_lies_above_the_other(
    bounded: str, p50_ns: float, verdict: Verdict, said: str
) -> None:
    metric, few = "response_time_ns_p99", Problem("few_requests", "only 500 requests", fatal=False)
    other = "old" if bounded == "new" else "new"
    slow = trials({(bounded,): [p50_ns, 1.01 * p50_ns, p50_ns]}, "response_time_ns_p50")
    quick = trials({(other,): [20e6, 20.5e6, 20.2e6]}, metric)
    results = [*quick, *(replace(trial, number=trial.number + 3, problems=(few,)) for trial in slow)]
    found = compared(case(pairs=False, metric=metric, direction="minimise"), results)
    (change,) = found.changes
    assert (change.verdict, found.decides) == (verdict, True)
    assert said in found.sentence
    sides = {"old": change.first, "new": change.second}
    assert [name for name, side in sides.items() if side is not None and side.at_least] == [bounded]


def test_who_breaks_a_constraint_is_worse_whatever_it_serves() -> None:
    objective = {"subject_to": "error_rate < 1%"}
    results = trials({("old",): DRIFT, ("new",): [2 * value for value in DRIFT]})
    broken = [
        replace(trial, metrics={**trial.metrics, "error_rate": 0.05 + trial.block / 1000})
        if trial.setting.id == "revision=new"
        else trial
        for trial in results
    ]
    found = compared(case(pairs=False, **objective), broken)
    assert found.verdict is Verdict.WORSE
    assert found.sentence.startswith("new is worse than old: new violates the SLO (error_rate < 1%")


MS = 1e6
P99 = "response_time_ns_p99"
UNMEASURED = "it is not certain whether old and new meet the SLO (p99 < 50ms: response time p99 was not measured)"


def beside(old: list[dict[str, float]], new: list[dict[str, float]], ratio: float = 1.0) -> RunComparison:
    """Two revisions with these metrics by block, besides a goodput that is `ratio` times the old one's. The SLO is that
    of a usual gate."""
    wobble = (1.001, 0.999, 1.0, 1.002, 0.998)
    values: dict[tuple[object, ...], list[float]] = {
        ("old",): DRIFT[:5],
        ("new",): [value * ratio * off for value, off in zip(DRIFT, wobble, strict=False)],
    }
    rows = [
        replace(row, metrics={**row.metrics, **(new if row.setting.id == "revision=new" else old)[row.block]})
        for row in trials(values)
    ]
    return compared(case(pairs=False, subject_to=["p99 < 50ms", "error_rate < 1%"]), rows)


def around(metric: str, value: float) -> list[dict[str, float]]:
    return [{metric: value * off} for off in (1.0, 1.01, 0.99, 1.02, 0.98)]


LAPSED = [{P99: (60 if block == 2 else 40 + block) * MS} for block in range(5)]


@pytest.mark.parametrize(
    ("each", "told"),
    [
        pytest.param([{}] * 5, UNMEASURED, id="not measured"),
        pytest.param(LAPSED, "old and new meet the SLO (p99 < 50ms: broken in 1 of 5 starts)", id="lapsed"),
        pytest.param(around(P99, 60 * MS), "old and new violate the SLO (p99 < 50ms: it was 60.0 ms", id="missed"),
        pytest.param(around("error_rate", 0.02), "error_rate < 1%: it was 2", id="errors"),
    ],
)
def test_a_clear_loss_is_one_though_neither_meets_the_slo(each: list[dict[str, float]], told: str) -> None:
    worse = beside(each, each, 0.6)
    assert worse.verdict is Verdict.WORSE
    assert worse.sentence.startswith("new is worse than old: goodput −40.0 %"), worse.sentence
    for ratio in (1.0, 1.5):
        found = beside(each, each, ratio)
        assert found.verdict is Verdict.INCONCLUSIVE
        assert told in found.sentence and "()" not in found.sentence
        figures = "goodput −0.0 % (−0.2 to +0.2 %)" if ratio == 1.0 else "goodput +50.0 % ("
        assert figures in found.sentence, "by how much it could be worse"
        assert ("would decide" in found.sentence) is (each == [{}] * 5), "more rounds mend no limit that is broken"


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        (around(P99, 60 * MS), around(P99, 900 * MS), "response time p99 900 ms instead of 60.0 ms"),
        (around("error_rate", 0.02), around("error_rate", 0.6), "error rate 60.0 % instead of 2.00 %"),
        (LAPSED, around(P99, 900 * MS), "response time p99 900 ms instead of 45.1 ms"),
    ],
)
def test_a_metric_of_the_slo_that_is_clearly_worse_is_a_loss_where_neither_meets_it(
    old: list[dict[str, float]], new: list[dict[str, float]], because: str
) -> None:
    (change,) = beside(old, new).changes
    assert (change.verdict, change.because) == (Verdict.WORSE, because)
    assert beside(new, old).verdict is Verdict.INCONCLUSIVE, "it still violates the SLO"


def test_one_condition_that_the_new_one_alone_breaks_decides_though_another_was_not_measured() -> None:
    errors = around("error_rate", 0.03)
    (change,) = beside([{}] * 5, errors).changes
    assert change.verdict is Verdict.WORSE
    assert change.because.startswith("new violates the SLO (error_rate < 1%: it was 3")


def test_a_new_one_whose_p99_was_not_measured_is_not_better_than_one_that_misses_it() -> None:
    assert beside(around(P99, 60 * MS), [{}] * 5).verdict is Verdict.INCONCLUSIVE


def test_a_revision_that_never_starts_has_no_bound_on_its_failures() -> None:
    died = Problem("died", "the server exited with code 1")
    new = Setting((("revision", "new"),))
    failed = [TrialResult(9 + n, n, 1, new, "failed", (died,), {}) for n in range(3)]
    told = analyse(case(pairs=False), [*trials({("old",): DRIFT}), *failed]).answer.sentences[1]
    assert "revision=new failed 3 of 3 starts." in told


def test_one_block_decides_nothing() -> None:
    (change,) = compared(case(pairs=False), trials({("old",): [100.0], ("new",): [50.0]})).changes
    assert change.verdict is Verdict.INCONCLUSIVE
    assert change.ratio is not None and change.ratio.value == pytest.approx(0.5)


def test_what_holds_revisions() -> None:
    assert holds_revisions(case())
    assert not holds_revisions(experiment({"threads": (1, 2)}))
    assert not holds_revisions(experiment({"revision": ("a", "b", "c")}))


def test_equal_revisions_differ_in_at_most_five_percent_of_comparisons() -> None:
    """A/A comparisons under drift: three settings, 300 comparisons; 5 % and 1.64 standard errors of it."""
    of = experiment({"threads": (1, 2, 4), "revision": ("old", "new")})
    rng = random.Random(11)
    false = 0
    for _ in range(300):
        drift = [math.exp(rng.gauss(0, 0.1)) for _ in range(5)]
        values = {
            setting.levels: [100 * drift[block] * math.exp(rng.gauss(0, 0.02)) for block in range(5)]
            for setting in of.settings()
        }
        results = trials({tuple(level for _, level in levels): row for levels, row in values.items()})
        analysis = replace(analyse(experiment({"threads": (1,)}), []), trials=tuple(results), objective="goodput_per_s")
        verdicts = {change.verdict for change in compare_revisions(of, analysis).changes}
        false += bool(verdicts & {Verdict.BETTER, Verdict.WORSE})
    assert false / 300 <= 0.05 + 1.64 * (0.05 * 0.95 / 300) ** 0.5


def test_half_a_block_of_a_race_that_was_stopped_is_no_look() -> None:
    of = case(pairs=False)
    rows = trials({("old",): [*DRIFT, 1.0], ("new",): [*(0.9 * value for value in DRIFT), 50.0]})
    analysis = analyse(of, rows)
    stopped = Race((), (), len(rows), 20, "stopped", len(DRIFT), half=(len(DRIFT),))
    (whole,) = compare_revisions(of, replace(analysis, race=stopped)).changes
    (ended,) = compare_revisions(of, replace(analysis, race=replace(stopped, ended_by="blocks", half=()))).changes
    assert whole.ratio is not None and whole.ratio.value == pytest.approx(0.9, rel=1e-6)
    assert ended.ratio is not None and ended.ratio.value > 1


def test_the_answer_of_a_run_of_two_revisions_is_that_of_their_comparison() -> None:
    """The pool of the leader is too small, but nobody asked which revision to use, or how to make it faster."""
    of = case(pairs=False)
    rows = trials({("old",): [100.0, 101.0, 99.0], ("new",): [90.0, 91.2, 88.9]})
    small = Bottleneck(BottleneckName.POOL_TOO_SMALL, ("All 8 threads are busy",), "give `python` more threads")
    analysis = analyse(of, [replace(row, bottleneck=small) for row in rows])
    found = compare_revisions(of, analysis)
    assert found.verdict is Verdict.WORSE
    assert analysis.answer.sentences[0] == found.sentence
    assert "This verdict has 95 % confidence." in analysis.answer.sentences[1]
    unsure = analyse(of, trials({("old",): [100.0, 140.0], ("new",): [110.0, 120.0]})).answer.sentences
    assert unsure[0].startswith("It is not certain") and "This verdict" not in unsure[1]
    assert analysis.question == "Is new worse than old?"
    assert "With revision=new the pool is too small." in analysis.answer.sentences[2]
    assert analysis.answer.sentences[3] == "The old revision has the same bottleneck."
    for shown in (printed(analysis), render_markdown(analysis, None), why_section(analysis, None, None)):
        assert "What to do" not in shown and "what to do" not in shown and "more threads" not in shown
        assert "Use revision" not in shown
    assert "Use revision=" in analyse(experiment({"revision": ("a", "b", "c")}), trials(ABC)).answer.sentences[0]
    assert analyse(of, []).answer.sentences[0] != compare_revisions(of, analyse(of, [])).sentence, "it says why"


ABC = {("a",): [100.0, 101.0, 99.0], ("b",): [90.0, 91.2, 88.9], ("c",): [80.0, 81.2, 78.9]}


def printed(analysis: Analysis) -> str:
    out = io.StringIO()
    print_answer(Console(file=out, width=200), analysis)
    return out.getvalue()


def test_a_difference_that_may_not_matter_is_told() -> None:
    values = {("old",): [100.0, 104.0, 97.0], ("new",): [92.0, 99.8, 92.0]}
    found = compared(case(pairs=False, margin=0.05), trials(values))
    assert found.verdict is Verdict.WORSE
    assert found.further == ("The difference may be smaller than the margin of 5 %.",)
    clear = compared(case(pairs=False, margin=0.05), trials({**values, ("new",): [50.0, 52.0, 48.0]}))
    assert clear.verdict is Verdict.WORSE and clear.further == ()


def test_a_revision_that_costs_clearly_more_is_told_and_one_that_may_not_is_not() -> None:
    def told(pairs: bool, cpu: list[float], memory: list[float]) -> tuple[str, ...]:
        of = case(pairs)
        rows = [
            replace(row, metrics={**row.metrics, "subject_cpu_ns_per_request": n, "rss_bytes_max": m})
            if ("revision", "new") in row.setting.levels
            else replace(row, metrics={**row.metrics, "subject_cpu_ns_per_request": 100.0, "rss_bytes_max": 1e7})
            for row in trials({tuple(level for _, level in setting.levels): DRIFT for setting in of.settings()})
            for n, m in [(cpu[row.block], memory[row.block])]
        ]
        return compared(of, rows).further

    equal, wide = [1e7] * 6, [1e7, 9e7, 1e7, 9e7, 1e7, 9e7]
    cpu = [438.0, 442.0, 440.0, 439.0, 441.0, 440.0]
    assert told(False, cpu, equal) == ("new uses 4.4 times the CPU per request.",)
    assert told(False, [100.0] * 6, wide) == (), "its interval reaches down to the old one"
    assert told(True, cpu, equal) == tuple(f"With threads={n} new uses 4.4 times the CPU per request." for n in (2, 4))
    of = case(pairs=False, metric="response_time_ns_p99", direction="minimise")
    slow = trials({("old",): DRIFT, ("new",): [9 * each for each in DRIFT]}, "response_time_ns_p99")
    assert compared(of, slow).further == (), "the verdict says it"
    assert told(False, [100.0] * 6, [each / 2 for each in equal]) == ("new uses 0.5 times the memory.",)


@pytest.mark.parametrize(("p99_ms", "told"), [(29.0, ("new has 1.4 times the p99 response time.",)), (21.0, ())])
def test_a_p99_that_surely_rose_is_told_where_the_rate_is_that_of_the_load(
    p99_ms: float, told: tuple[str, ...]
) -> None:
    rows = [
        replace(row, metrics={**row.metrics, P99: (p99_ms if "new" in row.setting.id else 20.0) * MS + row.block})
        for row in trials({("old",): [500.0] * 6, ("new",): [500.1] * 6})
    ]
    found = compared(case(pairs=False), rows)
    assert (found.verdict, found.further) == (Verdict.EQUIVALENT, told)


@pytest.mark.parametrize(
    ("load", "told"),
    [(Load(users=10), ("new has 1.5 times the p99 response time.",)), (Load(jmeter="plan.jmx"), ())],
)
def test_a_p99_that_rose_by_no_more_than_the_clock_of_the_load_may_be_off_is_not_told(
    load: Load, told: tuple[str, ...]
) -> None:
    rows = [
        replace(row, metrics={**row.metrics, P99: (3.0 if "new" in row.setting.id else 2.0) * MS})
        for row in trials({("old",): [500.0] * 6, ("new",): [500.1] * 6})
    ]
    found = compared(experiment({"revision": ("old", "new")}, load=load), rows)
    assert (found.verdict, found.further) == (Verdict.EQUIVALENT, told)


def test_a_limit_that_the_clock_of_the_load_leaves_open_is_not_said_to_need_more_rounds() -> None:
    rows = [
        replace(row, metrics={**row.metrics, P99: 2.0 * MS})
        for row in trials({("old",): [500.0] * 6, ("new",): [500.1] * 6})
    ]
    slo = {"subject_to": ["p99 < 2.4ms"]}
    of = experiment({"revision": ("old", "new")}, load=Load(jmeter="plan.jmx"), objective=slo)
    (change,) = compared(of, rows).changes
    assert change.verdict is Verdict.INCONCLUSIVE
    assert "as the load's clock counts steps of 1.00 ms" in change.because
    assert "would decide" not in change.because
