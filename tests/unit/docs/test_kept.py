"""The data that are kept of runs for the pages of docs/experiments. test_reference.py checks that a page shows its
data."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest
from scripts.answer import LEFT_OUT, analysis_of, answer_of, whole_answer
from scripts.keep import BYTES_MAX, DATA, Kept, NotKeptError, all_kept, block, claim_rows, commit_of, keep, short_row

from fakes.finished_run import new_run, run_to_its_end
from fakes.pages import ROOT
from powerband.files.experiment_file import load_experiment, profile_names
from powerband.store import RunDir

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HOST = {
    "wall_s": 1795568400.5,
    "hostname": "ours",
    "cpu": {"model": "Made-up CPU", "allowed": [0, 1]},
    "command": ["/somewhere/powerband", "run", "fake", "--runs", "/elsewhere"],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    made = new_run(tmp_path_factory.mktemp("runs"))
    made.host.write_text(json.dumps(HOST))
    run_to_its_end(made)
    return made


def test_a_run_is_kept_without_its_place_and_the_machine_s_name(run: RunDir, tmp_path: Path) -> None:
    folder = keep(run, COMMIT, tmp_path)
    kept = Kept.read(folder)
    assert folder.name == "fake-2026-11-25" and kept.command == "powerband run fake"
    assert kept.host["commit"] == COMMIT and "hostname" not in kept.host
    assert kept.analysis == json.loads(run.analysis.read_text())
    packed = (folder / "analysis.json.gz").read_bytes()
    keep(run, COMMIT, tmp_path)
    assert (folder / "analysis.json.gz").read_bytes() == packed, "the same run, the same bytes"


def test_a_block_says_what_the_data_say(run: RunDir, tmp_path: Path) -> None:
    kept = Kept.read(keep(run, COMMIT, tmp_path))
    text = block(kept)
    trials = len(kept.analysis["trials"])
    begun = "`powerband run fake` on 2026-11-25; Made-up CPU, 2 CPUs"
    assert text.startswith(f"{begun}; {trials} of {trials} trials valid. [Its data](data/fake-2026-11-25).")
    for row in kept.analysis["settings"]:
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{row['setting']['id']}` |")]
        shown = float(line.split(" | ")[1].removesuffix("/s").replace(",", ""))
        assert shown == pytest.approx(row["estimates"]["goodput_per_s"]["value"], rel=0.01)
        leads = row["setting"] == kept.analysis["answer"]["leader"]
        assert line.endswith(" leader |" if leads else f" {row['verdict']} |")


def test_a_short_row_has_the_data_and_the_valid_trials(run: RunDir, tmp_path: Path) -> None:
    kept = Kept.read(keep(run, COMMIT, tmp_path))
    trials = len(kept.analysis["trials"])
    assert short_row(kept) == ("[`fake`](data/fake-2026-11-25)", f"{trials} of {trials}")


def test_the_shown_answer_consists_of_whole_lines_of_the_terminal_s() -> None:
    kept = next(kept for kept in all_kept() if kept.analysis["name"] == "quickstart")
    analysis = analysis_of(kept)
    assert analysis.answer.setting is not None
    assert analysis.answer.setting.id == kept.analysis["answer"]["setting"]["id"]
    whole = whole_answer(analysis)
    shown = [line.removeprefix("    ") for line in answer_of(analysis, without="With ").splitlines()]
    assert shown[0] == whole[1] and LEFT_OUT in shown and not any(line.startswith("With ") for line in shown)
    rest = iter(whole)  # in their order
    assert [line for line in shown if line not in (LEFT_OUT, "") and line not in rest] == []


def test_each_part_of_the_numbered_answer_has_a_note() -> None:
    for name in ("reading-the-answer.md", "reading-the-answer.ko.md"):
        shown, _, notes = (ROOT / "docs" / name).read_text().partition("<!-- end of answer -->")
        parts = re.findall(r"^    ([ \d]\d)  \S", shown, re.M)
        assert len(parts) > 5 and [int(part) for part in parts] == [*range(1, len(parts) + 1)]
        assert [int(number) for number in re.findall(r"^(\d+)\. ", notes, re.M)] == [int(part) for part in parts]


def found(claim: dict[str, Any]) -> str:
    return claim_rows([{"says": "It is so.", "published": None, "verdict": "held", **claim}])[1][0][-1]


def part(comparison: str, right: float, value: float, low: float, high: float, **more: Any) -> dict[str, Any]:
    interval = {"value": value, "low": low, "high": high}
    told = {"comparison": comparison, "where": "", "verdict": "held", "right": right, "unit": "per_s"}
    return {**told, "scale": "ratio", "interval": interval, "blocks": 5, "sentence": "It was so.", **more}


SHARES = {"unit": "ratio", "scale": "difference"}


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (part("goodput[a=1] > 0.5 * goodput[a=2]", 50.0, 3.0, 2.0, 4.0), "1.50 times (1.00 to 2.00)"),
        (part("2 * goodput[a=1] > goodput[a=2]", 50.0, 3.0, 2.0, 4.0), "1.50 times (1.00 to 2.00)"),
        (part("goodput[a=1] > 100/s", 100.0, 3.0, 2.0, 4.0), "300/s (200 to 400)"),
        (part("threads_max < 40", 40.0, 0.6, 0.6, 0.6, unit="count"), "24 in each of 5 rounds"),
        (part("error_rate[a=1] > error_rate[a=2]", 0.5, 0.1, -0.02, 0.22, **SHARES), "10.0 points (−2.00 to 22.0)"),
        (part("goodput[a=1] > goodput[a=2] + goodput[a=3]", 50.0, 3.0, 2.0, 4.0), "It was so"),
        (part("goodput == 0", 0.0, 0.0, 0.0, 0.0, interval=None), "It was so"),
    ],
)
def test_of_a_claim_the_figures_are_shown_without_its_numbers(made: dict[str, Any], shown: str) -> None:
    assert found({"parts": [made]}) == shown


def test_of_several_comparisons_the_first_that_decides_is_named() -> None:
    first = part("goodput[a=1] > 100/s", 100.0, 3.0, 2.0, 4.0, where="b=1", verdict="undecided")
    second = part("goodput[a=1] > 50/s", 50.0, 3.0, 2.0, 4.0, where="b=2")
    assert found({"parts": [first, second]}) == "1 of 2; 150/s (100 to 200) at b=2"
    assert found({"parts": [second, second]}) == "all 2; 150/s (100 to 200)"
    third = part("goodput[a=1,c=1] < goodput[a=2,c=1]", 50.0, 3.0, 2.0, 4.0, where="b=1")
    assert found({"parts": [third, second]}) == "all 2; 3.00 times (2.00 to 4.00), a=1 against 2 at b=1"


def test_what_tells_of_this_machine_alone_or_measured_nothing_is_not_kept(run: RunDir, tmp_path: Path) -> None:
    copy = RunDir(tmp_path / "run")
    shutil.copytree(run.path, copy.path)
    copy.host.write_text(json.dumps({**HOST, "command": ["powerband", "run", f"{tmp_path}/mine.yaml"]}))
    with pytest.raises(NotKeptError, match="of this machine alone"):
        keep(copy, COMMIT, tmp_path / "data")
    text = copy.experiment.read_text()
    copy.experiment.write_text(text.replace("subject:\n", "subject:\n  folder: /another/checkout/subjects/x\n", 1))
    with pytest.raises(NotKeptError, match="keep it from the checkout"):
        keep(copy, COMMIT, tmp_path / "data")
    copy.experiment.write_text(text)
    shutil.rmtree(copy.trials)
    with pytest.raises(NotKeptError, match="no valid trial"):
        keep(copy, COMMIT, tmp_path / "data")


def test_a_run_is_kept_with_the_commit_that_it_was_made_with(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        return subprocess.check_output(("git", *who, *words), cwd=tmp_path, text=True).strip()

    git("init", "--quiet")
    made = []
    for message in ("one", "two"):
        git("commit", "--quiet", "--allow-empty", "-m", message)
        made.append(git("rev-parse", "HEAD"))
    run = RunDir(tmp_path)
    run.host.write_text(json.dumps({"commit": made[0][:12]}))
    assert commit_of(run, tmp_path) == made[0]
    for commit, said in ((f"{made[1][:12]}-dirty", "changed files"), (None, "no commit"), ("0" * 12, "no commit")):
        run.host.write_text(json.dumps({"commit": commit}))
        with pytest.raises(NotKeptError, match=f"it was made with {said}"):
            commit_of(run, tmp_path)


@pytest.mark.parametrize("kept", all_kept(), ids=lambda kept: kept.folder.name)
def test_what_is_kept_is_small_and_whole(kept: Kept) -> None:
    assert {path.name for path in kept.folder.iterdir()} == {"analysis.json.gz", "experiment.yaml", "host.json"}
    assert sum(path.stat().st_size for path in kept.folder.iterdir()) <= BYTES_MAX
    profile = f"-{kept.profile}" if kept.profile else ""
    assert kept.folder.name == f"{kept.analysis['name']}{profile}-{kept.date}"
    assert re.fullmatch("[0-9a-f]{40}", kept.host["commit"]) and "hostname" not in kept.host
    assert (kept.folder / "analysis.json.gz").read_bytes()[4:8] == bytes(4), "no time of packing"


EXPERIMENTS = ROOT / "docs" / "experiments"


@pytest.mark.parametrize(
    "kept", [kept for kept in all_kept() if "-published-" in kept.folder.name], ids=lambda kept: kept.folder.name
)
def test_a_run_at_the_authors_sizes_was_made_by_the_command_of_the_page(kept: Kept) -> None:
    said = re.search(
        r"`(powerband run NAME .*) measure\.repeats=1`, one start of each setting \(two of `([a-z-]+)`\)",
        (EXPERIMENTS / "README.md").read_text(),
    )
    assert said
    name = kept.analysis["name"]
    command = f"{said[1].replace('NAME', name)} measure.repeats={2 if name == said[2] else 1}"
    assert kept.command.replace(" --no-progress", "") == command


def test_each_experiment_with_the_author_s_sizes_was_run_at_them() -> None:
    sized = {file.stem for file in (ROOT / "experiments").glob("*.yaml") if "published" in profile_names(file)}
    ran = {kept.analysis["name"] for kept in all_kept() if kept.profile == "published"}
    assert ran == sized and len(sized) >= 20


def test_a_claim_of_a_kept_run_has_the_words_that_its_condition_has_now() -> None:
    kept = Kept.read(DATA / "spring-sync-async-io-2026-11-26")
    (told,) = [claim for claim in kept.analysis["claims"] if claim["id"] == "async-is-done-no-sooner"]
    assert "takes as long as sync" in told["says"] and "takes as long as sync" not in block(kept)
    assert "async takes nine tenths of what sync takes, or more" in block(kept)


@pytest.mark.parametrize("name", ["spring-executor", "vertx-instances"])
def test_a_page_says_which_of_its_runs_did_not_share_the_cpus_with_the_load_generator(name: str) -> None:
    page = (EXPERIMENTS / f"{name}.md").read_text()
    (here,) = re.findall(r"^\*\*Here\*\*.*share both CPUs.*$", page, re.M)
    apart = re.findall(r"`([a-z-]+)`: one each", here)
    shown = [Kept.read(DATA / folder) for folder in re.findall(r"\]\(data/([\w-]+)\)", page)]
    assert {kept.analysis["name"] for kept in shown} > set(apart)
    for kept in shown:
        shared = {trial["cpus"]["shared"] for trial in kept.analysis["trials"] if trial["cpus"]}
        assert shared == {kept.analysis["name"] not in apart}, kept.folder.name


def test_what_decides_nothing_is_told_as_seen() -> None:
    kept = Kept.read(DATA / "fixed-pool-hour-published-2026-11-29")
    assert {claim["verdict"] for claim in kept.analysis["claims"]} == {"undecided"}
    told = (EXPERIMENTS / "thread-vs-pool.md").read_text().partition("## The hour\n")[2]
    assert "inconclusive" in told and not re.search(r"\b(held|confirmed|refuted)\b", told, re.IGNORECASE)
    took = {
        row["setting"]["id"]: float(f"{row['estimates']['finish_s']['value']:.3g}")
        for row in kept.analysis["settings"]
        if "finish_s" in row["estimates"]
    }
    shown = (
        "pool=fixed:16,connection=close,wait=57600us",
        "pool=cached,connection=close,wait=57600us",
        "pool=fixed:16,connection=keep-alive,wait=0ms",
    )
    said = [float(seconds.replace(",", "")) for seconds in re.findall(r"([\d,.]+) s\b", told)]
    assert said == [took[each] for each in shown]


def test_which_server_died_at_the_author_s_size_is_told() -> None:
    trials = Kept.read(DATA / "akka-net-suspicions-published-2026-11-28").analysis["trials"]
    logging = [trial for trial in trials if trial["setting"]["levels"]["debug_log"]]
    died = [trial for trial in logging if "died" in {problem["code"] for problem in trial["problems"]}]
    told = f"with `debug_log=true` died in {len(died)} of {len(logging)} starts"
    assert died and told in (EXPERIMENTS / "akka-net.md").read_text()


@pytest.mark.parametrize(
    ("experiment", "claim", "told", "page"),
    [
        ("akka-net-reflection", "collections-take-little", "Sudden cliffs of CPU or GC are not tested", "akka-net"),
        ("vertx-spread", "twenty-worker-threads", "The main thread is not tested", "vertx-instances"),
    ],
)
def test_what_a_claim_leaves_out_of_what_was_published_is_told(
    experiment: str, claim: str, told: str, page: str
) -> None:
    of = load_experiment(ROOT / "experiments" / f"{experiment}.yaml")
    (published,) = [each.published for each in of.claims if each.id == claim]
    assert published is not None and "is not tested" in published
    assert told in (EXPERIMENTS / f"{page}.md").read_text()


def test_what_the_metric_and_the_debug_log_take_on_akka_net_is_of_the_data() -> None:
    kept = Kept.read(DATA / "akka-net-suspicions-2026-11-25")
    rows = [(row["setting"]["levels"], row["estimates"]["goodput_per_s"]["value"]) for row in kept.analysis["settings"]]
    baseline, whole = rows[0]
    changed = ({"metrics": "datagram"}, {"debug_log": True})
    left = [rate for change in changed for levels, rate in rows if levels == baseline | change]
    metric, log = (f"{100 * (1 - rate / whole):.0f}" for rate in left)
    assert f"suspicions take {log} to {metric} % of the messages" in (EXPERIMENTS / "akka-net.md").read_text()


@pytest.mark.parametrize(
    ("claim", "share", "words"),
    [
        ("datagrams-explain-the-plateau", 0.1, "A datagram for each count takes {} % of the messages ({} to {})"),
        ("debug-log-costs-half", 0.5, "a line of debug log {} % ({} to {})"),
    ],
)
def test_what_the_metric_and_the_debug_log_take_on_pekko_is_of_the_data(claim: str, share: float, words: str) -> None:
    """The last comparison of each claim is of the messages left with this share of those without."""
    claims = Kept.read(DATA / "reflection-suspicions-2026-11-25").analysis["claims"]
    (parts,) = [each["parts"] for each in claims if each["id"] == claim]
    taken = [f"{100 * (1 - share * parts[-1]['interval'][end]):.0f}" for end in ("value", "high", "low")]
    assert words.format(*taken) in (EXPERIMENTS / "infinite-reflection.md").read_text()


def test_what_the_metric_takes_by_dispatcher_is_of_the_data() -> None:
    rates = {
        (row["setting"]["levels"]["metrics"], row["setting"]["levels"]["dispatcher"]): row["estimates"]["goodput_per_s"]
        for row in Kept.read(DATA / "reflection-plateau-2026-11-27").analysis["settings"]
    }
    left = {each: rates["datagram", each]["value"] / rates["off", each]["value"] for _, each in rates}
    assert left.pop("pinned") == pytest.approx(1 / 3, abs=0.02)
    least, most = (f"{100 * (1 - share):.0f}" for share in (max(left.values()), min(left.values())))
    told = f"{least} to {most} % of the messages, with a dedicated thread for each actor (`pinned`) two thirds"
    assert f"the metric takes {told}" in (EXPERIMENTS / "infinite-reflection.md").read_text()


def test_what_a_balancer_takes_is_of_the_data() -> None:
    trials = Kept.read(DATA / "socketcluster-throughput-2026-11-26").analysis["trials"]
    found = [trial["metrics"] for trial in trials if trial["setting"]["id"] == "version=14"]
    ratios = [each["app_balancer_cpu_ratio"] / each["app_worker_cpu_ratio"] for each in found]
    times, low, high = (f"{ratio:.2f}" for ratio in (geometric_mean(ratios), min(ratios), max(ratios)))
    page, pages = ((EXPERIMENTS / name).read_text() for name in ("socketcluster-throughput.md", "README.md"))
    assert len(ratios) == 5 and f"takes the workers ({low} to {high} in five starts)" in page
    assert f"takes the balancer {times} times the CPU" in page and f"takes {times} times the CPU" in pages
