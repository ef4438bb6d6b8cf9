"""Self-driven programs with the real probe: measured by a metrics page or by StatsD, and every way in which they can
fail."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.stand import CALM, FAKES, MS, Watcher, always_steady, never_steady, run_one
from powerband.analyze.trial.measure import measure
from powerband.cli import invoke
from powerband.loads.counted import driver
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Experiment, Measure, Ready, Subject, SubjectStop
from powerband.model.load import Load
from powerband.processes.failures import Code
from powerband.processes.subject_process import COUNTER_EVERY_NS
from powerband.store import TrialDir

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

BOUNCE = Path(__file__).parents[2] / "examples" / "statsd-app" / "bounce.py"
PAGE = "http://127.0.0.1:{metrics_port}/metrics"


def counting(how: str, *, series: str = "fake_things_total", **fields: Any) -> Subject:
    command = (sys.executable, str(FAKES / "subject.py"), "{metrics_port}", how)
    said = {"metrics_url": PAGE, "counts": series, "last_words": "^final: "}
    return Subject.model_validate({"name": "counting", "command": command, **said, **fields})


def experiment(subject: Subject, **fields: Any) -> Experiment:
    measured = Measure(warmup_min_ns=200 * MS, warmup_max_ns=2_000 * MS, **CALM)
    return Experiment(
        **{
            "name": "test",
            "subject": subject,
            "load": Load(users=1, duration_ns=1_000 * MS),
            "measure": measured,
            **fields,
        }
    )


def failure_of(case: Experiment, folder: Path, **options: Any) -> tuple[str, str]:
    record = run_one(case, folder, **options)
    assert record.status == "failed" and record.failure is not None
    return record.failure.code, record.failure.message


def test_a_counter_on_a_page_is_measured(tmp_path: Path) -> None:
    watcher = Watcher()
    steady_soon = Measure(warmup_min_ns=200 * MS, warmup_max_ns=20_000 * MS, **CALM)
    case = experiment(counting("counts:1000"), measure=steady_soon)
    record = run_one(case, tmp_path, watcher=watcher)
    assert (record.status, record.failure) == ("measured", None)
    assert watcher.phases == ["launch", "ready", "warmup", "measure", "drain", "stop"]
    assert watcher.intervals and all(mean is None for _, mean, _ in watcher.intervals)
    assert record.warmup_ended_by == "steady"
    assert record.cpus["subject"] == record.cpus["engine"] == record.cpus["probe"] == []
    assert record.last_words["done"] > 1000 and record.last_words["lost"] == 0
    (summary,) = record.engines
    window_s = (summary["measure_end_ns"] - summary["measure_start_ns"]) / 1e9
    assert 1 - COUNTER_EVERY_NS / 2e9 <= window_s <= 3
    directory = TrialDir(tmp_path / "0001")
    assert directory.read_record() == record
    result = measure(directory, record, case)
    # The program counts by the clock, so the rate is known, apart from the time of reading a page.
    assert result.metrics["goodput_per_s"] == pytest.approx(1000, rel=0.1)
    assert result.metrics["subject_cpu_cores"] >= 0
    assert "error_rate" not in result.metrics
    assert {event["type"] for event in directory.read_events()} == {"interval", "summary"}


@pytest.mark.parametrize(
    ("how", "name"),
    [("counts-busy:1000", BottleneckName.ONE_THREAD), ("counts-turns:1000", BottleneckName.WAKE_UPS)],
)
def test_what_holds_a_program_back_is_named(tmp_path: Path, how: str, name: BottleneckName) -> None:
    case = experiment(counting(how), load=Load(users=1, duration_ns=3_500 * MS))  # threads are reported once a second
    record = run_one(case, tmp_path)
    assert (record.status, record.failure) == ("measured", None)
    bottleneck = measure(TrialDir(tmp_path / "0001"), record, case).bottleneck
    assert bottleneck is not None and bottleneck.name == name, bottleneck


@pytest.mark.crowded
def test_a_fixed_warm_up_and_readiness_by_the_log(tmp_path: Path) -> None:
    case = experiment(
        counting("counts:1000", ready=Ready(http=PAGE, timeout_ns=20_000 * MS)),
        measure=Measure(warmup_ns=300 * MS, **CALM),
    )
    record = run_one(case, tmp_path)
    assert (record.status, record.warmup_ended_by) == ("measured", "fixed")
    assert record.phases["measure"] - record.phases["go"] >= 300 * MS


@pytest.mark.crowded
def test_a_counter_that_goes_back_fails_the_trial(tmp_path: Path) -> None:
    code, message = failure_of(
        experiment(counting("counts-back:1000,6"), load=Load(users=1, duration_ns=8_000 * MS)), tmp_path
    )
    assert code == Code.COUNTER_WENT_BACK
    assert "fake_things_total went back from" in message


@pytest.mark.crowded
def test_a_counter_that_stands_still_fails_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "GROWTH_WITHIN_NS", 2_000 * MS)
    still = experiment(counting("counts:0"), load=Load(users=1, duration_ns=1_000 * MS, timeout_ns=2_000 * MS))
    code, message = failure_of(still, tmp_path, steady=never_steady)
    assert code == Code.NO_PROGRESS
    assert "did not grow within the warm-up" in message
    later = experiment(
        counting("counts-still:1000,3"),
        measure=Measure(warmup_ns=4_000 * MS),
        load=Load(users=1, duration_ns=500 * MS),
    )
    code, message = failure_of(later, tmp_path / "later", steady=always_steady)
    assert code == Code.WORK_ENDED
    assert "before the end of the measured window" in message


@pytest.mark.crowded
def test_a_counter_that_is_not_there_names_what_is(tmp_path: Path) -> None:
    ready = Ready(timeout_ns=4_000 * MS)
    code, message = failure_of(experiment(counting("counts-nothing", ready=ready)), tmp_path)
    assert code == Code.NO_COUNTER
    assert "never reported its counter fake_things_total" in message
    assert "did you mean something_else_total?" in message
    code, message = failure_of(experiment(counting("log-ready", ready=ready)), tmp_path / "no-page")
    assert code == Code.NO_COUNTER
    assert "no Prometheus page" in message


@pytest.mark.crowded
def test_one_that_dies_is_said_with_its_last_words(tmp_path: Path) -> None:
    assert failure_of(experiment(counting("exit:3")), tmp_path)[0] == Code.DIED_BEFORE_READY


@pytest.mark.crowded
def test_an_invariant_that_is_broken_makes_the_trial_invalid(tmp_path: Path) -> None:
    wanted = {"metrics": {"app_lost": "final(lost)"}, "invariants": ["app_lost == 0"]}
    measured = Measure.model_validate({"warmup": "200ms", **CALM, **wanted})
    for how, valid in (("counts:1000", True), ("counts-lossy:1000", False)):
        case = experiment(counting(how), measure=measured)
        record = run_one(case, tmp_path / how.partition(":")[0])
        assert record.status == "measured"
        result = measure(TrialDir(tmp_path / how.partition(":")[0] / "0001"), record, case)
        assert ("invariant" not in {problem.code for problem in result.problems}) is valid


def bounce(*arguments: str, **fields: Any) -> Subject:
    command = (sys.executable, str(BOUNCE), "--balls", "3", "--sleep", "1ms", *arguments)
    counts = {"series": "bounce_messages_total", "noun": "message"}
    return Subject.model_validate(
        {
            "name": "bounce",
            "command": command,
            "counts": counts,
            "last_words": "^final: ",
            "stop": SubjectStop(),
            **fields,
        }
    )


@pytest.mark.crowded
@pytest.mark.parametrize("target", ["127.0.0.1:{statsd_port}", "{statsd_socket}"])
def test_the_sample_is_measured_by_what_it_sends(tmp_path: Path, target: str) -> None:
    case = experiment(
        bounce("--statsd", target),
        measure=Measure.model_validate(
            {
                "warmup": "300ms",
                **CALM,
                "metrics": {"app_balls": "max(bounce_balls)", "app_lost": "final(balls - balls_seen)"},
                "invariants": ["app_lost == 0"],
            }
        ),
    )
    record = run_one(case, tmp_path)
    assert (record.status, record.failure) == ("measured", None)
    result = measure(TrialDir(tmp_path / "0001"), record, case)
    assert result.metrics["app_balls"] == 3
    assert result.metrics["app_lost"] == 0
    # The sink received what the program says it did, except for the last packet.
    sent = [event for event in TrialDir(tmp_path / "0001").read_probe() if event["type"] == "statsd"]
    assert sent[-1]["malformed"] == sent[-1]["dropped"] == 0
    assert sent[-1]["values"]["bounce_messages_total"] <= record.last_words["messages"]
    assert 0 < result.metrics["goodput_per_s"] < 1e6


def answer_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = invoke([*arguments])
    captured = capsys.readouterr()
    assert code in (0, 5), captured.err
    return dict(json.loads(captured.out))


@pytest.mark.crowded
def test_tune_measures_the_sample_by_its_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--counts", "bounce_messages_total", "--duration", "1s", "--warmup", "300ms", "--repeats", "1"]
    run = ["--order", "blocks", "--runs", str(tmp_path), "--no-progress", "--format", "json"]
    command = [sys.executable, str(BOUNCE), "--pairs", "{pairs}", "--sleep", "20ms", "--page", "{metrics_port}"]
    answer = answer_of(capsys, "tune", "-P", "pairs=1,2", *options, *run, "--", *command)
    assert answer["noun"] == "operation"
    assert answer["constraints"] == []
    assert {trial["status"] for trial in answer["trials"]} == {"measured"}


FILE = """
name: bounce
subject:
  command: {python} {bounce} --pairs {{pairs}} --balls 1 --sleep {{sleep}} --page {{metrics_port}}
  metrics_url: http://127.0.0.1:{{metrics_port}}/
  counts: {{series: bounce_messages_total, noun: message}}
  last_words: "^final: "
factors: {{pairs: [2, 1], sleep: [20ms, 100ms]}}
load: {{duration: 1s}}
measure:
  warmup: 400ms
  repeats: 2
  foreign_cpu_max: 100%
  steal_max: 100%
  bars: 250ms
  metrics: {{app_lost: "final(balls - balls_seen)"}}
  invariants: [app_lost == 0]
design: {{vary: one-at-a-time}}
claims:
  - {{id: pairs-pay, says: "two pairs throw more than one", holds: "goodput[pairs=2] > 1.3 * goodput[pairs=1]"}}
"""


@pytest.mark.crowded
def test_a_file_is_run_reported_and_resumed_and_each_change_has_its_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two pairs throw twice as many balls as one, and a ball that is held five times as long moves a fifth as often."""
    file = tmp_path / "bounce.yaml"
    file.write_text(FILE.format(python=sys.executable, bounce=BOUNCE))
    answer = answer_of(capsys, "run", str(file), "--runs", str(tmp_path), "--no-progress", "--format", "json")
    trials = len(answer["trials"])  # more than six if the machine spoilt one
    assert trials >= 6 and {trial["status"] for trial in answer["trials"]} == {"measured"}
    assert answer["answer"]["leader"]["id"] == "pairs=2,sleep=20ms"
    assert "messages" in answer["answer"]["sentences"][0].lower()
    # The width of the intervals depends on the machine. A machine that stands still for a part of a trial lowers its
    # rate: the best trials have the ratios of the times for which balls are held, and a change lies among its trials'.
    slow, alone = answer["changes"]
    assert (slow["factor"], slow["level"], alone["factor"], alone["level"]) == ("sleep", "100ms", "pairs", 1)
    assert {slow["verdict"], alone["verdict"]} <= {"worse", "inconclusive"}
    rates: dict[str, list[float]] = {}
    for trial in answer["trials"]:
        rates.setdefault(trial["setting"]["id"], []).append(trial["metrics"]["goodput_per_s"])
    before = rates["pairs=2,sleep=20ms"]
    for change, after, expected in (
        (slow, rates["pairs=2,sleep=100ms"], 0.2),
        (alone, rates["pairs=1,sleep=20ms"], 0.5),
    ):
        assert max(after) / max(before) == pytest.approx(expected, rel=0.3)
        least, most = min(after) / max(before), max(after) / min(before)
        assert 0.99 * least <= change["ratio"]["value"] <= 1.01 * most
    (claim,) = answer["claims"]
    assert claim["verdict"] in ("held", "undecided")
    folder = Path(answer["run"])
    page = (folder / "report.html").read_text()
    for part in ("Context switches per message", "What each change costs", "Rate over time", '<svg class="bars"'):
        assert part in page, part
    assert "Response times" not in page and "Rules of thumb" not in page
    assert answer_of(capsys, "report", str(folder), "--format", "json")["answer"] == answer["answer"]
    (folder / "trials" / f"{trials:04d}" / "record.json").unlink()
    resumed = answer_of(capsys, "resume", str(folder), "--no-progress", "--format", "json")
    assert len(resumed["trials"]) >= trials and resumed["changes"][0]["level"] == "100ms"
