"""The HTML report in a real browser, from disk and without a network: it draws, works by keyboard, and fits a phone.

Needs Chromium: without it these tests are skipped, and fail if POWERBAND_NO_SKIP=1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from fakes import synthetic, synthetic_verdicts
from fakes.report_browser import DRAWN, EVIL, POOR_CONTRAST, SETTLED, WAIT_MS, Open, resize
from powerband.analyze.trial.threads import LabelTable, ThreadUse
from powerband.model.results import ErrorKind, Estimate, PublishedRow, PublishedTable
from powerband.report.html.page import InsideView
from powerband.report.html.report import render_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_page(synthetic.page()))
    return path


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The pages of a race and of a capacity search."""
    folder = tmp_path_factory.mktemp("verdicts")
    made = folder / "race.html", folder / "capacity.html"
    made[0].write_text(render_page(synthetic.page(synthetic_verdicts.explored_analysis())))
    made[1].write_text(render_page(synthetic.page(synthetic_verdicts.capacity_analysis())))
    return made


def test_every_chart_is_drawn_within_its_box(look: Open, report: Path) -> None:
    page = look(report)
    boxes = page.query_selector_all(".chart")
    assert len(boxes) >= 15
    for box in boxes:
        drawn = box.evaluate(DRAWN)
        assert drawn["svg"] == 1
        assert drawn["marks"] >= 5, box.get_attribute("id")
        assert drawn["words"], box.get_attribute("id")
        assert drawn["width"] <= drawn["room"] + 1, box.get_attribute("id")


def test_a_report_of_500_trials_stays_small(visit: Open, tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    path.write_text(render_page(synthetic.page(synthetic.analysis(blocks=56))))
    assert path.stat().st_size < 5_000_000
    page = visit(path)
    assert page.locator(".map button").count() == 504
    painted = "performance.getEntriesByName('first-contentful-paint').length === 1"
    page.wait_for_function(painted)  # it is told once the picture is on the screen


def test_the_answer_is_the_first_thing_seen(look: Open, report: Path) -> None:
    page = look(report)
    box = page.locator(".answer").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 900 / 2
    assert page.locator(".answer").inner_text() == "Use threads=32."


def test_a_trial_is_chosen_by_keyboard_and_by_click(look: Open, report: Path) -> None:
    page = look(report)
    chosen = page.locator(".map button[aria-pressed=true]")
    assert chosen.count() == 1
    number = chosen.get_attribute("data-trial")
    first = page.locator("#trial-title").inner_text()
    assert "threads=32" in first
    assert page.locator(".map button[tabindex='0']").count() == 1  # one stop for the tab key, arrows within
    chosen.focus()
    page.keyboard.press("ArrowDown")
    assert "threads=64" in page.locator("#trial-title").inner_text()
    assert page.evaluate("document.activeElement.dataset.trial") == chosen.get_attribute("data-trial")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert "Trial 30, threads=256 (failed)" in page.locator("#trial-title").inner_text()
    assert "exited with code 137" in page.locator("#trial-why").inner_text()
    assert page.locator("#trial-none").is_visible()
    assert page.locator("#trial-panels .chart").count() == 0
    page.locator(".map button[data-trial='12']").click()
    assert "0.61 cores" in page.locator("#trial-why").inner_text()
    assert page.locator("#trial-panels .chart svg").count() == 8
    page.locator(f".map button[data-trial='{number}']").click()
    assert page.locator("#trial-title").inner_text() == first


def test_a_trial_without_a_series_says_why_and_one_below_zero_is_drawn(visit: Open, tmp_path: Path) -> None:
    page = synthetic.page()
    track = replace(page.trials[0].tracks[0], points=((1.0, -5.0), (2.0, -9.0), (3.0, 4.0)), unit="")
    view = replace(page.trials[0], tracks=(track,), limits=())
    for analysis, said in ((page.analysis, "files are damaged"), (synthetic.analysis(blocks=56), "is left out")):
        path = tmp_path / "report.html"
        path.write_text(render_page(replace(page, analysis=analysis, trials=(view,))))
        shown = visit(path)
        shown.locator(".map button[data-trial='2']").click()
        assert said in shown.locator("#trial-none").inner_text()
        shown.locator(f".map button[data-trial='{view.number}']").click()
        assert "-10" in shown.locator("#trial-panels svg").text_content()


def test_the_seconds_of_a_long_trial_are_told_to_a_tenth(visit: Open, tmp_path: Path) -> None:
    page = synthetic.page()
    first = page.trials[0]
    track = replace(first.tracks[0], points=((0.25, 5.0), (1803.04, 6.0), (3599.5, 7.0)))
    span = replace(first.limits[0], from_s=1234.5, to_s=3599.5)
    path = tmp_path / "long.html"
    path.write_text(render_page(replace(page, trials=(replace(first, tracks=(track,), limits=(span,)),))))
    shown = visit(path)
    shown.locator(f".map button[data-trial='{first.number}']").click()
    for figure in shown.locator("#trial-panels figure").all():
        figure.locator("summary").click()
        figure.locator("table").wait_for()
    cells = shown.locator("#trial-panels td").all_inner_texts()
    assert {"0.3 s", "1,803 s", "1,234.5 s", "3,599.5 s"} <= set(cells)


def test_a_trials_series_can_be_read_as_a_table(look: Open, report: Path) -> None:
    page = look(report)
    figure = page.locator("#trial-panels figure").nth(2)
    figure.locator("summary").click()
    figure.locator("table").wait_for()
    assert figure.locator("thead th").all_inner_texts() == ["time", "p50", "p99"]
    assert figure.locator("tbody tr").count() == 14
    figure.locator("summary").click()
    assert figure.locator("table").is_hidden()


def test_service_time_can_be_shown_instead(look: Open, report: Path) -> None:
    page = look(report)
    before = page.locator("#chart-distribution svg").inner_html()
    page.get_by_label("service time").check()
    after = page.locator("#chart-distribution svg").inner_html()
    assert before != after
    page.locator("input[name=times]").first.check()
    assert page.locator("#chart-distribution svg").inner_html() == before


def test_the_last_of_many_requests_is_not_told_as_all_of_them(visit: Open, tmp_path: Path) -> None:
    page = synthetic.page()
    (answer,) = (each for each in page.distributions if each.setting == "threads=32")
    times = replace(answer.response_time, points=((0.0, 1e6), (0.5, 2e6), (0.99999952, 9e7)))
    path = tmp_path / "many.html"
    path.write_text(render_page(replace(page, distributions=(replace(answer, response_time=times),))))
    shown = visit(path)
    shown.locator("#chart-distribution").evaluate(
        "e => echarts.getInstanceByDom(e).dispatchAction({type: 'showTip', seriesIndex: 0, dataIndex: 2})"
    )
    assert shown.locator(".tip b").inner_text() == "p99.999952"


def brightness(page: Page, what: str) -> float:
    colour = page.evaluate(what)
    parts = [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return sum(parts) / 3


def test_dark_is_dark_and_charts_follow(look: Open, visit: Open, report: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    label = "getComputedStyle(document.querySelector('#chart-goodput svg text')).fill"
    page = look(report)
    for _ in range(2):
        assert brightness(page, background) > 230
        assert brightness(page, label) < 130
        page.emulate_media(color_scheme="dark")
        page.evaluate(SETTLED)
        assert brightness(page, background) < 40
        assert brightness(page, label) > 130
        page.emulate_media(color_scheme="light")
        page.evaluate(SETTLED)
    dark = visit(report, scheme="dark")
    assert brightness(dark, background) < 40
    assert brightness(dark, label) > 130


def test_nothing_is_scrolled_sideways_on_a_small_screen_nor_after_a_change_of_width(
    visit: Open, report: Path, verdicts: tuple[Path, Path]
) -> None:
    for path in (report, *verdicts):
        page = visit(path, width=320)
        for width in (320, 768, 500, 390):
            resize(page, width, 800)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            drawn = [box.evaluate(DRAWN) for box in page.query_selector_all(".chart")]
            assert all(0 < each["width"] <= min(width, each["room"] + 1) for each in drawn), (path, width)
            # The charts are redrawn for the wider screen.
            assert all(each["width"] > 0.8 * each["room"] for each in drawn), (path, width)


def test_a_window_made_smaller_redraws(look: Open, report: Path) -> None:
    page = look(report)
    resize(page, 500, 800)
    assert page.evaluate("document.documentElement.scrollWidth") <= 500
    assert page.query_selector_all(".chart")[0].evaluate(DRAWN)["width"] <= 500
    resize(page, 1280, 900)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_stands_behind_the_answer_is_drawn(look: Open, verdicts: tuple[Path, Path], scheme: str) -> None:
    race, capacity = (look(path) for path in verdicts)
    for page in (race, capacity):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.evaluate(SETTLED)
        for box in page.query_selector_all(".chart"):
            drawn = box.evaluate(DRAWN)
            assert drawn["svg"] == 1
            assert drawn["marks"] >= 5, box.get_attribute("id")
            assert drawn["width"] <= drawn["room"] + 1, box.get_attribute("id")
    words = race.locator("#chart-race").evaluate(DRAWN)["words"]
    for said in ("threads=32", "leader", "eliminated in round 4", "within 3 %", "−5 %"):
        assert said in words
    assert race.locator("#chart-exploration").evaluate(DRAWN)["marks"] >= 58
    pools = race.locator("#chart-pools").evaluate(DRAWN)["words"]
    assert "waiting for a lock or for work" in pools and "waiting for a CPU" in pools
    curves = capacity.locator("#capacity .chart")
    assert curves.count() == 5
    words = curves.nth(1).evaluate(DRAWN)["words"]
    for said in ("p99 < 250ms", "capacity", "p50", "200 ms"):
        assert said in words
    for page in (race, capacity):
        page.emulate_media(color_scheme="light")
        page.evaluate(SETTLED)


def test_the_picture_of_a_race_tells_each_block_when_pointed_at(look: Open, verdicts: tuple[Path, Path]) -> None:
    page = look(verdicts[0])
    box = page.locator("#chart-race")
    box.scroll_into_view_if_needed()
    label = box.get_by_text("threads=128", exact=True).bounding_box()
    frame = box.bounding_box()
    assert label is not None and frame is not None
    page.mouse.move(frame["x"] + frame["width"] / 2, label["y"] + label["height"] / 2)
    page.locator(".tip").wait_for()
    tip = page.locator(".tip").inner_text()
    assert "threads=128: eliminated in round 4" in tip
    assert tip.count("round ") >= 4 and "round 1: −4.3 %" in tip
    page.mouse.move(0, 0)


MARKS = """e => { const { series, yAxis } = echarts.getInstanceByDom(e).getOption();
  return series.map(({ data }) => data.map(({ mark, symbol, symbolSize, itemStyle, value }) => ({
    held: mark.held, cross: symbol.startsWith("path"), large: symbolSize > 4, top: value[1] === yAxis[0].max,
    full: itemStyle?.color === itemStyle?.borderColor }))); }"""


def test_every_rate_is_marked_by_what_held_there_without_a_p99_and_without_any_time(
    visit: Open, tmp_path: Path
) -> None:
    base = synthetic_verdicts.capacity_analysis()
    capacity = synthetic_verdicts.capacity(8)
    short = [replace(point, p99_ns=None) for point in capacity.curve]
    curve = (*short[:-1], replace(short[-1], p50_ns=None))
    row = replace(base.settings[1], capacity=replace(capacity, curve=curve))
    path = tmp_path / "short.html"
    path.write_text(render_page(synthetic.page(replace(base, settings=(row,)))))
    chart = visit(path).locator("#capacity .chart")
    median, tail, untimed = chart.evaluate(MARKS)
    assert [mark["held"] for mark in median] == ["all"] * 4 + ["some", "none"] and tail == []
    assert all(mark["large"] and mark["cross"] == (mark["held"] == "none") for mark in median)
    assert [mark["full"] for mark in median[:5]] == [True] * 4 + [False]
    assert [(mark["cross"], mark["top"]) for mark in untimed] == [(True, True)]
    chart.evaluate("e => echarts.getInstanceByDom(e).dispatchAction({type: 'showTip', seriesIndex: 2, dataIndex: 0})")
    told = chart.locator(".tip").inner_text()
    assert "held in 0 of 1 trial" in told and "no response time" in told


def test_a_race_of_many_blocks_stays_on_the_screen(visit: Open, tmp_path: Path) -> None:
    """The picture draws ten of the 25 looks; the table has all of them."""
    base = synthetic_verdicts.race_analysis((16, 32, 64))
    assert base.race is not None
    looks = tuple(replace(base.race.looks[min(block, 4)], block=block, left=()) for block in range(25))
    path = tmp_path / "long.html"
    path.write_text(render_page(synthetic.page(replace(base, race=replace(base.race, looks=looks)))))
    page = visit(path)
    box = page.locator("#chart-race").bounding_box()
    assert box is not None and 200 < box["height"] < 450
    drawn = page.locator("#chart-race").evaluate("e => e.querySelectorAll('svg path').length")
    assert drawn < 90
    assert page.locator("#race figure thead th").count() == 27


def test_text_is_readable_against_its_background(look: Open, report: Path, verdicts: tuple[Path, Path]) -> None:
    """Every element with text of its own has the contrast that WCAG 2 asks for: 4.5 to 1, or 3 to 1 for large text."""
    for path in (report, *verdicts):
        page = look(path)
        assert page.evaluate(POOR_CONTRAST, "svg, script, style, .skip") == []
        page.emulate_media(color_scheme="dark")
        page.evaluate(SETTLED)
        assert brightness(page, "getComputedStyle(document.body).backgroundColor") < 40
        assert page.evaluate(POOR_CONTRAST, "svg, script, style, .skip") == []
        page.emulate_media(color_scheme="light")
        page.evaluate(SETTLED)


def test_two_factors_and_named_levels_are_drawn_too(visit: Open, tmp_path: Path) -> None:
    path = tmp_path / "two.html"
    path.write_text(render_page(synthetic.page(synthetic.two_factor_analysis())))
    drawn = visit(path).locator("#chart-surface").evaluate(DRAWN)
    assert drawn["marks"] >= 9
    assert "queue" in drawn["words"] and "threads" in drawn["words"]


def test_names_from_files_do_not_run(visit: Open, tmp_path: Path) -> None:
    base = synthetic.analysis()
    evil = synthetic.setting(threads=EVIL)
    rows = tuple(replace(row, setting=evil) if row.setting == base.answer.setting else row for row in base.settings)
    trials = tuple(replace(t, setting=evil) if t.setting == base.answer.setting else t for t in base.trials)
    answer = replace(base.answer, setting=evil, sentences=(EVIL,))
    analysis = replace(base, name="evil", question=EVIL, answer=answer, settings=rows, trials=trials, warnings=(EVIL,))
    path = tmp_path / "evil.html"
    path.write_text(render_page(synthetic.page(analysis, run=EVIL, command=EVIL)))
    page = visit(path)
    page.locator("#chart-goodput").hover()
    page.locator(".map button").first.click()
    page.wait_for_timeout(200)
    assert page.title() == "evil – powerband"
    assert page.locator("img").count() == 0
    assert EVIL in page.locator(".answer").inner_text()


def test_a_browser_that_cannot_unpack_still_shows_the_numbers(browser: Browser, report: Path) -> None:
    context = browser.new_context(offline=True)
    context.add_init_script("delete globalThis.DecompressionStream")
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready=failed]")
    assert "needs a browser from 2023" in page.locator("#chart-goodput").inner_text()
    assert page.locator("#settings tbody tr").count() >= 9
    context.close()


def test_what_was_found_the_inside_and_errors_are_told_and_fit_a_phone(visit: Open, tmp_path: Path) -> None:
    base = synthetic.page()
    first = base.analysis.settings[0].setting
    row = PublishedRow(
        first.id, first, 124600.0, Estimate(9e5, 8e5, 1e6, 0.95, 5), 1.0, Estimate(1.0, 1.0, 1.0, 0.95, 5)
    )
    other = replace(row, name="x" * 90, setting=None, ours=None, published_ratio=1.41, our_ratio=None)
    trial = next(trial for trial in base.analysis.trials if trial.valid)
    failed = replace(trial, errors=(ErrorKind("status 503", 412, f"the server gave up; its log names {EVIL}"),))
    analysis = replace(
        base.analysis,
        found=("Claims: 8 confirmed and 1 refuted.", f"Refuted: {EVIL}."),
        published=(PublishedTable("goodput_per_s", "per_s", first.id, "one run each", (row, other)),),
        trials=tuple(failed if each is trial else each for each in base.analysis.trials),
    )
    labelled = LabelTable(("instance", "thread"), ("conns", "served_total"), ((("0", "loop-" * 12), (3.0, None)),))
    inside = InsideView(first.id, 3, (ThreadUse("vert.x-eventloop-thread-0", 0.5, 0.4, 12345.0),), (labelled,))
    path = tmp_path / "inside.html"
    path.write_text(render_page(replace(base, analysis=analysis, inside=(inside,))))
    page = visit(path)
    assert "Claims: 8 confirmed" in page.locator("#found").inner_text()
    assert "124,600/s" in page.locator("#found").inner_text()
    assert "status 503" in page.locator("#errors").inner_text() and "412" in page.locator("#errors").inner_text()
    page.locator("#inside summary").first.click()
    assert "vert.x-eventloop-thread-0" in page.locator("#inside").inner_text()
    assert page.title() != "broken"
    phone = visit(path, width=360)
    phone.locator("#inside summary").first.click()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360
