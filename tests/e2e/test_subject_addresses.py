"""Servers on the JVM listen only on the address that they are given, and their metrics pages only on 127.0.0.1. The
tests of the subject `socketcluster` check this of it too. Needs a JDK of 21 or later and Maven: skipped without them,
unless POWERBAND_NO_SKIP=1."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fakes.needs import need_jdk
from powerband.base.hosts import LOCAL
from powerband.files.experiment_file import load_subject
from powerband.model.plan import Setting
from powerband.model.subjects import ADDRESS
from powerband.processes.cpus import CpuSplit
from powerband.processes.engine_process import Pump
from powerband.processes.line_file import LineFile
from powerband.processes.ports import someone_listens
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import SubjectFiles, subject_up
from powerband.store import RunDir, TrialDir
from powerband.trials.opening import build_subject

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("no_process_left")]

GIVEN = "127.0.0.2"


@pytest.mark.parametrize("name", ["spring", "threads", "vertx"])
def test_a_server_listens_on_the_address_that_it_is_given(
    name: str, engine: Path, stop: StopRequest, tmp_path: Path
) -> None:
    need_jdk(maven=name != "threads")
    subject, trial = load_subject(name), TrialDir(tmp_path)
    given = build_subject(subject, RunDir(tmp_path), stop) | {ADDRESS: GIVEN}
    with LineFile(trial.probe) as lines, Pump(stop) as pump:
        files = SubjectFiles(trial.log, trial.engine_log, lines, trial.apply_log, trial.write_address)
        with subject_up(
            subject,
            Setting(()),
            engine=engine,
            cpus=CpuSplit(),
            files=files,
            pump=pump,
            on_launched=lambda _: None,
            given=given,
        ) as up:
            ports = [urlsplit(url or "").port or 0 for url in (up.rendered.url, up.rendered.metrics_url)]
            listens = [[someone_listens(host, port) for host in (GIVEN, LOCAL)] for port in ports]
    assert listens == [[True, False], [False, True]]
