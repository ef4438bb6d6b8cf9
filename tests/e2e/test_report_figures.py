"""The pictures of the HTML report in a real browser: they show the run's own data, a reader's choices change them, and
they can be saved.

Needs Chromium: without it these tests are skipped, and fail if POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import csv
import io
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Locator, Page

from fakes import synthetic, synthetic_verdicts
from fakes.report_browser import DRAWN, EVIL, Open, resize
from powerband.analyze.settings.compare import analyse
from powerband.analyze.settings.trade_offs import trade_offs
from powerband.files.experiment_file import load_experiment
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Analysis, Bottleneck
from powerband.report.html.page import BarsView
from powerband.report.html.report import render_page, write_report
from powerband.report.wording.numbers import ABSENT, format_estimate
from powerband.search.finished import finished_trials
from powerband.store import RunDir

pytestmark = pytest.mark.browser

RECORDED = Path(__file__).parent.parent / "golden" / "run-small"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, Analysis]:
    """A real run on a busy machine, without the problems that make its trials invalid: only the page is tested."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    shutil.copytree(RECORDED, folder)
    run = RunDir.open(folder)
    experiment = load_experiment(run.experiment)
    results = [
        replace(result, problems=tuple(replace(problem, fatal=False) for problem in result.problems))
        for result in finished_trials(experiment, run).results.values()
    ]
    analysis = analyse(experiment, results)
    write_report(run, analysis)
    return run, analysis


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "report.html"
    path.write_text(render_page(synthetic.page(synthetic.many_factor_analysis())))
    return path


def figure(page: Page, chart: str) -> Locator:
    return page.locator(f"figure:has(#chart-{chart})")


def saved(page: Page, of: Locator, kind: str) -> tuple[str, bytes]:
    """The file name that the browser proposes, and the content of the file."""
    with page.expect_download() as waiting:
        of.get_by_role("button", name=kind, exact=True).click()
    return waiting.value.suggested_filename, waiting.value.path().read_bytes()


def rows_of(text: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.decode())))


def test_the_figures_on_the_page_are_those_of_the_run(look: Open, recorded: tuple[RunDir, Analysis]) -> None:
    run, analysis = recorded
    page = look(run.report)
    heads = page.locator("#settings > .scroll thead th").all_inner_texts()
    by_name = {row.setting.id: row for row in analysis.settings}
    shown = {}
    for line in page.locator("#settings > .scroll tbody tr").all():
        cells = line.locator("th, td").all_inner_texts()
        shown[f"{heads[0]}={cells[0]}"] = dict(zip(heads, cells, strict=True))
    assert shown.keys() == by_name.keys()
    for name, row in by_name.items():
        told = shown[name]
        assert told["Goodput"].splitlines()[0] == format_estimate(row.estimates["goodput_per_s"], "goodput_per_s")
        p99 = format_estimate(row.estimates.get("response_time_ns_p99"), "response_time_ns_p99", digits=3)
        assert told.get("response time p99", ABSENT).splitlines()[0] == p99
    # The drawn values are exact to the last digit.
    for chart, metric, scale in (("goodput", "goodput_per_s", 1.0), ("cost-rss_bytes_max", "rss_bytes_max", 2.0**20)):
        options = page.evaluate(
            f"echarts.getInstanceByDom(document.getElementById('chart-{chart}')).getOption().series[0].data"
        )
        drawn = {item["point"]["setting"]: item["value"][1] for item in options}
        assert drawn.keys() == by_name.keys()
        for name, row in by_name.items():
            assert drawn[name] == pytest.approx(row.estimates[metric].value / scale, rel=1e-12)
    answer = page.locator(".answer").inner_text()
    assert analysis.answer.sentences[0].startswith(answer.rstrip("."))


def test_what_is_saved_as_csv_is_the_runs_data(look: Open, recorded: tuple[RunDir, Analysis]) -> None:
    run, analysis = recorded
    page = look(run.report)
    name, text = saved(page, figure(page, "goodput"), "CSV")
    assert name.endswith(".csv") and "throughput" in name
    rows = {row["setting"]: row for row in rows_of(text)}
    for result in analysis.settings:
        estimate = result.estimates["goodput_per_s"]
        told = [float(rows[result.setting.id][key]) for key in ("value", "low", "high")]
        assert told == pytest.approx([estimate.value, estimate.low, estimate.high], rel=1e-12)
    found = trade_offs(analysis)
    assert found is not None
    rows = {row["setting"]: row for row in rows_of(saved(page, figure(page, "trade-offs"), "CSV")[1])}
    for each in found.rows:
        assert rows[each.setting.id]["standing"] == each.standing
        assert float(rows[each.setting.id]["throughput (/s)"]) == pytest.approx(each.estimates[0].value, rel=1e-12)
    times = rows_of(saved(page, figure(page, "distribution"), "CSV")[1])
    assert {row["setting"] for row in times} == {row.setting.id for row in analysis.settings}
    for result in analysis.settings:
        mine = [
            (float(row["quantile"]), float(row["response_time_ns"]))
            for row in times
            if row["setting"] == result.setting.id
        ]
        assert mine == sorted(mine)


def test_a_lower_bound_is_one_in_what_is_saved_as_csv(visit: Open, tmp_path: Path) -> None:
    base, tail = synthetic.analysis(), "response_time_ns_p99"
    first, *others = base.settings
    first = replace(first, estimates={**first.estimates, tail: replace(first.estimates[tail], at_least=True)})
    searched, found = synthetic_verdicts.capacity_analysis(), synthetic_verdicts.capacity(8)
    failing = replace(found, curve=tuple(replace(point, error_rate=0.02) for point in found.curve))
    curves = tuple(replace(row, capacity=failing) for row in searched.settings)
    analyses = (replace(base, settings=(first, *others)), replace(searched, settings=curves))
    tables = []
    for analysis, chart in zip(analyses, ("response-time", "capacity-0"), strict=True):
        path = tmp_path / f"{chart}.html"
        path.write_text(render_page(synthetic.page(analysis)))
        page = visit(path)
        tables.append(rows_of(saved(page, figure(page, chart), "CSV")[1]))
    times, curve = tables
    assert {(row["setting"], row["line"]) for row in times if row["at_least"] == "true"} == {(first.setting.id, "p99")}
    assert {(row["p50_at_least"], row["p99_at_least"]) for row in curve} == {("false", "true")}


# Presses every button of these kinds, and keeps what the browser would save: a browser limits the number of files that
# a page may save at once, and saving one after the other takes long.
SAVE_ALL = """async kinds => {
  const kept = [];
  const click = HTMLAnchorElement.prototype.click;
  const made = URL.createObjectURL;
  let blob;
  URL.createObjectURL = given => made.call(URL, (blob = given));
  HTMLAnchorElement.prototype.click = function () { kept.push([this.download, blob]); };
  for (const button of document.querySelectorAll('.save button'))
    if (kinds.includes(button.textContent)) button.click();
  HTMLAnchorElement.prototype.click = click;
  URL.createObjectURL = made;
  return Promise.all(kept.map(async ([name, file]) => [name, await file.text()]));
}"""


def test_every_figure_can_be_saved(look: Open, recorded: tuple[RunDir, Analysis]) -> None:
    page = look(recorded[0].report)
    figures = page.locator("figure").count()
    assert figures >= 20
    assert page.get_by_role("button", name="PNG", exact=True).count() == figures
    tables = page.evaluate(SAVE_ALL, ["CSV"])
    assert len(tables) == figures and len({name for name, _ in tables}) == figures
    for name, text in tables:
        head, *rows = list(csv.reader(io.StringIO(text)))
        assert name.startswith("quickstart-") and name.endswith(".csv")
        assert rows and all(len(row) == len(head) for row in rows), name
    drawings = page.evaluate(SAVE_ALL, ["SVG"])
    titles = page.locator("figure figcaption h3").all_text_contents()
    for (name, text), title in zip(drawings, titles, strict=True):
        drawing = ElementTree.fromstring(text)
        words = " ".join(drawing.itertext())
        assert drawing.tag.endswith("svg") and name.endswith(".svg")
        assert title.split()[0] in words and recorded[1].name in words
        assert len(list(drawing.iter("{http://www.w3.org/2000/svg}path"))) > 3, name
        assert "var(" not in text and "href" not in text  # the file does not depend on the page's styles


def test_a_saved_png_shows_what_is_drawn(look: Open, recorded: tuple[RunDir, Analysis]) -> None:
    page = look(recorded[0].report)
    name, image = saved(page, figure(page, "goodput"), "PNG")
    assert name.endswith(".png") and image.startswith(b"\x89PNG")
    # The browser itself decodes the picture, on an empty page without the report's policy.
    blank = page.context.new_page()
    seen = blank.evaluate(
        """async bytes => {
          const picture = await createImageBitmap(new Blob([new Uint8Array(bytes)], {type: 'image/png'}));
          const canvas = new OffscreenCanvas(picture.width, picture.height);
          const context = canvas.getContext('2d');
          context.drawImage(picture, 0, 0);
          const {data} = context.getImageData(0, 0, picture.width, picture.height);
          const colours = new Set();
          for (let i = 0; i < data.length; i += 4) colours.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
          return {width: picture.width, height: picture.height, colours: colours.size, first: [...data.slice(0, 4)]};
        }""",
        list(image),
    )
    assert seen["width"] >= 1920 and seen["height"] >= 400
    assert seen["colours"] > 20
    assert seen["first"] == [255, 255, 255, 255]  # the picture has its own background


def cells(page: Page) -> dict[str, float]:
    options: list[dict[str, Any]] = page.evaluate(
        "echarts.getInstanceByDom(document.getElementById('chart-surface')).getOption().series[0].data"
    )
    return {item["cell"]["setting"]: item["value"][2] for item in options}


def test_lower_bounds_are_marked_in_the_pictures(visit: Open, tmp_path: Path) -> None:
    base, metric = synthetic.two_factor_analysis(), "response_time_ns_p99"
    late, *others = base.settings
    bound = replace(late.estimates[metric], value=10e9, low=10e9, high=10e9, at_least=True)
    path = tmp_path / "bounds.html"
    rows = (replace(late, estimates={**late.estimates, metric: bound}), *others)
    path.write_text(render_page(synthetic.page(replace(base, objective=metric, direction="minimise", settings=rows))))
    page = visit(path)
    assert page.locator("#chart-surface svg text", has_text="≥ 10").count() == 1
    symbols = page.evaluate(
        "echarts.getInstanceByDom(document.getElementById('chart-objective')).getOption().series"
        ".flatMap((line) => line.data.map((each) => each.symbol))"
    )
    assert symbols.count("triangle") == 1


def test_a_reader_chooses_the_factors_of_the_surface_and_what_holds_the_others(look: Open, many: Path) -> None:
    analysis = synthetic.many_factor_analysis()
    page = look(many)
    goodput = {row.setting.id: row.estimates["goodput_per_s"].value for row in analysis.settings}
    held = page.locator("#surface .held:visible")
    assert held.count() == 1 and "cache" in held.inner_text()
    first = cells(page)
    assert first == {name: value for name, value in goodput.items() if "cache=local" in name}
    page.locator("#surface-held-2").select_option(label="none")
    assert cells(page) == {name: value for name, value in goodput.items() if "cache=none" in name}
    page.locator("#surface-up").select_option(label="cache")
    assert cells(page) == {name: value for name, value in goodput.items() if "queue=1000" in name}
    # A map needs two factors: a list that gets the other list's factor gives its own to that list.
    page.locator("#surface-across").select_option(label="cache")
    assert page.locator("#surface-up").evaluate("e => e.selectedOptions[0].text") == "threads"
    page.locator("#surface-measure").select_option(label="response time p99")
    p99 = {row.setting.id: row.estimates["response_time_ns_p99"].value / 1e9 for row in analysis.settings}
    assert cells(page) == pytest.approx({name: value for name, value in p99.items() if "queue=1000" in name})
    assert page.locator("#title-surface").inner_text() == "Response time p99, s, over cache and threads"
    assert "Held: queue=1000." in page.locator("#title-surface + p").inner_text()
    drawn = page.locator("#chart-surface").evaluate(DRAWN)
    assert "<b>shared</b>" in drawn["words"]


def test_a_reader_chooses_what_is_weighed_against_what(look: Open, many: Path) -> None:
    page = look(many)
    before = page.locator("#chart-trade-offs svg").inner_html()
    page.locator("#trade-offs-across").select_option(label="memory")
    words = page.locator("#chart-trade-offs").evaluate(DRAWN)["words"]
    assert "memory, MiB: less is better" in words and "throughput, per second: more is better" in words
    assert page.locator("#chart-trade-offs svg").inner_html() != before
    page.locator("#trade-offs-up").select_option(label="memory")
    assert page.locator("#trade-offs-across").evaluate("e => e.selectedOptions[0].text") == "throughput"


def test_what_was_the_limit_is_drawn_over_the_run_and_within_a_trial(visit: Open, tmp_path: Path) -> None:
    path = tmp_path / "race.html"
    path.write_text(render_page(synthetic.page(synthetic_verdicts.race_analysis())))
    page = visit(path)
    words = page.locator("#chart-limits").evaluate(DRAWN)["words"]
    assert "pool too small" in words and "none yet" in words and "threads=32" in words
    first = page.locator("#trial-panels figure").first
    assert first.locator("h3").inner_text() == "Bottleneck over time"
    drawn = first.locator(".chart").evaluate(DRAWN)
    assert "the pool is too small" in drawn["words"] and "CPU is the limit" in drawn["words"]
    first.locator("summary").click()
    first.locator("table").wait_for()
    assert first.locator("tbody tr").count() == 3
    assert "40 requests queue" in first.locator("tbody").inner_text()
    bands = page.locator("#trial-panels figure", has=page.get_by_role("heading", name="Thread states"))
    drawn = bands.locator(".chart").evaluate(DRAWN)
    assert "waiting for a CPU" in drawn["words"] and "asleep" in drawn["words"]
    rows = rows_of(saved(page, bands, "CSV")[1])
    assert list(rows[0]) == ["second", "on a CPU", "waiting for a CPU", "asleep", "blocked"]


def test_of_many_lines_a_reader_chooses_some(look: Open, many: Path) -> None:
    """Only this test is about the picture of distributions of many settings."""
    page = look(many)
    lines = "echarts.getInstanceByDom(document.getElementById('chart-distribution')).getOption().series.length"
    assert page.evaluate(lines) == 8
    boxes = page.locator("#distribution-key input")
    assert boxes.count() == 27
    assert (
        page.locator("#distribution-key label", has_text="threads=16,queue=1000,cache=local")
        .locator("input")
        .is_checked()
    )
    page.locator("#distribution-key input:not(:checked)").first.check()
    assert page.evaluate(lines) == 9
    for box in boxes.all():
        box.uncheck() if box.is_checked() and page.evaluate(lines) > 1 else None
    last = page.locator("#distribution-key input:checked")
    assert last.count() == 1
    last.click()  # the last line stays
    assert last.count() == 1 and page.evaluate(lines) == 1


def test_names_from_files_are_only_text_in_pictures_and_in_what_is_saved(visit: Open, tmp_path: Path) -> None:
    base = synthetic.many_factor_analysis()

    def named(of: Any) -> Any:
        levels = tuple((name, EVIL if level == "local" else level) for name, level in of.levels)
        return replace(of, levels=levels)

    limit = Bottleneck(BottleneckName.LOCK, (EVIL,), EVIL)
    analysis = replace(
        base,
        name=EVIL,
        settings=tuple(replace(row, setting=named(row.setting), bottleneck=limit) for row in base.settings),
        trials=tuple(replace(trial, setting=named(trial.setting), bottleneck=limit) for trial in base.trials),
        answer=replace(
            base.answer,
            setting=named(base.answer.setting),
            leader=named(base.answer.leader),
            equivalent=tuple(map(named, base.answer.equivalent)),
        ),
    )
    path = tmp_path / "evil.html"
    path.write_text(render_page(synthetic.page(analysis, bars=(BarsView(EVIL, 1, 30.0, (1.0, 2.0)),))))
    page = visit(path)
    assert EVIL in page.locator("#surface-held-2 option").all_inner_texts()
    for chart in ("surface", "trade-offs", "limits"):
        box = page.locator(f"#chart-{chart}")
        box.scroll_into_view_if_needed()
        box.hover()
        if chart == "limits":
            assert EVIL[:10] in box.evaluate(DRAWN)["words"]
        name, text = saved(page, figure(page, chart), "SVG")
        assert not [tag for tag in ElementTree.fromstring(text).iter() if tag.tag.endswith(("img", "script"))]
        assert "<" not in name and "/" not in name
        assert any(
            EVIL in value for row in rows_of(saved(page, figure(page, chart), "CSV")[1]) for value in row.values()
        )
    bars = page.locator("figure:has(svg.bars)")
    assert rows_of(saved(page, bars, "CSV")[1]) == [
        {"from_s": "0", "rate_per_s": "1"},
        {"from_s": "30", "rate_per_s": "2"},
    ]
    assert ElementTree.fromstring(saved(page, bars, "SVG")[1]) is not None
    assert page.locator("img").count() == 0 and page.title() != "broken"


def test_a_formula_in_a_name_is_none_in_a_spreadsheet(visit: Open, tmp_path: Path) -> None:
    base = synthetic.analysis()
    evil = synthetic.setting(**{'=cmd|"/c calc"!A1': 1})
    rows = (replace(base.settings[1], setting=evil), *base.settings[2:])
    path = tmp_path / "formula.html"
    path.write_text(render_page(synthetic.page(replace(base, settings=rows))))
    page = visit(path)
    text = saved(page, figure(page, "goodput"), "CSV")[1].decode()
    assert '"\'=cmd|""/c calc""!A1=1"' in text


def test_choosers_and_buttons_fit_a_phone(visit: Open, many: Path) -> None:
    page = visit(many, width=320)
    for width in (320, 390):
        resize(page, width, 900)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for box in page.query_selector_all(".chart"):
            drawn = box.evaluate(DRAWN)
            assert 0 < drawn["width"] <= width
            assert drawn["marks"] >= 3, box.get_attribute("id")


def test_the_experiment_is_saved_as_it_ran(look: Open, recorded: tuple[RunDir, Analysis]) -> None:
    run, _ = recorded
    page = look(run.report)
    page.get_by_text("The experiment as resolved").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save this experiment").click()
    assert waiting.value.suggested_filename == "quickstart.yaml"
    assert waiting.value.path().read_text() == run.experiment.read_text()
