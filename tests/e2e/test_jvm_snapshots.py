"""Memory snapshots of real JVMs: they show the type that leaks, none is taken within the measured window, and a subject
that refuses them is measured all the same.

Needs a JDK, as test_jvm_warmup.py does."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.needs import need_jdk
from fakes.smoke import run
from fakes.stand import CALM, MS, experiment, run_one, short_load
from powerband.analyze.trial.measure import measure
from powerband.model.experiment import Experiment, Measure, Ready, Subject
from powerband.model.load import Constant, Load
from powerband.model.results import TrialResult
from powerband.store import TrialDir, TrialRecord

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

KIB = 4
OF_CONNECTIONS = 20  # arrays that are held while there are users, and gone at the second snapshot


def leaky(classes: Path, *options: str) -> Subject:
    command = ("java", "-Xmx128m", "-XX:+UseSerialGC", *options, "-cp", str(classes), "LeakyServer", "{port}", str(KIB))
    return Subject(name="leaky", command=command, ready=Ready(timeout_ns=60_000 * MS))


def watched(**fields: object) -> Measure:
    return Measure.model_validate({**CALM, "slots": False, "snapshots": True, **fields})


def load(**fields: object) -> Load:
    return short_load(**{"users": 2, "duration_ns": 1_000 * MS, "think": Constant(ns=10 * MS), **fields})


def measured(case: Experiment, folder: Path) -> tuple[TrialRecord, TrialResult]:
    record = run_one(case, folder)
    assert (record.status, record.failure) == ("measured", None)
    return record, measure(TrialDir(folder / "0001"), record, case)


@pytest.mark.parametrize("warmup", [{"warmup_ns": 300 * MS}, {"warmup_min_ns": 300 * MS}], ids=["fixed", "auto"])
def test_a_leak_is_found_and_the_snapshots_are_outside_of_the_window(
    warmup: dict[str, object], classes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("powerband.processes.jvm_attach._SOCKET_WITHIN_S", 20.0)  # beside other tests it may need them
    # The warm-up has time for many requests beside the arrays of the connections, unless other programs use the CPU.
    case = experiment(leaky(classes), load(duration_ns=2_000 * MS), measure=watched(**warmup))
    record, result = measured(case, tmp_path)
    before, after = record.snapshots
    assert (before["when"], after["when"], before["failed"], after["failed"]) == ("before", "after", "", "")
    asked_for, told = before["at_ns"], before["at_ns"] + before["took_ns"]
    assert record.phases["go"] < asked_for < told < record.phases["measure"]
    assert record.phases["end"] <= after["at_ns"] < record.phases["stopped"]
    # The JVM's own counters were read between a snapshot and the window, on either side.
    read = [line["at_ns"] for line in TrialDir(tmp_path / "0001").read_probe() if line["type"] == "jvm"]
    assert any(told <= at <= record.phases["measure"] for at in read)
    assert any(record.phases["drain"] <= at <= after["at_ns"] for at in read)
    growth = result.heap_growth
    assert growth is not None
    (kept,) = [each for each in growth.types if each.type == "byte[]"]
    served = result.metrics["goodput_per_s"] * (record.phases["drain"] - record.phases["measure"]) / 1e9
    assert growth.types[0] == kept
    assert kept.instances_after - kept.instances_before > 0.7 * served - OF_CONNECTIONS
    assert kept.bytes_after - kept.bytes_before > 0.7 * served * KIB * 1024
    assert result.metrics["jvm_live_growth_bytes"] == growth.bytes_after - growth.bytes_before > 0
    assert "no_snapshot" not in {problem.code for problem in result.problems}


def test_a_load_of_which_nothing_may_be_missed_begins_after_the_first(classes: Path, tmp_path: Path) -> None:
    case = experiment(leaky(classes), load(requests_per_user=30, duration_ns=20_000 * MS), measure=watched())
    record, result = measured(case, tmp_path)
    before = record.snapshots[0]
    assert before["at_ns"] + before["took_ns"] < record.phases["go"]
    assert sum(engine["cohort"]["outcomes"]["ok"] for engine in record.engines) == 60
    assert result.heap_growth is not None
    assert result.heap_growth.bytes_after - result.heap_growth.bytes_before > 60 * KIB * 1024 * 0.8


def test_who_cannot_be_asked_is_measured_all_the_same(classes: Path, tmp_path: Path) -> None:
    closed = leaky(classes, "-XX:+DisableAttachMechanism")
    _, result = measured(experiment(closed, load(), measure=watched(warmup_ns=300 * MS)), tmp_path)
    (problem,) = [problem for problem in result.problems if problem.code == "no_snapshot"]
    assert "did not open its socket" in problem.message and not problem.fatal
    assert result.metrics["goodput_per_s"] > 0 and result.heap_growth is None


def test_a_shipped_subject_tells_in_its_analysis(tmp_path: Path) -> None:
    need_jdk()
    analysis = run(
        "thread-vs-pool", tmp_path,
        "--set", "factors.pool=[fixed:4]", "--set", "claims=[]", "--set", "measure.snapshots=true",
        "--set", "load.duration=500ms",
    )  # fmt: skip
    for trial in analysis["trials"]:
        growth = trial["heap_growth"]
        assert growth["jvms"] == 1 and growth["bytes_before"] > 100_000
        assert trial["metrics"]["jvm_live_bytes"] == growth["bytes_after"]
    (report,) = tmp_path.glob("*/report.html")
    (folder,) = tmp_path.glob("*/trials/0001/snapshots")
    assert sorted(path.name.partition("-")[0] for path in folder.iterdir()) == ["after", "before"]
    assert report.is_file()
