"""The choice of a PostgreSQL, from programs planted in folders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from powerband.base.errors import SubjectError
from powerband.model.experiment import Service, Subject
from powerband.model.plan import Setting
from powerband.model.subjects import uses
from powerband.trials import postgresql
from powerband.trials.postgresql import USER, Cluster, find_binaries
from powerband.trials.services import Services

PROGRAMS = ("initdb", "postgres", "pg_isready", "psql", "createdb", "dropdb")


def planted(folder: Path, *programs: str) -> Path:
    folder.mkdir(parents=True)
    for name in programs:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def test_the_variable_comes_before_path_before_the_newest_installed(tmp_path: Path) -> None:
    own, on_path = planted(tmp_path / "own", *PROGRAMS), planted(tmp_path / "path", *PROGRAMS)
    newest = planted(tmp_path / "usual" / "15" / "bin", *PROGRAMS)
    planted(tmp_path / "usual" / "9" / "bin", *PROGRAMS)
    usual = (str(tmp_path / "usual"),)
    assert find_binaries({"POSTGRESQL_BIN": str(own), "PATH": str(on_path)}, usual) == own
    assert find_binaries({"PATH": str(on_path)}, usual) == on_path
    assert find_binaries({"PATH": str(tmp_path)}, usual) == newest


def test_a_client_alone_does_not_do_and_the_sentence_says_what_was_looked_at(tmp_path: Path) -> None:
    planted(tmp_path / "path", "createdb", "dropdb", "initdb")
    with pytest.raises(SubjectError, match=r"initdb, postgres.*were not found.*POSTGRESQL_BIN, PATH.*install it"):
        find_binaries({"PATH": str(tmp_path / "path")}, (str(tmp_path / "nowhere"),))


def test_root_needs_somebody_to_run_it_as(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(postgresql.os, "geteuid", lambda: 0)
    monkeypatch.setattr(postgresql.pwd, "getpwnam", nobody)
    with pytest.raises(SubjectError, match="refuses to run as root"):
        postgresql._account()


def test_ctrl_c_in_the_terminal_does_not_reach_its_programs(tmp_path: Path) -> None:
    """They would fail, and with them the run, which is to end in its own way."""
    for name in ("createdb", "pg_isready"):
        program = planted(tmp_path / name, name) / name
        program.write_text(f"#!/bin/sh\ncut -d' ' -f6 /proc/$$/stat > {tmp_path}/session-of-{name}\n")
    postgresql._run(tmp_path / "createdb", ["createdb"], postgresql._Account())
    server = subprocess.Popen(["true"])
    postgresql._wait_until_it_serves(tmp_path / "pg_isready", 1, server, tmp_path / "log", postgresql._Account())
    server.wait()
    sessions = [int(file.read_text()) for file in tmp_path.glob("session-of-*")]
    assert len(sessions) == 2 and os.getsid(0) not in sessions


def test_statements_that_fail_do_not_fill_its_log(tmp_path: Path) -> None:
    program = planted(tmp_path / "bin", "psql") / "psql"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/sql\n")
    Cluster(tmp_path / "bin", 1, 1, postgresql._Account(), "p", tmp_path / "file", "s").add_subject_role()
    assert f"ALTER ROLE {USER} SET log_min_messages = panic;" in (tmp_path / "sql").read_text()


def test_only_settings_that_say_so_use_it() -> None:
    service = Service(when={"database": "postgresql"})
    subject = Subject(name="s", command=("s", "{port}", "{database}"), services={"postgresql": service})
    h2, other = Setting((("database", "h2"),)), Setting((("database", "postgresql"),))
    assert not uses(subject, "postgresql", h2) and uses(subject, "postgresql", other)
    assert uses(subject.model_copy(update={"services": {"postgresql": Service()}}), "postgresql", h2)
    assert not uses(subject, "link", other)
    unstarted = Services(subject, {"engine": "e", "postgresql_port": ""})
    assert unstarted.given(h2) == {"engine": "e", "postgresql_port": ""} and unstarted.watched(h2) == {}
