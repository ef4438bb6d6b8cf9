"""The cost of each change is checked against known ratios, ranked, and shown in every report."""

from __future__ import annotations

import io
import json
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from fakes.trials import experiment
from powerband.analyze.settings.compare import Progress, analyse
from powerband.model.experiment import Experiment, Objective
from powerband.model.plan import Setting, Stage
from powerband.model.results import Departure, Estimate, Look, Race, TrialResult, Verdict
from powerband.report.documents.json import to_document
from powerband.report.html.charts import main_charts
from powerband.report.html.verdicts import changes_section
from powerband.report.terminal.text import print_answer

SCHEMA = Path(__file__).parents[4] / "docs/reference/analysis.schema.json"
FACTORS = {"metrics": ("off", "datagram", "library"), "debug": (False, True)}
DRIFT = (1.0, 1.3, 0.8, 1.1, 0.95, 1.2)
# By setting, relative to the baseline, with a noise of some tenths of a per cent from block to block.
RATIOS = {
    ("off", False): 1.0,
    ("datagram", False): 0.02,
    ("library", False): 1.1,
    ("off", True): 0.999,
}


def case(**changes: object) -> Experiment:
    return experiment(FACTORS, design={"seed": 7, "vary": "one-at-a-time"}, **changes)


def trials(lacking: tuple[object, ...] | None = None) -> list[TrialResult]:
    found = []
    for index, (levels, ratio) in enumerate(RATIOS.items()):
        setting = Setting(tuple(zip(FACTORS, levels, strict=True)))  # type: ignore[arg-type]
        for block, drift in enumerate(DRIFT):
            value = 1e6 * drift * ratio * (1 + 0.002 * ((block * 7 + index * 3) % 5 - 2))
            metrics = {} if levels == lacking else {"goodput_per_s": value, "error_rate": 0.0}
            found.append(TrialResult(len(found) + 1, block, 1, setting, "measured", (), metrics))
    return found


def test_sentences_call_a_setting_by_what_it_changes() -> None:
    found = analyse(case(), trials())
    first, *rest = found.answer.sentences
    assert first.startswith("Use metrics=library (all else as in the baseline): ")
    assert not [text for text in (first, *rest, *found.warnings) if ",debug=" in text]
    one = experiment({"n": (4, 40)}, design={"vary": "one-at-a-time"})
    few = [
        TrialResult(7, b, 1, Setting((("n", n),)), "measured", (), {"goodput_per_s": 1e3 * n + b, "error_rate": 0.0})
        for b in range(4)
        for n in (4, 40)
    ]
    assert analyse(one, few).answer.sentences[0].startswith("Use n=40 (all else as in the baseline): ")


def test_changes_are_ranked_by_what_they_cost() -> None:
    found = analyse(case(), trials()).changes
    assert [(cost.factor, cost.level, cost.baseline) for cost in found] == [
        ("metrics", "datagram", "off"),
        ("debug", True, False),
        ("metrics", "library", "off"),
    ]
    assert [cost.verdict for cost in found] == [Verdict.WORSE, Verdict.EQUIVALENT, Verdict.BETTER]
    for cost, ratio in zip(found, (0.02, 0.999, 1.1), strict=True):
        assert cost.ratio is not None and cost.ratio.low is not None and cost.ratio.high is not None
        assert cost.ratio.value == pytest.approx(ratio, rel=0.005)
        assert cost.ratio.low < ratio < cost.ratio.high
        # The drift is a hundred times as large, and has cancelled out.
        assert cost.ratio.high / cost.ratio.low < 1.02
        assert cost.ratio.confidence == pytest.approx(1 - 0.05 / 3)


def test_of_what_shall_be_small_the_dearest_is_the_largest() -> None:
    found = analyse(case(objective=Objective(direction="minimise")), trials()).changes
    assert [cost.level for cost in found] == ["library", True, "datagram"]
    assert found[0].verdict is Verdict.WORSE


def test_a_change_that_was_not_measured_comes_last_with_the_reason() -> None:
    found = analyse(case(), trials(lacking=("datagram", False))).changes
    assert found[-1].level == "datagram"
    assert found[-1].ratio is None and found[-1].because


def test_a_grid_has_none() -> None:
    assert analyse(experiment({"threads": (1, 2)}), []).changes == ()


def test_every_report_says_them() -> None:
    analysis = analyse(case(), trials())
    out = io.StringIO()
    print_answer(Console(file=out, width=120), analysis)
    said = out.getvalue()
    assert "what each change costs" in said
    assert said.index("metrics: off → datagram") < said.index("debug: false → true") < said.index("off → library")
    rows = {line.split("  ")[0].strip(): line for line in said.splitlines() if "→" in line}
    assert "×0.0" in rows["metrics: off → datagram"] and "costs" in rows["metrics: off → datagram"]
    assert "makes no difference" in rows["debug: false → true"]
    assert "+10" in rows["metrics: off → library"] and "gains" in rows["metrics: off → library"]
    page = changes_section(analysis)
    assert "metrics: off → datagram" in page and "the baseline" in page
    document = json.loads(json.dumps(to_document(analysis, None)))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["changes"][0]["level"] == "datagram"


def test_charts_do_not_take_it_for_a_grid() -> None:
    assert all(chart.kind != "heat" for chart in main_charts(analyse(case(), trials())))


@pytest.mark.parametrize(
    ("leader", "slow", "slo"),
    [("off", "datagram", []), ("off", "datagram", ["error_rate < 1%"]), ("library", "off", [])],
)
def test_a_change_is_judged_by_short_trials_where_it_or_the_baseline_left_after_them(
    leader: str, slow: str, slo: list[str]
) -> None:
    """The race of three settings eliminates the slow one by two rounds of short trials, which leave some of its users
    without an answer."""
    design = {"seed": 7, "vary": "one-at-a-time", "order": "race", "screen": "500ms"}
    objective = {"metric": "goodput", "direction": "maximise", "subject_to": slo}
    made = experiment({"metrics": ("off", "datagram", "library")}, design=design, objective=objective)
    base, *changed = made.settings()
    rates = {"off": 900.0, "datagram": 890.0, "library": 895.0, leader: 1000.0, slow: 100.0}
    results, departures = list[TrialResult](), list[Departure]()
    for block, stage in enumerate([Stage.SCREEN] * 2 + [Stage.COMPARE] * 3):
        for setting in made.settings():
            name = str(setting.as_dict()["metrics"])
            if stage is Stage.COMPARE and name == slow:
                continue
            metrics = {"goodput_per_s": rates[name] * (1 + 0.002 * ((block * 7 + len(name)) % 5 - 2))}
            metrics["error_rate"] = 0.22 if name == slow else 0.0
            results.append(TrialResult(len(results) + 1, block, 1, setting, "measured", (), metrics, stage=stage))
    gone = next(setting for setting in made.settings() if setting.as_dict()["metrics"] == slow)
    best = next(setting for setting in made.settings() if setting.as_dict()["metrics"] == leader)
    departures.append(Departure(gone, 1, "worse", Estimate(0.1, 0.09, 0.11, 0.95, 2), worse=True))
    look = Look(1, best, {}, (gone,))
    found = analyse(made, results, Progress(race=Race((look,), tuple(departures), len(results), 30, "decided", 5)))
    costs = {str(cost.level): cost for cost in found.changes}
    assert set(costs) == {str(setting.as_dict()["metrics"]) for setting in changed} and base not in changed
    verdicts = {name: cost.verdict for name, cost in costs.items()}
    if slow == "datagram":
        assert verdicts["datagram"] is Verdict.WORSE and costs["datagram"].ratio == departures[0].effect
    else:
        assert set(verdicts.values()) == {Verdict.BETTER}, "both, though the baseline has no full trial"
        assert costs["library"].ratio is not None and costs["library"].ratio.value == pytest.approx(10, rel=0.02)
