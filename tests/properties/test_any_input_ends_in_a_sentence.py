"""Any content of a file, an option or a run directory gets a sentence and a documented exit code within seconds. The
tests damage real files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fakes.live_runs import recorded
from fakes.mutated import EDITS, VALUES, Edit, ending, mutated
from powerband.cli import running

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted((ROOT / "experiments").glob("*.yaml"))
SUBJECTS = sorted((ROOT / "subjects").glob("*/subject.yaml"))
PLANS = [ROOT / "examples" / "shop.jmx", ROOT / "examples" / "jmeter" / "plan.jmx"]
STARTED = HealthCheck.function_scoped_fixture
SEVERAL = st.lists(EDITS, min_size=1, max_size=3)
QUICK = settings(max_examples=20, suppress_health_check=[STARTED])
VALID = (0, 2, 3)
JUDGED = (0, 1, 2, 3, 4, 5)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@QUICK
@given(st.sampled_from(EXPERIMENTS), SEVERAL, st.sampled_from(["check", "plan"]))
def test_experiment_files(folder: Path, file: Path, edits: list[Edit], command: str) -> None:
    made = folder / "made.yaml"
    made.write_bytes(mutated(file.read_text(), edits))
    ending([command, str(made)], VALID)


@QUICK
@given(st.sampled_from(SUBJECTS), SEVERAL)
def test_subject_files(folder: Path, file: Path, edits: list[Edit]) -> None:
    made = folder / "subject.yaml"
    made.write_bytes(mutated(file.read_text(), edits))
    (folder / "uses.yaml").write_text("subject: {use: ./}\nload: {users: 2, duration: 1s}\n")
    ending(["check", "uses.yaml"], VALID)


OPTIONS = ["-P", "--slo", "--users", "--rate", "--think", "--url", "--header", "--message", "--env", "--cwd", "--name",
           "--duration", "--warmup", "--repeats", "--budget", "--margin", "--confidence", "--ready-http", "--ready-log",
           "--counts", "--metrics-url", "--maximise", "--pace", "--join", "--body", "--expect",
           "--allow-host"]  # fmt: skip


@settings(QUICK, max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(OPTIONS), VALUES), min_size=1, max_size=3), VALUES)
@example([("--cwd", "\0")], "1")
def test_options_of_tune(folder: Path, options: list[tuple[str, str]], levels: str) -> None:
    given = [word for name, value in options for word in (name, f"n={value}" if name in ("-P", "--env") else value)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "measure", lambda *_: 0)
        ending(["tune", *given, "-P", f"threads={levels}", "--", "./s", "{port}", "{threads}"], VALID)


KEYS = ["load.users", "load.think", "load.scenario", "factors.threads", "factors", "subject.command", "subject.ready",
        "subject.env", "measure.warmup", "measure.metrics", "measure.invariants", "design", "design.seed", "objective",
        "objective.subject_to", "claims", "published", "host.pinning", "subject", "load", "name",
        "a.b.c", "", "."]  # fmt: skip


@settings(QUICK, max_examples=20)
@given(st.sampled_from(["quickstart", "capacity", "spring-executor", "socketcluster-throughput"]), st.data())
def test_overrides(folder: Path, name: str, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(KEYS) | st.text(max_size=5), VALUES), min_size=1, max_size=2))
    ending(["plan", name, *(word for key, value in pairs for word in ("--set", f"{key}={value}"))], VALID)


@QUICK
@given(st.sampled_from(PLANS), SEVERAL)
def test_plans_of_jmeter(folder: Path, file: Path, edits: list[Edit]) -> None:
    shutil.copy(ROOT / "examples" / "shop-customers.csv", folder)
    made = folder / "made.jmx"
    made.write_bytes(mutated(file.read_text(), edits))
    ending(["import", "made.jmx", "--", "./s", "{port}"], (0, 2))
    (folder / "runs.yaml").write_text("subject: {command: ./s {port}}\nload: {jmeter: made.jmx, duration: 1s}\n")
    ending(["check", "runs.yaml"], VALID)


FILES = ["experiment.yaml", "host.json", "plan.jsonl", "analysis.json", "trials/0001/record.json",
         "trials/0002/events.jsonl", "trials/0003/probe.jsonl", "trials/0004/record.json", "trials/0005/spec.json",
         "trials/0006/events.jsonl", "trials/0006/probe.jsonl"]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a recorded run, with its analysis."""
    found = recorded(tmp_path_factory.mktemp("runs"), "20261119-100000-quickstart").path
    ending(["report", str(found)], JUDGED)
    yield found


CHANGES = st.lists(st.tuples(st.sampled_from(FILES), SEVERAL), min_size=1, max_size=2)
COMMANDS = st.sampled_from(
    [
        ("report",),
        ("report", "--format", "json"),
        ("report", "--format", "md"),
        ("report", "--format", "junit"),
        ("export", "--what", "series"),
        ("export", "--what", "intervals"),
        ("compare", "BASE"),
    ]
)


@settings(QUICK, max_examples=5)
@given(CHANGES, COMMANDS)
def test_run_directories(
    folder: Path, run: Path, changes: list[tuple[str, list[Edit]]], command: tuple[str, ...]
) -> None:
    told_of(folder, run, changes, command)


@pytest.mark.long
@settings(QUICK, max_examples=40)
@given(CHANGES, COMMANDS)
def test_more_run_directories(
    folder: Path, run: Path, changes: list[tuple[str, list[Edit]]], command: tuple[str, ...]
) -> None:
    told_of(folder, run, changes, command)


def told_of(folder: Path, run: Path, changes: list[tuple[str, list[Edit]]], command: tuple[str, ...]) -> None:
    made = folder / "made"
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(run, made)
    for name, edits in changes:
        if (made / name).exists():
            (made / name).write_bytes(mutated((made / name).read_text(), edits))
    ending([str(run) if word == "BASE" else word for word in command] + [str(made)], JUDGED)
