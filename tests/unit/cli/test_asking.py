"""What `powerband tune` asks, and the line that it proposes."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pytest

from powerband.base.errors import EXIT_OK
from powerband.cli import asking
from powerband.processes import cgroups

Proposes = Callable[[Sequence[str]], list[str]]


@pytest.fixture
def proposed(monkeypatch: pytest.MonkeyPatch) -> Proposes:
    """The proposed line for these answers; an empty one is the default. Nothing is run."""

    def propose(answers: Sequence[str]) -> list[str]:
        left = iter(answers)
        lines: list[list[str]] = []
        monkeypatch.setattr(asking, "_prompt", lambda _, default="": next(left) or default)
        monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
        monkeypatch.setattr(os, "execv", lambda _, argv: lines.append(argv[4:]))
        assert asking.ask() == EXIT_OK and next(left, None) is None
        return lines[0]

    return propose


def test_a_spring_boot_jar_without_tomcat_is_asked_for_what_varies_and_gets_its_port(
    tmp_path: Path, proposed: Proposes, capsys: pytest.CaptureFixture[str]
) -> None:
    jar = tmp_path / "shop.jar"
    with zipfile.ZipFile(jar, "w") as made:
        made.writestr("BOOT-INF/lib/jetty-server-12.0.1.jar", "")
    again = f"java -jar {jar} --server.jetty.threads.max={{n}}"
    line = proposed([f"java -jar {jar}", again, "8,16", "/", "1m"])
    assert line == ["tune", "-P", "n=8,16", "--budget", "1m", "--", *again.split(), "--server.port={port}"]
    said = capsys.readouterr().err
    assert "no pool of Tomcat's threads serves" in said and "Write it again with a name in braces" in said


@pytest.mark.parametrize("command", ["uvicorn app:app --reload", "uvicorn app:app --reload --workers {workers}"])
def test_reload_is_left_out_and_that_is_said(
    command: str, proposed: Proposes, capsys: pytest.CaptureFixture[str]
) -> None:
    is_known = "{" not in command
    line = proposed([command, "1,2", *([] if is_known else ["8080"]), "/", "1m"])
    assert "--reload" not in line and line[line.index("--") + 1 :][:2] == ["uvicorn", "app:app"]
    assert "--reload is left out" in capsys.readouterr().err


@pytest.mark.parametrize(("quota", "levels"), [(None, "1..16"), (1.5, "1..4"), (0.2, "1..2"), (20.0, "1..16")])
def test_levels_go_up_to_twice_the_cpus_of_the_quota(
    quota: float | None, levels: str, proposed: Proposes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cgroups, "quota_of", lambda: quota)
    line = proposed(["uvicorn app:app", "", "/", "1m"])
    assert line[:3] == ["tune", "-P", f"workers={levels}"]
