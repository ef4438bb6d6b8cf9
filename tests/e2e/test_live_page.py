"""The live page in a real browser that reaches this machine only: it shows the figures of the run's files, during a run
and after it; it works by keyboard and on a phone, and it requests nothing from other hosts."""

from __future__ import annotations

import csv
import fcntl
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route

from fakes import synthetic, synthetic_verdicts
from fakes.live_runs import SMALL, on_nodes, recorded, written
from fakes.live_server import Served, served
from fakes.live_trials import GO_NS, write_lines
from fakes.report_browser import POOR_CONTRAST, SETTLED, WAIT_MS, Open, resize
from fakes.smoke import CALM
from fakes.trials import trial_series
from powerband.analyze.runs.two_runs import ComparedRun, compare_two
from powerband.analyze.settings.compare import RESUME
from powerband.analyze.stored import stored_analysis
from powerband.cluster.nodes_now import NodesNow
from powerband.files.experiment_file import load_experiment
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import ClusterUse
from powerband.report.html.report import render_page
from powerband.report.wording.comparison import change_cells
from powerband.search.earlier import earlier_runs
from powerband.store import RunDir, TrialDir, read_host

pytestmark = pytest.mark.browser

EVIL = "<script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"
RACE, LARGE, REAL, EVIL_RUN = "20261121-110000-race", "20261121-100000-large", "20261119-100000-quickstart", "evil"
Serve = Callable[[Path], Served]
FROM_TOP = "e => e.getBoundingClientRect().top + scrollY"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: a race, a run of 504 trials, a recorded run, one whose names are scripts; and a folder that is
    no run."""
    runs = tmp_path_factory.mktemp("live") / "runs"
    written(runs, RACE, synthetic_verdicts.race_analysis(), order="race")
    written(runs, LARGE, synthetic.analysis(blocks=56))
    write_lines(recorded(runs, REAL).trial(1), 12)
    base = synthetic.analysis(name=EVIL, question=EVIL, warnings=(EVIL,))
    bad = replace(base.trials[11], problems=(replace(base.trials[11].problems[0], message=EVIL),))
    trials = tuple(bad if trial.number == bad.number else trial for trial in base.trials)
    written(runs, EVIL_RUN, replace(base, trials=trials, answer=replace(base.answer, sentences=(EVIL, EVIL))))
    (runs / "notes").mkdir()
    return runs


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Served]:
    with served(root, nice=False) as running:
        yield running


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts servers for one test. They end after the pages that `visit` opened, which would report a lost server, and
    before the test's folder is removed, of which pages may still ask for something."""
    del tmp_path
    with ExitStack() as running:
        yield lambda directory: running.enter_context(served(directory, nice=False))


@pytest.fixture
def visit(browser: Browser, serve: object) -> Iterator[Open]:
    """Opens addresses. At the end of the test no script may have complained, and nothing may have been requested from
    another host. `clock`: the page's timers use a clock that a test can advance instead of waiting."""
    del serve
    complaints: list[str] = []
    foreign: list[str] = []
    contexts = []

    def opened(address: str, *, width: int = 1280, scheme: str = "light", clock: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
        )
        contexts.append(context)
        origin = address[: address.index("/", len("http://"))]
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text} {message.location}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                foreign.append(request.url) if not request.url.startswith((f"{origin}/", "data:", "blob:")) else None
            ),
        )
        if clock:
            page.clock.install()
        page.goto(address)
        page.wait_for_selector("html[data-ready=yes]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert foreign == []


def patient(browser: Browser) -> Page:
    """A new page that waits as long as those of `visit`, whose complaints are nobody's."""
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    return page


def of_run(server: Served, name: str) -> str:
    return f"{server.origin}/runs/{name}/"


def every_kind_of_page(server: Served) -> tuple[str, ...]:
    return (
        server.origin + "/",
        of_run(server, RACE),
        of_run(server, REAL),
        f"{server.origin}/compare?a={RACE}&b={LARGE}",
    )


def values(page: Page, selector: str) -> list[float | None]:
    """The exact numbers of cells, from their `data-value`."""
    found: list[str | None] = page.eval_on_selector_all(
        selector, "cells => cells.map(cell => cell.dataset.value ?? null)"
    )
    return [None if text in (None, "null", "") else float(text) for text in found]


def test_the_ranking_is_that_of_the_analysis(visit: Open, server: Served, root: Path) -> None:
    page = visit(of_run(server, RACE))
    analysis = stored_analysis((root / RACE / "analysis.json").read_text())
    rows = {row.setting.id: row for row in analysis.settings}
    shown = page.eval_on_selector_all("#ranking tbody tr", "rows => rows.map(row => row.dataset.setting)")
    assert sorted(shown) == sorted(rows)
    assert values(page, "#ranking tbody tr td:nth-child(2)") == [
        rows[name].estimates["goodput_per_s"].value for name in shown
    ]
    assert page.locator("#answer").inner_text() == analysis.answer.sentences[0]
    assert page.locator("#done").inner_text() == f"{len(analysis.trials)} of {len(analysis.trials)}"
    assert analysis.race is not None
    for departure in analysis.race.departures:
        row = page.locator(f'#ranking tr[data-setting="{departure.setting.id}"]')
        assert f"eliminated in round {departure.block + 1}" in row.inner_text()
        assert departure.reason in row.inner_text()
    assert page.locator("#ranking svg.narrowing .range").count() > 10
    titles = page.locator("#ranking svg.narrowing title").all_text_contents()
    assert titles[0] == "after round 5 at 99.5 % of the leader"
    page.wait_for_selector("#ranking-chart[data-drawn=yes] svg")
    assert "threads=32" in page.locator("#ranking-chart svg").text_content()


def test_what_is_below_the_plots_stays_in_place_while_another_trial_is_loaded(visit: Open, server: Served) -> None:
    page = visit(of_run(server, REAL))
    page.wait_for_selector("#ranking-chart[data-drawn=yes] svg")
    button = page.locator('#plan button[data-trial="1"]')
    button.scroll_into_view_if_needed()
    before = button.evaluate(FROM_TOP)
    seen: list[tuple[int, float]] = []

    def look(route: Route) -> None:
        seen.append((page.locator("#plots[data-trial]").count(), button.evaluate(FROM_TOP)))
        route.continue_()

    page.route("**/trials/*", look)
    button.click()
    page.wait_for_selector('#plots[data-trial="1"] canvas')
    assert seen == [(0, pytest.approx(before, abs=1))]


def test_the_seconds_of_a_trial_are_those_of_its_files(visit: Open, server: Served, root: Path) -> None:
    page = visit(of_run(server, REAL))
    page.locator('#plan button[data-trial="1"]').click()
    page.wait_for_selector('#plots[data-trial="1"] figure[data-panel="rate"][data-drawn=yes] canvas')
    directory = RunDir(root / REAL).trial(1)
    load = trial_series(directory, replace(directory.read_record(), phases={"go": GO_NS})).load
    assert len(load.t_s) == 12
    figure = page.locator('figure[data-panel="rate"]')
    figure.locator("summary").click()
    figure.locator("table").wait_for()
    assert figure.locator("thead th").all_inner_texts() == ["time", "succeeded", "failed"]
    shown = values(page, 'figure[data-panel="rate"] tbody td:nth-child(2)')
    assert shown == list(load.rate_per_s)
    times = page.locator('figure[data-panel="response"]')
    times.locator("summary").click()
    times.locator("table").wait_for()
    assert values(page, 'figure[data-panel="response"] tbody td:nth-child(2)') == list(load.response_time_ns_p99)
    panels = page.eval_on_selector_all("#plots figure", "figures => figures.map(figure => figure.dataset.panel)")
    assert panels[:5] == ["rate", "response", "cpu", "threads", "flight"]


def sources(trial: TrialDir) -> tuple[Path, Path]:
    return trial.events, trial.probe


def test_a_trial_that_goes_on_is_drawn_as_it_comes(visit: Open, serve: Serve, tmp_path: Path) -> None:
    """The lines of a trial are written bit by bit, as a run would write them; when the trial ends, the page says so."""
    small, run, whole = RunDir(SMALL), RunDir(tmp_path / "runs" / "grows"), TrialDir(tmp_path / "whole")
    write_lines(whole, 12)
    run.trials.mkdir(parents=True)
    shutil.copy(small.experiment, run.experiment)
    trial = run.trial(1)
    with (run.path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = serve(run.path)
        page = visit(server.address)
        assert page.locator("#status").inner_text() == "running"
        assert page.locator("#now").inner_text() == "between trials"
        line = small.plan.read_text().splitlines()[0]
        run.plan.write_text(json.dumps({**json.loads(line), "planned_total": 6}) + "\n")
        trial.path.mkdir()
        shutil.copy(small.trial(1).spec, trial.spec)
        page.locator("#phase").get_by_text("trial 1, starting").wait_for()
        assert page.locator("#done").inner_text() == "0 of 6"
        files = [(source.read_bytes(), target) for source, target in zip(sources(whole), sources(trial), strict=True)]
        for content, target in files:
            target.write_bytes(content[: len(content) // 2])
        page.locator('figure[data-panel="rate"][data-drawn=yes]').wait_for()
        page.locator("#phase").get_by_text("trial 1, measuring").wait_for()
        assert page.locator("#now").inner_text() == "threads=16"
        figure = page.locator('figure[data-panel="rate"]')
        figure.locator("summary").click()
        figure.locator("table").wait_for()
        before = figure.locator("tbody tr").count()
        for content, target in files:
            with target.open("ab") as file:  # never shorter for a moment, as no file of a trial is
                file.write(content[len(content) // 2 :])
        page.wait_for_function(
            "before => document.querySelectorAll('figure[data-panel=rate] tbody tr').length > before", arg=before
        )
        for name in ("events.jsonl", "probe.jsonl", "record.json"):
            shutil.copy(small.trial(1).path / name, trial.path / name)
        page.locator('#plan button[data-trial="1"][data-outcome="running"]').wait_for(state="detached")
        assert page.locator("#done").inner_text() == "1 of 6"
        fcntl.flock(lock, fcntl.LOCK_UN)
        page.locator("#status").get_by_text("interrupted").wait_for()
        state = server.json("/runs/grows/state")
        page.locator("#answer").get_by_text(state["run"]["answer"][0]).wait_for()


def test_the_end_of_a_run_leaves_the_trial_in_the_plots(visit: Open, serve: Serve, tmp_path: Path) -> None:
    told = f"2 of 24 planned trials were run; {RESUME}"
    run = written(tmp_path / "runs", "ends", replace(synthetic.analysis(), warnings=(told,)))
    run.plan.write_text("".join(run.plan.read_text().splitlines(keepends=True)[:2]))
    record = run.trial(2).record.rename(tmp_path / "record.json")
    write_lines(run.trial(2), 12)
    with (run.path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = serve(run.path)
        page = visit(server.address)
        page.locator("#phase").get_by_text("trial 2").wait_for()
        record.rename(run.trial(2).record)
        page.locator("#now").get_by_text("between trials").wait_for()
        fcntl.flock(lock, fcntl.LOCK_UN)
    page.locator("#status").get_by_text("interrupted").wait_for()
    assert page.locator("#series-title").inner_text() == "Trial 2"
    again = visit(server.address)
    again.locator("#series-title").get_by_text("Trial 1").wait_for()


def test_the_rate_that_a_trial_is_offered_is_told(visit: Open, serve: Serve, tmp_path: Path) -> None:
    small, run = RunDir(SMALL), RunDir(tmp_path / "runs" / "offered")
    run.trials.mkdir(parents=True)
    shutil.copy(small.experiment, run.experiment)
    line = json.loads(small.plan.read_text().splitlines()[0])
    run.plan.write_text(json.dumps({**line, "stage": "capacity", "rate_per_s": 1200.0, "planned_total": 6}) + "\n")
    with (run.path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = serve(run.path)
        page = visit(server.address)
        page.locator("#now").get_by_text("threads=16 at 1,200/s").wait_for()
        assert "threads=16 at 1,200/s, trial 1, second by second" in page.locator("#series-about").inner_text()
        assert page.locator("#plan thead th").all_inner_texts() == ["setting", "capacity search"]
        about = page.locator("#plan button").get_attribute("title")
        assert about == "Trial 1, threads=16 at 1,200/s, capacity search, running"


def test_the_nodes_of_a_cluster_are_told_with_what_each_runs(visit: Open, serve: Serve, tmp_path: Path) -> None:
    run = on_nodes(tmp_path / "runs" / "nodes", trials=3)
    now = NodesNow(run)
    with (run.path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        measures = {"trial": 1, "phase": "measure", "phase_began_s": 0}
        now.write({"a": measures, "b": {"load_from": ["d", "e"]}, "c": {"lost": EVIL}})
        page = visit(serve(run.path).address)
        rows = [row.split("\t") for row in page.locator("#nodes tbody tr").all_inner_texts()]
        assert rows[0][:3] == ["a", "threads=1", "1, round 1"] and rows[0][3].startswith("measuring for ")
        assert rows[1] == ["b\nload from d, e\n", "–", "–", "idle"]
        assert rows[2][3].startswith("lost") and EVIL in rows[2][3]
        assert page.locator("#now").inner_text() == "1 of 3 nodes run a trial, 1 is idle, 1 is lost"
        about = page.locator('#plan button[data-trial="1"]').get_attribute("title")
        assert about == "Trial 1, threads=1, round 1 on a, running"
        now.write({"a": {"trial": 1, "phase": "stop", "phase_began_s": 0}, "b": {"trial": 2, "phase": ""}})
        page.locator("#nodes").get_by_text("starting").wait_for()
        assert page.locator("#nodes tbody tr").count() == 2
        page.clock.set_fixed_time((time.time() + 3600) * 1000)  # the clock of the browser differs from the server's
        now.write({"a": {**measures, "phase_began_s": time.time()}})
        page.locator("#nodes").get_by_text(re.compile(r"measuring for \d+ s")).wait_for()
        now.close()
        page.locator("#nodes-part").wait_for(state="hidden")


def test_the_seconds_of_a_cluster_are_those_of_the_newest_trial(visit: Open, serve: Serve, tmp_path: Path) -> None:
    run = written(tmp_path / "runs", "newest")
    cluster = load_experiment(run.experiment).model_copy(update={"cluster": ClusterUse(nodes=("a", "b"))})
    run.experiment.write_text(resolved_yaml(cluster))
    lines = iter(run.plan.read_text().splitlines(keepends=True))
    run.plan.unlink()

    def arrived() -> None:
        with run.plan.open("a") as plan:  # never shorter for a moment, as no plan of a run is
            plan.write(next(lines))
        with run.analysis.open("a") as analysis:
            analysis.write("\n")

    arrived()
    now = NodesNow(run)
    with (run.path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        now.write({"a": {}, "b": {}})
        page = visit(serve(run.path).address)
        title = page.locator("#series-title")
        title.get_by_text("Trial 1").wait_for()
        arrived()
        title.get_by_text("Trial 2").wait_for()
        page.locator('#plan button[data-trial="1"]').click()
        arrived()
        page.locator('#plan button[data-trial="3"][data-outcome="valid"]').wait_for()
        assert title.inner_text() == "Trial 1", "which somebody chose"
        now.close()


def test_the_axis_of_a_figure_is_in_a_unit_that_fits(visit: Open, server: Served) -> None:
    page = visit(of_run(server, RACE))
    page.wait_for_selector("#ranking-chart[data-drawn=yes] svg")
    assert "/s" in page.locator("#ranking-chart svg").text_content()
    drawn = page.evaluate(
        """async () => {
          const { drawIntervals } = await import("/static/intervals.js");
          const points = [5e8, 6e8].map((value) => ({ value, low: value - 1e7, high: value + 1e7, text: "" }));
          const box = document.getElementById("ranking-chart");
          drawIntervals(box, ["a", "b"], [{ points, colours: ["red"] }], [1e6, "ms"]);
          return box.textContent; // at once: the page draws its own anew when its size changes
        }"""
    )
    assert "500 ms" in drawn


def test_a_lower_bound_is_a_triangle_and_the_page_says_so(visit: Open, server: Served) -> None:
    page = visit(of_run(server, RACE))
    page.wait_for_selector("#ranking-chart[data-drawn=yes] svg")
    note = page.locator("#ranking-figure .lead")
    assert note.is_hidden()
    corners = page.evaluate(
        """async () => {
          const { drawIntervals } = await import("/static/intervals.js");
          const points = [true, false].map((at_least) => ({ value: 5e8, at_least, text: "" }));
          const box = document.getElementById("ranking-chart");
          drawIntervals(box, ["a", "b"], [{ points, colours: ["red"] }], [1e6, "ms"]);
          const drawn = [...box.querySelectorAll('path[fill="red"]')].map((path) => path.getAttribute("d"));
          return [box.nextElementSibling.hidden, drawn.map((d) => d.match(/L/g)?.length ?? 0)];
        }"""
    )
    assert corners == [False, [2, 0]]
    assert note.text_content() == "Triangles are lower bounds."


def draw_gauges(page: Page, names: list[str], step: float = 1) -> None:
    """Draws plots of series that no server sent, the n-th of which is n steps from 0."""
    page.evaluate(
        """async ([names, step]) => {
          const { Plots } = await import("/static/plots.js");
          const point = (t_s) => ({ t_s, ...Object.fromEntries(names.map((name, i) => [`gauges:${name}`, i * step])) });
          new Plots(document.getElementById("plots")).add([point(1), point(2)], {});
        }""",
        [names, step],
    )


# True if the canvas of a figure has a pixel in the colour of its first line.
HAS_LINE = """figure => {
  const [canvas, mark] = [figure.querySelector("canvas"), figure.querySelector(".legend i")];
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colour = getComputedStyle(mark).backgroundColor.match(/\\d+/g).map(Number);
  const like = (pixel) => colour.every((value, i) => Math.abs(value - data[4 * pixel + i]) < 4);
  return [...Array(data.length / 4).keys()].some(like); }"""


def test_a_plot_has_room_for_large_negative_and_counted_values(visit: Open, server: Served) -> None:
    page = visit(of_run(server, "notes"))
    names = ["level", "http_bytes_sum", "http_bytes_count", "http_bytes_bucket per second"]
    for step in (25e6, -25e6):
        draw_gauges(page, names, step)
        figure = page.locator('figure[data-panel="gauge http_bytes_count"]').last
        figure.locator("canvas").wait_for()
        assert figure.locator(".legend b").inner_text() == f"{2 * step:,.0f}"
        assert figure.evaluate("figure => parseFloat(figure.querySelector('.u-over').style.left)") > 75
        assert figure.evaluate(HAS_LINE)
    for name, shown in (("sum", "23.8 MiB"), ("bucket per second", "75,000,000")):
        assert page.locator(f'figure[data-panel="gauge http_bytes_{name}"] .legend b').first.inner_text() == shown


def test_a_plot_says_how_many_lines_it_leaves_out(visit: Open, server: Served) -> None:
    page = visit(of_run(server, "notes"))
    draw_gauges(page, [f'jobs{{pool="{number}"}}' for number in range(15)])
    page.wait_for_selector('figure[data-panel="gauge jobs"][data-drawn=yes]')
    lines = page.locator('figure[data-panel="gauge jobs"] .legend li')
    assert lines.count() == 13 and lines.last.inner_text() == "and 3 more"
    assert lines.locator("i.dashed").count() == 6


def test_series_that_are_not_drawn_are_counted(visit: Open, server: Served) -> None:
    page = visit(of_run(server, "notes"))
    draw_gauges(page, [f"queue_{number}" for number in range(15)])
    page.wait_for_selector('figure[data-panel="gauge queue_11"]')
    assert page.locator('figure[data-panel^="gauge "]').count() == 12
    assert page.locator("#plots > :last-child").inner_text() == "3 more of the server's own series are not drawn."


def test_a_trial_whose_seconds_cannot_be_had_shows_no_others(browser: Browser, server: Served) -> None:
    page = patient(browser)
    page.goto(of_run(server, LARGE))
    page.wait_for_selector("html[data-ready=yes]")
    numbers = page.eval_on_selector_all("#plan button", "buttons => buttons.map(button => button.dataset.trial)")
    page.evaluate(
        """() => {
          const answer = { t_s: 1, rate_per_s: 5 };
          window.fetch = async (url) => {
            if (url.endsWith("trials/2")) return new Response(null, { status: 404 });
            if (url.endsWith("trials/3")) throw new TypeError("gone");
            return Response.json({ points: [answer, { ...answer, t_s: 2 }], phases_s: {} });
          };
        }"""
    )
    assert {"1", "2", "3"} <= set(numbers)
    for number, said in (
        ("1", "the measured window is shaded."),
        ("2", "its seconds could not be loaded (404)."),
        ("1", "the measured window is shaded."),
        ("3", "the live server has stopped."),
    ):
        page.locator(f'#plan button[data-trial="{number}"]').click()
        page.locator("#series-about").get_by_text(said).wait_for()
        assert page.locator("#series-title").inner_text() == f"Trial {number}"
        assert page.locator("#plots figure").count() == (number == "1")
    page.close()


def test_a_server_that_refuses_is_told_from_one_that_has_gone(browser: Browser, server: Served) -> None:
    page = patient(browser)
    page.route("**/events", lambda route: route.fulfill(status=503))
    page.goto(of_run(server, REAL))
    page.locator("#refused").get_by_text("503 Service Unavailable").wait_for()
    assert page.locator("#lost").is_hidden()
    page.close()


def asks_again(page: Page) -> None:
    """Advances the page's clock by four seconds, after which a list of runs requests the newest, and waits for the
    answer."""
    with page.expect_response(page.url) as answer:
        page.clock.fast_forward(4000)
    answer.value.finished()


def test_the_list_of_runs_follows_what_comes(visit: Open, serve: Serve, tmp_path: Path) -> None:
    """The list shows runs from the first one on, but does not change while an element in it has the focus."""
    runs, first, second = tmp_path / "runs", "20261120-100000-first", "20261121-100000-second"
    runs.mkdir()
    server = serve(runs)
    page = visit(server.address, clock=True)
    assert "There is no run in" in page.locator("#content").inner_text()
    written(runs, first)
    asks_again(page)
    page.locator("tbody tr").get_by_text("finished").wait_for()
    assert page.locator("#count").inner_text().startswith("1 run in ")
    compare = page.get_by_role("button", name="Compare A with B")
    assert compare.is_disabled()
    page.locator("tbody tr a").focus()
    written(runs, second)
    for _ in range(2):
        asks_again(page)
    assert page.locator("tbody tr").count() == 1
    page.evaluate("document.activeElement.blur()")
    asks_again(page)
    page.locator(f'tr[data-run="{second}"]').get_by_text("finished").wait_for()
    assert page.locator("#count").inner_text().startswith("2 runs in ") and compare.is_enabled()
    picked = page.eval_on_selector_all("input:checked", "inputs => inputs.map(input => [input.name, input.value])")
    assert sorted(picked) == [["a", first], ["b", second]]


def saved(page: Page, figure: Locator, kind: str) -> Path:
    with page.expect_download() as waiting:
        figure.get_by_role("button", name=kind, exact=True).click()
    return waiting.value.path()


def test_a_report_is_drawn_and_saved_in_an_origin_of_its_own(visit: Open, serve: Serve, tmp_path: Path) -> None:
    analysis = synthetic.analysis()
    run = written(tmp_path / "runs", "20261120-100000-pool-size", analysis)
    run.report.write_text(render_page(synthetic.page(analysis)))
    server = serve(run.path)
    page = visit(f"{server.address}report")
    assert page.evaluate("self.origin") == "null"
    assert page.locator(".chart svg").count() >= 15
    figure = page.locator("figure:has(#chart-goodput)")
    assert saved(page, figure, "PNG").read_bytes().startswith(b"\x89PNG")
    with saved(page, figure, "CSV").open(newline="") as file:
        rows = {row["setting"]: float(row["value"]) for row in csv.DictReader(file)}
    estimates = {row.setting.id: row.estimates["goodput_per_s"] for row in analysis.settings}
    assert rows == pytest.approx({name: estimate.value for name, estimate in estimates.items()}, rel=1e-12)


def test_the_first_page_leads_everywhere_by_keyboard(visit: Open, server: Served, root: Path) -> None:
    (root / RACE / "report.html").write_text("<!doctype html><title>the report</title><p>of the race</p>")
    page = visit(server.origin + "/")
    assert page.locator("tbody tr").count() == 4
    assert re.match(r"\w{3} \d+, \d{4}", page.locator("tbody time").first.inner_text()), "as the browser says it"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator(f'tr[data-run="{RACE}"] a').first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-ready=yes] #answer")
    assert page.url == of_run(server, RACE)
    page.locator("#report").focus()
    page.keyboard.press("Enter")
    page.get_by_text("of the race").wait_for()
    page.go_back()
    page.go_back()
    page.locator(f'tr[data-run="{RACE}"] input[name="a"]').focus()
    page.keyboard.press("Space")
    page.locator(f'tr[data-run="{LARGE}"] input[name="b"]').focus()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    page.wait_for_selector("#compare-chart[data-drawn=yes] svg")
    assert sorted(page.url.partition("?")[2].split("&")) == [f"a={RACE}", f"b={LARGE}"]


def test_two_runs_side_by_side(visit: Open, server: Served, root: Path) -> None:
    page = visit(f"{server.origin}/compare?a={RACE}&b={LARGE}")
    analyses = [stored_analysis((root / name / "analysis.json").read_text()) for name in (RACE, LARGE)]
    for letter, name, analysis in zip("AB", (RACE, LARGE), analyses, strict=True):
        side = page.locator(".side").filter(has_text=f"{letter} ·")
        assert name in side.inner_text() and analysis.answer.sentences[0] in side.inner_text()
    runs = [RunDir(root / name) for name in (RACE, LARGE)]
    told = [
        ComparedRun(run.path.name, load_experiment(run.experiment), analysis, read_host(run.host))
        for run, analysis in zip(runs, analyses, strict=True)
    ]
    found = compare_two(told[0], told[1], earlier_runs(told[0], runs[0].path, runs[1].path))
    rows = [row.locator("th, td").all_inner_texts() for row in page.locator("table tbody tr").all()]
    assert rows == [change_cells(change, found) for change in found.changes] and len(rows) == 9
    for row, change in zip(rows, found.changes, strict=True):
        for shown, analysis in zip(row[1:3], analyses, strict=True):
            values = [t.metrics["goodput_per_s"] for t in analysis.trials if t.setting == change.setting and t.valid]
            assert float(shown.removesuffix("/s").replace(",", "")) == pytest.approx(fmean(values), rel=0.03)
    assert "threads=32" in page.locator("#compare-chart svg").text_content()
    assert "/s" in page.locator("#compare-chart svg").text_content()
    shown, told_at = page.locator(".side time").first.evaluate("e => [e.textContent, e.dateTime]")
    local = page.evaluate("at => import('/static/format.js').then(({ day }) => day(Date.parse(at) / 1000))", told_at)
    assert shown == local
    page.get_by_text("Swap A and B").click()
    page.wait_for_url(f"**/compare?a={LARGE}&b={RACE}")
    page.wait_for_selector("#compare-chart[data-drawn=yes]")


def test_500_trials_are_a_map_that_the_keyboard_walks(visit: Open, server: Served) -> None:
    page = visit(of_run(server, LARGE))
    assert page.locator("#plan tbody button").count() == 504
    assert page.locator('#plan button[tabindex="0"]').count() == 1  # one stop for the tab key, arrows within
    page.locator("#plan tbody tr").first.locator("button").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    focused = page.evaluate("document.activeElement.closest('tr').dataset.setting")
    assert focused == "threads=2"
    page.keyboard.press("Enter")
    number = page.evaluate("document.activeElement.dataset.trial")
    page.locator(f'#plan button[data-trial="{number}"][aria-pressed=true]').wait_for()
    page.keyboard.press("End")
    page.locator('#plan button[data-outcome="failed"]').click()
    assert "exited with code 137" in page.locator("#series-about").inner_text()


def test_a_long_name_of_a_setting_stays_beside_its_trials(visit: Open, server: Served) -> None:
    page = visit(of_run(server, RACE))
    name = page.locator("#plan tbody th").first
    for text in ("threads=16, queue=unbounded, cache=none, database=postgresql, collector=ZGC", "x" * 99):
        assert name.evaluate("(e, text) => { e.textContent = text; return e.scrollWidth <= e.clientWidth; }", text)


def test_names_are_shown_and_never_run(visit: Open, server: Served) -> None:
    for address in (server.origin + "/", of_run(server, EVIL_RUN), f"{server.origin}/compare?a={EVIL_RUN}&b={LARGE}"):
        page = visit(address)
        assert page.title() != "broken" and page.locator("img").count() == 0
        assert EVIL in page.locator("body").inner_text()


def test_what_is_no_run_says_so(visit: Open, server: Served) -> None:
    page = visit(of_run(server, "notes"))
    assert page.locator("#status").inner_text() == "cannot be read"
    assert "no experiment.yaml" in page.locator("#answer").inner_text()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/compare?a=&b=", "Choose two different runs"),
        ("/runs/notes/report", "no experiment.yaml"),
        ("/runs/nobody/", "nobody"),
    ],
)
def test_what_cannot_be_shown_is_a_page_all_the_same(browser: Browser, server: Served, path: str, said: str) -> None:
    complaints: list[str] = []
    page = patient(browser)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(server.origin + path)
    assert said in page.locator("body").inner_text()
    assert page.evaluate(POOR_CONTRAST, "svg, script, .skip, .hidden") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert [text for text in complaints if "responded with a status of 4" not in text] == []
    page.close()


def test_a_small_screen_is_not_scrolled_sideways(visit: Open, server: Served) -> None:
    for address in every_kind_of_page(server):
        page = visit(address, width=320)
        for width in (320, 390, 768):
            resize(page, width, 900)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (address, width)


def test_text_is_readable_against_its_background(visit: Open, server: Served) -> None:
    """Every element with text of its own has the contrast that WCAG 2 asks for: 4.5 to 1, or 3 to 1 for large text."""
    for address in every_kind_of_page(server):
        page = visit(address, scheme="dark")
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            page.evaluate(SETTLED)
            dark = page.evaluate("parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])") < 40
            assert dark == (scheme == "dark")
            assert page.evaluate(POOR_CONTRAST, "svg, script, .skip, .hidden") == [], (address, scheme)


def test_an_hour_of_seconds_is_drawn(visit: Open, server: Served, root: Path) -> None:
    run = RunDir(root / "20261118-100000-hour")
    shutil.copytree(root / REAL, run.path)
    lines = [json.loads(line) for line in run.trial(1).events.read_text().splitlines()]
    interval: dict[str, Any] = next(line for line in lines if line["type"] == "interval")
    interval.pop("response_time_ns", None)
    with run.trial(1).events.open("w") as file:
        for second in range(3600):
            interval |= {"start_ns": second * 10**9, "end_ns": (second + 1) * 10**9, "outcomes": {"ok": 1000 + second}}
            file.write(json.dumps(interval) + "\n")
    run.trial(1).probe.unlink()
    page = visit(of_run(server, run.path.name))
    page.locator('#plan button[data-trial="1"]').click()
    page.wait_for_selector('#plots[data-trial="1"] figure[data-panel="rate"][data-drawn=yes]')
    assert "4,599/s" in page.locator('figure[data-panel="rate"] .legend').inner_text()
    page.context.close()  # it would complain of a run that goes
    shutil.rmtree(run.path)


@pytest.mark.e2e
@pytest.mark.crowded
def test_a_real_run_is_watched_from_its_first_trial_to_its_end(
    visit: Open, tmp_path: Path, engine: Path, no_process_left: None
) -> None:
    options = [
        "load.duration=3s",
        "load.users=8",
        "measure.slots=false",
        "measure.retries=0",
        "design.order=blocks",
        "measure.series=[pool_active, queue_length]",
    ]
    command = [
        *(sys.executable, "-m", "powerband", "run", "quickstart", "--profile", "smoke", "--live", "--seed", "3"),
        *("--runs", str(tmp_path / "runs"), *CALM),
        *(word for option in options for word in ("--set", option)),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = next(line for line in process.stderr if line.startswith("live page: "))
    page = visit(said.split()[2])
    page.locator("#status").get_by_text("running").wait_for()
    page.locator("#phase").get_by_text("measuring").wait_for()
    page.locator('figure[data-panel="rate"][data-drawn=yes]').wait_for()
    page.locator('figure[data-panel="cpu"][data-drawn=yes]').wait_for()
    page.locator('figure[data-panel="gauge pool_active"][data-drawn=yes]').wait_for()
    page.locator("#status").get_by_text("finished").wait_for()
    ids = page.eval_on_selector_all("#ranking tbody tr", "rows => rows.map(row => row.dataset.setting)")
    shown = values(page, "#ranking tbody tr td:nth-child(2)")
    assert page.locator("#done").inner_text() == "4 of 4"
    page.context.close()  # its server ends with the run
    process.communicate(timeout=180)
    (path,) = (tmp_path / "runs").iterdir()
    analysis = stored_analysis((path / "analysis.json").read_text())
    of = {row.setting.id: row.estimates.get("goodput_per_s") for row in analysis.settings}
    assert shown == [None if (estimate := of[name]) is None else estimate.value for name in ids]
