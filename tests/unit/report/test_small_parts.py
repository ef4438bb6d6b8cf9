"""Small parts of the report: the server from inside, bars, rules of thumb on one line, names of settings, CPUs that
runtimes count."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from fakes import synthetic, synthetic_verdicts
from fakes.trials import Figures, experiment, record_of, spec, write_trial
from powerband.analyze.trial.threads import LabelTable, ThreadUse
from powerband.files.resolved import resolved_yaml
from powerband.model.results import ChangeCost, Estimate, Verdict
from powerband.model.runtime import RuntimeView
from powerband.report.html.bar_section import bars_section
from powerband.report.html.gather import runtime_facts
from powerband.report.html.inside import ROWS_SHOWN, inside_section
from powerband.report.html.page import BarsView, InsideView
from powerband.report.html.report import write_report
from powerband.report.html.rule_chart import rule_chart, rule_tone
from powerband.report.wording.names import short_names
from powerband.search.session import analyse_run
from powerband.store import RunDir

VIEWS = (BarsView("threads=1", 3, 30.0, (100.0, 50.0, 75.0)), BarsView("<b>", 4, 30.0, (0.0, 0.0)))
JVM = RuntimeView("JVM", 1, "availableProcessors", 2, "asked", 2, {"collector": "G1"})
NODE = RuntimeView("Node.js", 3, "os.availableParallelism()", None, "derived", 1.5, {"UV_THREADPOOL_SIZE": "4"})


def test_threads_and_labels_are_told_and_escaped() -> None:
    threads = (ThreadUse("vert.x-eventloop-<0>", 0.5, 0.25, 1234.0),)
    labelled = LabelTable(("instance",), ("conns", "served_total"), ((("0",), (3.0, 12.5)), (("1",), (4.0, None))))
    text = inside_section([InsideView("instances=1", 3, threads, (labelled,))])
    assert "vert.x-eventloop-&lt;0&gt;" in text and "<td>50 %</td><td>25 %</td><td>1,234</td>" in text
    assert "served_total/s" in text and "<td>3</td><td>12.5</td>" in text and "<td>4</td><td>–</td>" in text
    assert "instances=1 (trial 3)" in text


def test_a_long_table_is_cut_and_says_so() -> None:
    rows = tuple(((str(i),), (1.0,)) for i in range(ROWS_SHOWN + 5))
    text = inside_section([InsideView("x=1", 1, (), (LabelTable(("i",), ("a",), rows),))])
    assert "and 5 more rows" in text and text.count("<tr>") == ROWS_SHOWN + 1


def test_nothing_known_is_no_section() -> None:
    assert inside_section([]) == ""


def test_what_a_damaged_file_leaves_out_is_told(tmp_path: Path) -> None:
    of = experiment({"threads": (1,)})
    run = RunDir.create(tmp_path, of.name, resolved_yaml(of), {})
    directory = run.trial(1)
    write_trial(directory, record_of(spec({"threads": 1}), Figures()), Figures())
    analysis = analyse_run(of, run)
    told = 'id="inside-title">From inside</h2><p class="lead">Not shown: the files of a trial are not as'
    assert told not in write_report(run, analysis).read_text()
    lines = directory.probe.read_text()
    directory.probe.write_text(lines.replace('"tree"', '"tr33"'))
    assert told in write_report(run, analysis).read_text()


def test_each_setting_has_its_picture_and_its_numbers() -> None:
    page = bars_section(VIEWS, replace(synthetic.analysis(), noun="message"))
    assert "mean rate of 30 s (messages per second)" in page
    first, second = page.split("<figure>")[1:]
    heights = [float(height) for height in re.findall(r'<rect [^>]*height="([\d.]+)"', first)]
    assert [height / heights[0] for height in heights] == [1.0, 0.5, 0.75]
    assert "lowest bar 50.0/s, highest 100/s: 50 %" in first
    assert ">30 s<" in first and ">75.0/s<" in first
    assert "&lt;b&gt;" in second and "<b>" not in second
    assert set(re.findall(r'height="([\d.]+)"></rect>', second)) == {"0.000"}


def test_no_bars_no_section() -> None:
    assert bars_section((), synthetic.analysis()) == ""


def test_proposals_stand_beside_the_answer_and_what_was_tried() -> None:
    chart = rule_chart(synthetic_verdicts.race_analysis())
    assert chart is not None
    assert chart.factor == "threads" and chart.answer == 32 and chart.log
    assert chart.tried == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert chart.equal is not None and chart.equal[0] <= 32 <= chart.equal[1]
    rules = {rule.name: rule for rule in chart.rows}
    assert rules["Goetz"].proposal == 67.7 and rules["Goetz"].tone == "good"
    assert rules["N+1"].text == "2: −93 %" and rules["N+1"].tone == "bad"
    assert rules["USL"].proposal is None and rules["USL"].text == "refused"
    base = synthetic_verdicts.race_analysis()
    rows = tuple(replace(row, setting=synthetic.setting(threads=f"{row.setting.id[8:]}.0")) for row in base.settings)
    answer = replace(base.answer, setting=synthetic.setting(threads="32.0"), equivalent=())
    texts = rule_chart(replace(base, settings=rows, answer=answer))
    assert texts is not None and (texts.answer, texts.tried) == (32, chart.tried)


def test_a_value_of_0_can_be_as_good_as_the_answer() -> None:
    base, none = synthetic_verdicts.race_analysis(), synthetic.setting(threads=0)
    rows = (replace(base.settings[0], setting=none), *base.settings[1:])
    answer = replace(base.answer, equivalent=(*base.answer.equivalent, none))
    chart = rule_chart(replace(base, settings=rows, answer=answer))
    assert chart is not None and chart.equal is not None and chart.equal[0] == 0


def test_levels_that_are_numbers_as_text_are_drawn_beside_the_others() -> None:
    base, text = synthetic_verdicts.race_analysis(), synthetic.setting(threads="0.50")
    chart = rule_chart(replace(base, settings=(replace(base.settings[0], setting=text), *base.settings[1:])))
    assert chart is not None and chart.tried == (0.5, 2, 4, 8, 16, 32, 64, 128, 256)


def test_a_rule_of_thumb_is_judged_by_the_margin_of_its_objective() -> None:
    """An error rate of 6 % in place of 5 % is within 3 percentage points, though it is 20 % more."""
    base = synthetic_verdicts.race_analysis()
    rule = replace(base.rules[0], cost=Estimate(1.2, 1.15, 1.25, 0.95, 5))
    share = Estimate(0.05, 0.04, 0.06, 0.95, 5)
    rows = tuple(replace(row, estimates={**row.estimates, "error_rate": share}) for row in base.settings)
    shares = replace(base, objective="error_rate", direction="minimise", settings=rows)
    assert rule_tone(rule, shares) == "good"
    assert rule_tone(rule, replace(shares, objective="response_time_ns_p99")) == "bad"
    barred = replace(shares, settings=tuple(replace(row, feasible=False) for row in rows))
    assert rule_tone(rule, barred) == "bad"


def test_rules_are_compared_with_the_leader_where_there_is_no_answer() -> None:
    base = synthetic_verdicts.race_analysis()
    chart = rule_chart(replace(base, answer=replace(base.answer, setting=None)))
    assert chart is not None and chart.note.startswith("Line: the leader,") and "answer" not in chart.title


def test_without_an_answer_or_a_factor_of_threads_there_is_no_picture() -> None:
    analysis = synthetic_verdicts.race_analysis()
    assert rule_chart(replace(analysis, answer=replace(analysis.answer, setting=None, leader=None))) is None
    assert rule_chart(replace(analysis, rules=())) is None
    refused = tuple(replace(rule, proposal=None) for rule in analysis.rules)
    assert rule_chart(replace(analysis, rules=refused)) is None
    other = tuple(replace(rule, factor="mode") for rule in analysis.rules)
    assert rule_chart(replace(analysis, rules=other)) is None


def test_of_many_factors_the_levels_of_those_that_vary() -> None:
    analysis = synthetic.many_factor_analysis()
    short = short_names(analysis)
    assert short.heading == "threads / queue / cache" and short.note == " Names: threads / queue / cache."
    assert short.of(analysis.settings[0].setting) == short.row(analysis.settings[0].setting) == "4 / 10 / none"
    assert len(set(short.names.values())) == len(analysis.settings)


def test_one_factor_is_named_beside_the_axis_and_in_full_where_there_is_none() -> None:
    short = short_names(synthetic.analysis())
    setting = synthetic.setting(threads=32)
    assert (short.heading, short.of(setting), short.row(setting), short.note) == (
        "threads",
        "32",
        "threads=32",
        "",
    )
    other = synthetic.setting(threads=99)
    assert short.of(other) == other.id


def test_where_factors_vary_one_at_a_time_the_change() -> None:
    base = synthetic.two_factor_analysis()
    changed = base.settings[1].setting
    cost = ChangeCost(changed, "threads", 8, 4, None, Verdict.WORSE)
    short = short_names(replace(base, settings=base.settings[:2], changes=(cost,)))
    assert (short.of(base.settings[0].setting), short.row(changed)) == ("baseline", "threads=8")
    assert short_names(replace(base, settings=())).names == {}


def test_a_view_of_all_settings_is_one_row() -> None:
    made = synthetic.analysis((1, 2), blocks=2)
    made = replace(made, trials=tuple(replace(trial, runtimes=(JVM,)) for trial in made.trials))
    words = "availableProcessors 2 and the G1 collector (as it says); may use 2"
    assert runtime_facts(made).rows == (("JVM", words),)


def test_a_view_that_differs_names_its_settings() -> None:
    made = synthetic.analysis((1, 2), blocks=2)
    first = made.trials[0].setting
    views = {True: (JVM,), False: (NODE,)}
    made = replace(made, trials=tuple(replace(trial, runtimes=views[trial.setting == first]) for trial in made.trials))
    rows = dict(runtime_facts(made).rows)
    assert rows["JVM"].endswith(f": {first.id}")
    assert rows["Node.js"].startswith(
        "os.availableParallelism() unknown, UV_THREADPOOL_SIZE 4 (as documented); may use 1.5: "
    )


def test_without_a_runtime_there_are_no_facts() -> None:
    assert runtime_facts(synthetic.analysis((1, 2), blocks=2)).rows == ()
