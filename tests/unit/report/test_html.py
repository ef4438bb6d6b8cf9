"""The page without a browser: complete, self-contained, safe. tests/e2e/test_report_browser.py tests its behaviour."""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fakes import synthetic, synthetic_verdicts
from powerband.model.plan import REVISION, Setting, TrialSpec
from powerband.model.results import Answer, AnswerKind, Estimate, Figure, Soak, SoakFigure
from powerband.report.html.report import render_page, write_report
from powerband.store import Failure, RunDir, TrialRecord

EVIL = "</script><img src=x onerror=alert(1)>\"'&"
VOID = {"meta", "input", "br", "wbr", "img", "hr", "link"}


class Outline(HTMLParser):
    """A parser that checks nesting, and collects text, tags, ids and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"script", "style"}:
            self.text += data


def data_of(html: str) -> dict[str, Any]:
    packed = re.search(r'id="packed-data">([^<]*)<', html)
    assert packed
    loaded = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture(scope="module")
def html() -> str:
    return render_page(synthetic.page())


def test_the_answer_comes_first_and_everything_is_there(html: str) -> None:
    page = synthetic.page()
    outline = Outline(html)
    places = [outline.text.index(sentence) for sentence in page.analysis.answer.sentences]
    assert places == sorted(places)
    assert places[0] < outline.text.index("Settings compared")
    for words in (
        page.analysis.question,
        page.command,
        "another process used 0.61 cores",
        "exited with code 137",
        "this machine has 2 CPUs",
        "Example CPU",
        "threads: [1, 2, 4",
    ):
        assert words in outline.text
    assert len(outline.ids) == len(set(outline.ids))


def test_a_run_without_a_question_has_its_name_once() -> None:
    page = synthetic.page()
    asked = replace(page, analysis=replace(page.analysis, name="compare", question="Is it worse?"))
    plain = replace(page, analysis=replace(page.analysis, name="compare", question=""))
    tops = [render_page(each).partition('<header class="top"')[2].partition("</h1>")[0] for each in (asked, plain)]
    assert tops[0].endswith("<h1>Is it worse?") and tops[1].endswith("<h1>compare")
    assert [top.count("compare") for top in tops] == [1, 1]


def keys_of(page: str) -> str:
    """The text of the key figures."""
    keys = page[page.index('<dl class="keys">') : page.index("</dl>")]
    return Outline(keys + "</dl>").text


def test_the_key_figure_is_the_headlines() -> None:
    """The key figure has the interval of the headline: that of the setting's own estimate holds for this setting
    alone."""
    made = synthetic.analysis()
    told = Figure(Estimate(1230.0, 1100.0, 1400.0, 0.95, 5), fresh=True)
    page = render_page(synthetic.page(replace(made, answer=replace(made.answer, figure=told))))
    keys = keys_of(page).replace("\u2060", "")
    assert "1,230/s" in keys and "95 % interval 1,100–1,400" in keys


def test_a_key_figure_without_an_interval_says_why() -> None:
    made = synthetic.analysis()
    bound = Estimate(10e9, 9e9, 11e9, 0.95, 5, at_least=True)
    rows = tuple(replace(row, estimates={**row.estimates, "response_time_ns_p99": bound}) for row in made.settings)
    assert "≥ 10.0 sa lower bound" in keys_of(render_page(synthetic.page(replace(made, settings=rows))))
    assert "1 trial" in keys_of(render_page(synthetic.page(synthetic.analysis(blocks=1))))


def test_the_reasons_for_a_setting_have_labels_and_what_was_found_of_two_revisions_has_none(html: str) -> None:
    base = synthetic.analysis(levels=(16, 32))
    of = dict(zip((row.setting for row in base.settings), map(revision, ("old", "new")), strict=True))
    answer = replace(base.answer, setting=revision("new"), leader=revision("new"), equivalent=(), undecided=())
    compared = replace(
        base,
        answer=answer,
        settings=tuple(replace(row, setting=of[row.setting]) for row in base.settings),
        trials=tuple(replace(trial, setting=of[trial.setting]) for trial in base.trials),
    )
    labels = ("<b>How sure: </b>", "<b>Why: </b>")
    assert all(label in html for label in labels)
    assert not any(label in render_page(synthetic.page(compared)) for label in labels)


def revision(name: str) -> Setting:
    return synthetic.setting(**{REVISION: name})


def test_every_chart_has_a_box_a_sentence_and_a_table(html: str) -> None:
    outline = Outline(html)
    charts = data_of(html)["charts"]
    assert {"goodput", "response-time", "cost-rss_bytes_max", "states"} <= {chart["id"] for chart in charts}
    assert {f"chart-{chart['id']}" for chart in charts} <= set(outline.ids)
    assert outline.tags.count("figure") == len(charts) + 1  # plus the one of distributions
    assert sum(value == "img" for name, value in outline.attributes if name == "role") == outline.tags.count("figure")
    assert outline.tags.count("details") >= outline.tags.count("figure")


def test_the_file_needs_nothing_but_itself(html: str) -> None:
    outline = Outline(html)
    assert not {"link", "img", "iframe", "object", "base"} & set(outline.tags)
    assert not [value for name, value in outline.attributes if name == "src"]
    assert all(value.startswith("#") for name, value in outline.attributes if name == "href")
    shown = re.sub(r'<script type="application/octet-stream".*?</script>', "", html, flags=re.DOTALL)
    assert "http://" not in shown.replace("http://127.0.0.1", "")
    assert "https://" not in shown
    assert "url(" not in shown


def test_only_the_scripts_of_this_file_may_run(html: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    assert "default-src 'none'" in policy[1]
    script = re.search(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    packed = re.search(r'id="packed-charts">([^<]*)<', html)
    assert script and packed
    for code in (script[1].encode(), gzip.decompress(base64.b64decode(packed[1]))):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(code).digest()).decode()}'" in policy[1]


def test_claims_have_a_table(html: str) -> None:
    outline = Outline(html)
    assert outline.text.index("Settings compared") < outline.text.index("Claims") < outline.text.index("Every trial")
    for claim in synthetic.claims():
        for words in (
            claim.says,
            claim.holds,
            claim.sentence,
            claim.published or "",
            *(p.sentence for p in claim.parts),
        ):
            assert words in outline.text
        tone = {"held": "good", "refuted": "bad", "undecided": "unsure"}[claim.verdict]
        assert f'<td class="words {tone}">{claim.verdict.words}</td>' in html
    assert 'id="claims"' not in render_page(synthetic.page(synthetic.analysis(claims=())))


def test_a_race_has_its_picture_its_table_and_its_confirmation() -> None:
    html = render_page(synthetic.page(synthetic_verdicts.race_analysis()))
    outline = Outline(html)
    assert {"race", "pools"} <= {chart["id"] for chart in data_of(html)["charts"]}
    assert {"race", "why", "rules", "chart-race", "chart-pools"} <= set(outline.ids)
    for words in (
        "60 of 240 settings were tried once each",
        "The race was decided after 5 rounds: 25 trials, 56 % of the full grid's 45.",
        "worse than threads=64 by more than 3 %",
        "Three fresh starts uphold it",
        "0.6 % (−0.9 to 2.1)",
        "The pool is too small",
        "named in 4 of 4 trials",
        "1 CPU x (1 + 20.0 ms / 0.30 ms)",
        "not applicable: throughput had not peaked",
        "eliminated in round 4",
    ):
        assert words in outline.text, words
    assert ("data-steady", "no") in outline.attributes
    assert "never stabilised" not in outline.text
    charts = data_of(html)["charts"]
    assert outline.tags.count("figure") == len(charts) + 1


def test_a_setting_that_never_stabilised_is_marked() -> None:
    analysis = synthetic_verdicts.race_analysis()
    moving = tuple(replace(t, steady=t.setting.id != "threads=64") for t in analysis.trials)
    html = render_page(synthetic.page(replace(analysis, trials=moving)))
    assert html.count('<small class="unsure">never stabilised</small>') == 1
    assert html.count("it had not reached a steady state") == 8


def test_a_race_that_was_not_upheld_says_so() -> None:
    analysis = synthetic_verdicts.race_analysis()
    assert analysis.race is not None and analysis.race.confirmation is not None
    doubted = replace(analysis.race.confirmation, upheld=False, rival=None, advantage=None)
    outline = Outline(render_page(synthetic.page(replace(analysis, race=replace(analysis.race, confirmation=doubted)))))
    assert "not upheld" in outline.text
    from_0 = replace(doubted, race=replace(doubted.race, value=0.0))
    shown = render_page(synthetic.page(replace(analysis, race=replace(analysis.race, confirmation=from_0))))
    assert "<dt>shrinkage</dt><dd>–</dd>" in shown
    unsure = replace(doubted, upheld=True, agrees=False)
    open_ = render_page(synthetic.page(replace(analysis, race=replace(analysis.race, confirmation=unsure))))
    assert '<span class="unsure">not contradicted</span>' in open_
    bare = replace(analysis.race, confirmation=None, looks=(), departures=())
    without = render_page(synthetic.page(replace(analysis, race=bare)))
    assert "No setting was eliminated." in Outline(without).text
    assert "race" not in {chart["id"] for chart in data_of(without)["charts"]}


def test_a_soak_stands_beside_the_trials_before_it() -> None:
    figures = (
        SoakFigure("goodput_per_s", 900.0, 1000.0, 980.0, 1020.0, worse=True),
        SoakFigure("rss_bytes_max", float(1 << 20), None, None, None, worse=False),
    )
    analysis = synthetic_verdicts.race_analysis()
    said = "It does not last."
    soak = Soak(analysis.trials[0].setting, 9, 600 * 10**9, 60 * 10**9, figures, lasts=False, sentence=said)
    outline = Outline(render_page(synthetic.page(replace(analysis, soak=soak))))
    assert "soak" in outline.ids and said in outline.text
    for words in ("900/s", "1,000/s", "980/s to 1,020/s", "worse", "1.00 MiB"):
        assert words in outline.text, words
    assert "soak" not in Outline(render_page(synthetic.page(analysis))).ids
    assert "as before" not in outline.text and "not judged" not in outline.text
    ends = {"low": 195.0 * 2**20, "high": 205.0 * 2**20}
    filled = SoakFigure("rss_bytes_max", 900.0 * 2**20, 200.0 * 2**20, **ends, worse=False)
    said_of = {
        "not judged": filled,
        "as before": replace(filled, soaked=200.0 * 2**20),
        "no worse": SoakFigure("goodput_per_s", 1100.0, 1000.0, 980.0, 1020.0, worse=False),
    }
    for words, figure in said_of.items():
        text = Outline(render_page(synthetic.page(replace(analysis, soak=replace(soak, figures=(figure,)))))).text
        assert {each for each in said_of if each in text} == {words}
    disturbed = replace(analysis.trials[0], metrics={**analysis.trials[0].metrics, "quiet_s": 5.0})
    slower = replace(soak, trial=disturbed.number, figures=(replace(figures[0], worse=False),))
    judged = replace(analysis, soak=slower, trials=(disturbed, *analysis.trials[1:]))
    assert "not judged" in Outline(render_page(synthetic.page(judged))).text
    faster = replace(judged, soak=replace(slower, figures=(said_of["no worse"],)))
    assert "no worse" in Outline(render_page(synthetic.page(faster))).text
    endless = replace(analysis.trials[0], metrics={**analysis.trials[0].metrics, "error_rate": 0.2})
    late = replace(soak, trial=endless.number, figures=(replace(figures[1], metric="response_time_ns_p99"),))
    failing = replace(analysis, soak=late, trials=(endless, *analysis.trials[1:]))
    assert "≥ 1.05 ms" in Outline(render_page(synthetic.page(failing))).text
    within = SoakFigure("response_time_ns_p99", 20e6, 20e6, 19e6, 21e6, worse=False)
    text = Outline(render_page(synthetic.page(replace(failing, soak=replace(late, figures=(within,)))))).text
    assert "not judged" in text and "as before" not in text
    far = SoakFigure("goodput_per_s", 650.0, 1000.0, 430.0, 2300.0, worse=False)
    text = Outline(render_page(synthetic.page(replace(analysis, soak=replace(soak, figures=(far,)))))).text
    assert "not judged" in text and "as before" not in text, "it lost a third, within the interval of two trials"


def test_capacities_have_curves_and_tables() -> None:
    html = render_page(synthetic.page(synthetic_verdicts.capacity_analysis()))
    outline = Outline(html)
    curves = [chart for chart in data_of(html)["charts"] if chart["kind"] == "capacity"]
    assert [curve["title"] for curve in curves] == [f"threads={n}" for n in (4, 8, 16, 32, 64)]
    for words in ("1,482/s (1,452–1,511)", "held in 3 of 5 trials", "holds at no rate", "capacity search"):
        assert words in outline.text, words
    assert "Capacity" in outline.text
    assert "named in" not in outline.text, "no trial names what ends a capacity"
    assert outline.tags.count("figure") == len(data_of(html)["charts"])


def test_the_merged_requests_are_said_to_be_of_the_trials_that_were_merged() -> None:
    said = {
        "full rounds, merged (not of first looks, confirmations or a soak)": synthetic_verdicts.race_analysis(),
        "had it within which time (up): those of all valid trials of a setting, merged": synthetic.analysis(),
    }
    for words, analysis in said.items():
        assert words in render_page(synthetic.page(analysis))
    times = synthetic.page().distributions
    searched = synthetic.page(synthetic_verdicts.capacity_analysis(), distributions=times)
    assert "trials at the highest rate at which the SLO held each time, merged" in render_page(searched)


def test_without_an_answer_no_mark_is_explained_as_equivalent() -> None:
    base = synthetic.analysis()
    assert "equivalent, within" in render_page(synthetic.page(base))
    open_ = replace(base, answer=replace(base.answer, setting=None))
    assert len(open_.answer.equivalent) > 1 and "equivalent, within" not in render_page(synthetic.page(open_))


def test_a_plain_sweep_has_none_of_these_sections(html: str) -> None:
    assert not {"race", "capacity", "why", "rules"} & set(Outline(html).ids)


def test_names_from_files_are_never_markup() -> None:
    base = synthetic.analysis()
    evil = synthetic.setting(**{EVIL: EVIL})
    rows = (replace(base.settings[0], setting=evil, infeasible_because=(EVIL,)), *base.settings[1:])
    trials = (replace(base.trials[0], setting=evil), *base.trials[1:])
    answer = replace(base.answer, setting=evil, sentences=(EVIL, EVIL), equivalent=(evil, *base.answer.equivalent))
    part = replace(base.claims[0].parts[0], comparison=EVIL, where=EVIL, sentence=EVIL)
    analysis = replace(
        base,
        name=EVIL,
        question=EVIL,
        constraints=(EVIL,),
        answer=answer,
        settings=rows,
        trials=trials,
        warnings=(EVIL,),
        claims=tuple(
            replace(claim, says=EVIL, holds=EVIL, published=EVIL, sentence=EVIL, parts=(part, part))
            for claim in base.claims
        ),
    )
    page = synthetic.page(analysis, run=EVIL, command=EVIL, experiment_yaml=EVIL, when=EVIL)
    html = render_page(page)
    outline = Outline(html)
    assert "img" not in outline.tags
    assert not [name for name, _ in outline.attributes if name.startswith("on")]
    assert outline.text.count(EVIL) >= 8
    assert html.count("<script") == 3


def test_names_behind_the_answer_are_never_markup() -> None:
    base = synthetic_verdicts.race_analysis()
    evil = synthetic.setting(**{EVIL: EVIL})
    assert base.race is not None and base.race.confirmation is not None
    race = replace(
        base.race,
        departures=tuple(replace(left, setting=evil, reason=EVIL) for left in base.race.departures),
        confirmation=replace(base.race.confirmation, setting=evil, rival=evil, sentence=EVIL),
    )
    limit = replace(synthetic_verdicts.bottleneck(4), evidence=(EVIL,), advice=EVIL)
    pool = replace(synthetic_verdicts.pools(4)[0], pool=EVIL, blocked_on={EVIL: 1.0})
    rules = tuple(replace(rule, name=EVIL, formula=EVIL, source=EVIL, setting=evil) for rule in base.rules)
    capacity = replace(synthetic_verdicts.capacity(8), note=EVIL)
    analysis = replace(
        base,
        race=race,
        rules=rules,
        settings=tuple(replace(row, bottleneck=limit, capacity=capacity) for row in base.settings),
        trials=tuple(replace(trial, pools=(pool,), bottleneck=limit) for trial in base.trials),
        constraints=(EVIL,),
    )
    html = render_page(synthetic.page(analysis))
    outline = Outline(html)
    assert "img" not in outline.tags
    assert not [name for name, _ in outline.attributes if name.startswith("on")]
    assert outline.text.count(EVIL) >= 20
    assert html.count("<script") == 3


@pytest.mark.parametrize("kind", list(AnswerKind))
def test_every_kind_of_answer_has_a_page(kind: AnswerKind) -> None:
    answer = Answer(kind, None, None, (), (), ("A sentence.",))
    empty = synthetic.analysis(answer=answer, settings=(), trials=(), warnings=(), claims=())
    assert "A sentence." in Outline(render_page(synthetic.page(empty, distributions=(), trials=()))).text
    full = replace(synthetic.analysis(), answer=answer)
    assert "A sentence." in Outline(render_page(synthetic.page(full))).text


def test_one_trial_of_each_setting_and_two_factors_have_pages() -> None:
    Outline(render_page(synthetic.page(synthetic.analysis(blocks=1))))
    two = render_page(synthetic.page(synthetic.two_factor_analysis()))
    Outline(two)
    assert {"surface", "trade_offs"} <= {chart["kind"] for chart in data_of(two)["charts"]}


def test_write_report_reads_a_run_directory(tmp_path: Path) -> None:
    run = RunDir.create(
        tmp_path, "x", "name: pool-size\n", {"cpu": {"model": "M <1>", "allowed": [0, 1]}, "kernel": "L"}
    )
    spec = TrialSpec(1, 0, 1, synthetic.setting(threads=1), 99)
    run.append_plan(spec)
    run.trial(1).path.mkdir()
    run.trial(1).write_record(
        TrialRecord(
            spec, "failed", Failure("died", "it died"), 10**18, 5, {}, None, cpus={"subject": [0], "engine": [1]}
        )
    )
    path = write_report(run, synthetic.analysis())
    text = Outline(path.read_text()).text
    assert path == run.report
    for words in ("M <1>", "0, 1", "name: pool-size", "9 September 2001", "99", f"powerband run {run.experiment}"):
        assert words in text


def test_a_run_without_host_facts_still_has_a_report(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "x", "name: x\n", {})
    run.host.write_text('{"cpu": ')
    assert "name: x" in write_report(run, synthetic.analysis()).read_text()


def test_a_trial_whose_series_is_left_out_still_has_its_button() -> None:
    page = synthetic.page()
    html = render_page(replace(page, trials=page.trials[:10]))
    assert len(data_of(html)["trials"]) == 10
    assert html.count("data-trial=") - html.count("data-trial='") >= len(page.analysis.trials)


def test_a_set_of_one_setting_is_not_said_to_be_several() -> None:
    made = synthetic.analysis()
    alone = replace(made.answer, equivalent=made.answer.equivalent[:1])
    assert "several are equivalent" in keys_of(render_page(synthetic.page(made)))
    assert "others may be equivalent" in keys_of(render_page(synthetic.page(replace(made, answer=alone))))
