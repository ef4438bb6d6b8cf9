"""The pages as they are requested: the content of each, names that are only names, and paths that lead nowhere else."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes import synthetic
from fakes.asgi import Answered, asked
from fakes.live_runs import exchanged, recorded, written
from fakes.live_trials import write_lines
from powerband.analyze.runs.changes import Change, RunComparison
from powerband.live import trial_seconds
from powerband.live.guard import access_for
from powerband.live.pages import compare_page
from powerband.live.server import FEEDS_MAX, LivePages
from powerband.live.state import RunState, RunStatus
from powerband.model.results import Estimate, Verdict
from powerband.store import RunDir

EVIL = "<script>document.title='broken'</script>"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with two runs of one experiment, a recorded run, and files and folders that are no runs."""
    runs = tmp_path / "runs"
    runs.mkdir()
    written(runs, "20261120-100000-pool-size")
    written(runs, "20261121-100000-pool-size", synthetic.analysis(blocks=4))
    write_lines(recorded(runs, "20261119-100000-quickstart").trial(1), 6)
    (runs / "notes").mkdir()
    (runs / "file.txt").write_text("no run")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "outside").mkdir()
    shutil.copy(runs / "20261120-100000-pool-size" / "experiment.yaml", tmp_path / "outside" / "experiment.yaml")
    (runs / "linked").symlink_to(tmp_path / "outside")
    return runs


@pytest.fixture
def pages(root: Path) -> Iterator[LivePages]:
    yield LivePages(root, access_for("127.0.0.1", 8420, None, "machine"))


def get(pages: LivePages, target: str, **given: object) -> Answered:
    return asked(pages.app, target, **given)


def test_the_first_page_lists_every_run_the_latest_first(pages: LivePages) -> None:
    page = get(pages, "/")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    assert sorted(re.findall(r'<tr data-run="([^"]+)"', page.text)) == [
        "20261119-100000-quickstart",
        "20261120-100000-pool-size",
        "20261121-100000-pool-size",
    ]
    assert "Use threads=32." in page.text
    assert "notes" not in page.text and "linked" not in page.text and "file.txt" not in page.text


def test_every_page_and_file_is_there(pages: LivePages) -> None:
    for target in (
        "/",
        "/runs/20261120-100000-pool-size/",
        "/compare?a=20261120-100000-pool-size&b=20261121-100000-pool-size",
    ):
        page = get(pages, target)
        assert page.status == 200
        files = re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)
        assert len(files) >= 3
        for file in files:
            answer = get(pages, file)
            assert answer.status == 200 and answer.body
        assert not re.search(r"<script(?![^>]*(src=|application/json))", page.text)
        assert not re.search(r"\son\w+=|<style|style=", page.text)
        assert not re.search(r"https?://", page.text)


@pytest.mark.parametrize(
    "target",
    [
        "/runs/../secret.txt",
        "/runs/..%2fsecret.txt",
        "/runs/%2e%2e/",
        "/runs/%2e%2e/report",
        "/runs/../../etc/passwd",
        "/runs/..%2f..%2fetc%2fpasswd/report",
        "/runs/./report",
        "/runs/linked/",
        "/runs/linked/state",
        "/runs/file.txt/",
        "/runs/absent/events",
        "/runs/%00/",
        "/runs/20261120-100000-pool-size%00/",
        "/runs//etc/passwd",
        "/runs/20261120-100000-pool-size/trials/999999",
        "/runs/20261120-100000-pool-size/trials/-1",
        "/runs/20261120-100000-pool-size/trials/..%2f..%2f",
        "/runs/20261120-100000-pool-size/host.json",
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e%2f%2e%2e%2fserver.py",
        "/static/",
        "/static//etc/passwd",
        "/compare?a=..%2fsecret.txt&b=20261120-100000-pool-size",
        "/etc/passwd",
    ],
)
def test_no_path_leads_elsewhere(pages: LivePages, target: str) -> None:
    answer = get(pages, target)
    assert answer.status == 404
    assert "secret" not in answer.text.replace("secret.txt", "") and "root:" not in answer.text


def test_a_report_that_is_a_link_to_something_else_is_not_followed(
    root: Path, pages: LivePages, tmp_path: Path
) -> None:
    (root / "20261120-100000-pool-size" / "report.html").symlink_to(tmp_path / "secret.txt")
    assert "secret" not in get(pages, "/runs/20261120-100000-pool-size/report").text


def test_a_report_is_shown_as_it_was_written_in_an_origin_of_its_own(root: Path, pages: LivePages) -> None:
    text = "<!doctype html><title>mine</title><script>1</script>"
    (root / "20261120-100000-pool-size" / "report.html").write_text(text)
    answer = get(pages, "/runs/20261120-100000-pool-size/report")
    assert answer.text == text
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox ") and "allow-same-origin" not in policy
    assert "connect-src" not in policy and "default-src 'none'" in policy


def test_a_report_that_was_never_written_is_made(root: Path, pages: LivePages) -> None:
    run = RunDir(root / "20261119-100000-quickstart")
    before = sorted(path for path in run.path.rglob("*"))
    answer = get(pages, f"/runs/{run.path.name}/report")
    assert answer.status == 200 and "quickstart – powerband" in answer.text
    assert sorted(path for path in run.path.rglob("*")) == before  # and nothing was written


def test_a_report_that_the_run_went_on_after_is_made_anew(root: Path, pages: LivePages) -> None:
    run = RunDir(root / "20261119-100000-quickstart")
    run.report.write_text("<title>of the first trials</title>")
    with (run.path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        answer = get(pages, f"/runs/{run.path.name}/report")
        assert answer.status == 404 and "made when the run ends" in answer.text
    assert get(pages, f"/runs/{run.path.name}/report").text == run.report.read_text()
    os.utime(run.report, (1, 1))
    answer = get(pages, f"/runs/{run.path.name}/report")
    assert answer.status == 200 and "quickstart – powerband" in answer.text
    run.experiment.write_text("future: 1\n")
    assert get(pages, f"/runs/{run.path.name}/report").text == run.report.read_text(), "it is all that can be read"


def test_names_are_shown_as_they_are(root: Path, pages: LivePages) -> None:
    base = synthetic.analysis(name=EVIL, question=EVIL)
    evil = replace(base, answer=replace(base.answer, sentences=(EVIL, EVIL)), warnings=(EVIL,))
    written(root, "evil", evil)
    folder = "x<script>alert(1)<"
    shutil.copytree(root / "evil", root / folder)
    for target in ("/", "/runs/evil/", "/runs/x%3Cscript%3Ealert(1)%3C/", "/compare?a=evil&b=x%3Cscript%3Ealert(1)%3C"):
        page = get(pages, target)
        assert page.status == 200
        assert "<script>document" not in page.text and "<script>alert" not in page.text
    assert "&lt;script&gt;document" in get(pages, "/").text
    assert get(pages, "/runs/evil/state").json()["run"]["name"] == EVIL


def test_the_state_as_json(pages: LivePages) -> None:
    state = get(pages, "/runs/20261120-100000-pool-size/state").json()
    assert state["run"]["status"] == "finished" and len(state["trials"]) == 45
    assert state["current"] is None and state["eta_s"] is None
    leader = next(setting for setting in state["run"]["settings"] if setting["leads"])
    assert leader["text"].endswith("/s") and leader["value"] > 1000


def test_one_trial_second_by_second(pages: LivePages) -> None:
    trial = get(pages, "/runs/20261119-100000-quickstart/trials/1").json()
    assert trial["number"] == 1 and trial["setting"] == "threads=16" and trial["damaged"] == 0
    assert len(trial["points"]) == 6 and trial["points"][1]["rate_per_s"] > 0
    assert "cpu_cores:subject" in trial["points"][2]
    assert trial["points_before"] == 0


def test_a_trial_that_is_too_long_says_how_much_of_its_beginning_is_left_out(
    root: Path, pages: LivePages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_seconds, "POINTS_MAX", 4)
    trial = get(pages, "/runs/20261119-100000-quickstart/trials/1").json()
    assert (trial["points_before"], [point["t_s"] for point in trial["points"]]) == (2, [3, 4, 5, 6])
    run = RunDir(root / "20261119-100000-quickstart")
    last = max(run.trials.iterdir())
    write_lines(run.trial(int(last.name)), 9)
    (last / "record.json").unlink()
    with run.locked():
        current = get(pages, f"/runs/{run.path.name}/state").json()["current"]
    assert len(current["points"]) == 4 and current["points_before"] == current["points"][0]["t_s"] - 1 > 0


def compared(page: str) -> dict[str, Any]:
    """The data of the picture of two runs."""
    found: dict[str, Any] = json.loads(re.findall(r'id="compare-data">(.*?)</script>', page)[0])
    return found


def test_two_runs_side_by_side(pages: LivePages) -> None:
    page = get(pages, "/compare?a=20261120-100000-pool-size&b=20261121-100000-pool-size")
    assert page.status == 200
    assert page.text.count('<th scope="row">threads=') == 9
    data = compared(page.text)
    assert data["settings"][0].startswith("threads=") and len(data["runs"]) == 2
    told = get(pages, "/runs/20261120-100000-pool-size/state").json()["run"]["settings"]
    assert {s["id"]: s["value"] for s in told if s["id"] == "threads=32"}["threads=32"] == pytest.approx(
        data["runs"][0][data["settings"].index("threads=32")]["value"], rel=0.01
    )


def test_two_runs_side_by_side_have_no_interval_of_a_lower_bound() -> None:
    made = replace(synthetic.analysis(), objective="response_time_ns_p99", direction="minimise")
    first, bound = Estimate(2e9, 1.9e9, 2.1e9, 0.95, 5), Estimate(10e9, 9e9, 11e9, 0.95, 5, at_least=True)
    ratio = Estimate(5.0, 4.9, None, 0.95, 5)
    found = RunComparison.of(made, [Change(synthetic.setting(threads=4), first, bound, ratio, Verdict.WORSE)])
    state = RunState("", "", RunStatus.FINISHED)
    data = compared(compare_page(("a", "b"), (state, state), found))
    assert [[(point["at_least"], point["low"], point["high"]) for point in run] for run in data["runs"]] == [
        [(False, 1.9e9, 2.1e9)],
        [(True, None, None)],
    ]


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/compare", 400, "Choose two different runs"),
        ("/compare?a=20261120-100000-pool-size&b=20261120-100000-pool-size", 400, "Choose two different runs"),
        ("/compare?a=notes&b=20261120-100000-pool-size", 409, "no experiment.yaml"),
        ("/runs/notes/report", 404, "no experiment.yaml"),
    ],
)
def test_what_cannot_be_shown_says_why(pages: LivePages, target: str, status: int, said: str) -> None:
    answer = get(pages, target)
    assert answer.status == status and said in answer.text


def test_what_is_no_run_directory_is_explained_on_its_page(pages: LivePages) -> None:
    assert get(pages, "/runs/notes/").status == 200
    state = get(pages, "/runs/notes/state").json()
    assert state["run"]["status"] == "unreadable" and "no experiment.yaml" in state["run"]["because"]


def test_head_answers_without_a_body_and_an_event_stream_ends(pages: LivePages) -> None:
    for target in ("/", "/runs/20261120-100000-pool-size/events"):
        assert get(pages, target, method="HEAD").status == 200


@pytest.mark.parametrize("name", [b"runs", b"runs-\xff"])
def test_an_empty_folder_says_what_to_do(name: bytes, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(name)
    folder.mkdir()
    page = get(LivePages(folder, access_for("127.0.0.1", 1, None, "m")), "/")
    assert "no run in " in page.text and "powerband run quickstart" in page.text


def test_of_many_runs_only_some_are_kept_in_mind(root: Path, pages: LivePages) -> None:
    for number in range(FEEDS_MAX + 4):
        shutil.copytree(root / "20261119-100000-quickstart", root / f"copy-{number}")
        assert get(pages, f"/runs/copy-{number}/state").status == 200
    assert len(pages._feeds) == FEEDS_MAX


def test_all_that_are_watched_stay_and_one_more_is_opened(root: Path, pages: LivePages) -> None:
    for number in range(FEEDS_MAX):
        shutil.copytree(root / "20261119-100000-quickstart", root / f"copy-{number}")
        assert get(pages, f"/runs/copy-{number}/state").status == 200
    for feed in pages._feeds.values():
        feed.viewers = 1
    assert get(pages, "/runs/20261119-100000-quickstart/state").status == 200
    assert len(pages._feeds) == FEEDS_MAX + 1


def test_what_is_no_text_is_replaced_and_the_list_stays(root: Path, pages: LivePages) -> None:
    run = written(root, "half")
    analysis = json.loads(run.analysis.read_text())
    analysis |= {"name": "half \ud800", "question": "\udfff?", "warnings": ["\ud800"]}
    analysis["answer"]["sentences"] = ["Use \ud800.", "\udc00"]
    run.analysis.write_text(json.dumps(analysis))
    shutil.copytree(run.path, root / "\udcff")  # the byte 0xff
    page = get(pages, "/")
    assert page.status == 200 and "half ?" in page.text and "20261120-100000-pool-size" in page.text
    assert "Use ?." in get(pages, "/compare?a=half&b=20261120-100000-pool-size").text
    assert get(pages, "/runs/half/state").json()["run"]["answer"][0] == "Use ?."
    for target in ("/runs/half/", "/runs/half/report", "/metrics"):
        assert get(pages, target).status in (200, 404)


def test_a_trial_with_what_is_no_number_is_told_without(root: Path, pages: LivePages) -> None:
    run = RunDir(root / "20261119-100000-quickstart")
    text = re.sub(r'"response_time_ns_sum":\d+', '"response_time_ns_sum":1e999', run.trial(1).events.read_text())
    for end in ("NaN", "1e999", "1e300", "1" + 400 * "0"):
        text += f'{{"type":"interval","engine":0,"start_ns":1,"end_ns":{end}}}\n'
    run.trial(1).events.write_text(text)
    trial = get(pages, f"/runs/{run.path.name}/trials/1").json()
    assert len(trial["points"]) == 6 and trial["damaged"] == 4
    assert trial["points"][1]["rate_per_s"] > 0 and trial["points"][1]["response_time_ns_mean"] is None


def test_nothing_waits_for_a_pipe(root: Path, pages: LivePages) -> None:
    exchanged(root / "20261120-100000-pool-size" / "host.json", "pipe")
    compared = get(pages, "/compare?a=20261120-100000-pool-size&b=20261121-100000-pool-size")
    assert compared.status == 409 and "host.json is a link, a pipe or a device" in compared.text
    exchanged(root / "20261121-100000-pool-size" / "trials" / "0003" / "record.json", "pipe")
    report = get(pages, "/runs/20261121-100000-pool-size/report")
    assert report.status == 404 and "record.json is a link, a pipe or a device" in report.text


def test_a_comparison_calls_its_runs_a_and_b_whatever_they_are_called(root: Path, pages: LivePages) -> None:
    written(root, "a")
    written(root, "a-2", synthetic.analysis(blocks=4))
    for names in (("a", "a-2"), ("a-2", "a")):
        page = get(pages, f"/compare?a={names[0]}&b={names[1]}")
        assert "B is compared with A, at 95 % confidence, corrected for multiple comparisons." in page.text
        assert re.search(r'<p class="answer long">[^<]*\bB\b[^<]*\bA\b', page.text)


def test_figures_that_nobody_can_compare_are_explained(root: Path, pages: LivePages) -> None:
    path = root / "20261120-100000-pool-size" / "analysis.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "margin": -1}))
    page = get(pages, "/compare?a=20261120-100000-pool-size&b=20261121-100000-pool-size")
    assert page.status == 409 and "cannot be compared (ValueError" in page.text


def test_a_run_whose_files_are_being_read_is_kept_in_mind(root: Path, pages: LivePages) -> None:
    first = pages.feed("20261120-100000-pool-size")
    assert first is not None and first.idle

    async def ask_for_many() -> None:
        async with first._polling:
            assert not first.idle
            for number in range(FEEDS_MAX + 4):
                (root / f"run-{number}").mkdir()
                assert pages.feed(f"run-{number}") is not None
            assert pages.feed("20261120-100000-pool-size") is first

    asyncio.run(ask_for_many())


TARGETS = ["/", "/runs/20261120-100000-pool-size/state", "/runs/x/trials/", "/metrics", "/compare", "/static/run.js"]
ODD = st.text(st.characters(max_codepoint=255), max_size=20) | st.sampled_from(["[", "http://[", "a=b; =;", "9" * 5000])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(TARGETS),
    st.text(st.sampled_from("/.%0aA9[]?=&;#\\:é\x00"), max_size=12) | st.sampled_from(["9" * 5000, "%00", "%ff"]),
    st.dictionaries(st.sampled_from(["host", "origin", "cookie", "accept", "authorization"]), ODD, max_size=2),
)
def test_no_request_is_an_error_of_the_server(
    pages: LivePages, target: str, more: str, headers: dict[str, str]
) -> None:
    assert get(pages, target + more.encode().decode("latin-1"), headers=headers).status < 500
    assert get(pages, f"/runs/20261120-100000-pool-size/trials/{more}").status in (200, 307, 308, 404)
