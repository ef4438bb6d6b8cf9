"""`powerband import` on the command line: what is written where, and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.plans import element, group, plan, sampler
from powerband.cli import invoke

GOOD = plan(group(sampler(path="/${__P(path,a)}")))
BAD = plan(element("CookieManager", "Cookies"), group(sampler()))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "good.jmx").write_text(GOOD)
    (tmp_path / "bad.jmx").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_goes_to_stdout_and_words_to_stderr(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["import", "good.jmx", "-J", "path=b", "--", "./server", "--port", "{port}"]) == 0
    said = capsys.readouterr()
    assert "get: /b" in said.out
    assert "command: [./server, " in said.out
    assert "good.jmx: 1 user, 1 step, " in said.err


def test_a_file_with_a_command_is_valid(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["import", "good.jmx", "-o", "good.yaml", "--", "./server", "--port", "{port}"]) == 0
    assert invoke(["check", "good.yaml"]) == 0
    assert capsys.readouterr().out.startswith("good: valid")


def test_a_file_without_one_says_what_is_missing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["import", "good.jmx", "-o", "good.yaml"]) == 0
    assert "fill in subject.command in good.yaml, then: powerband check good.yaml" in capsys.readouterr().err
    assert invoke(["check", "good.yaml"]) == 3
    assert "subject.command in good.yaml:" in capsys.readouterr().err


def test_nothing_is_written_where_anything_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["import", "bad.jmx", "-o", "bad.yaml"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Test Plan > Cookies (CookieManager)" in said.err
    assert "the load generator keeps no cookies" in said.err
    assert not (folder / "bad.yaml").exists()
    assert invoke(["import", "bad.jmx", "-o", "bad.yaml", "--partial", "Cookies"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.jmx"], "cannot read none.jmx"),
        (["good.jmx", "-J", "path"], "-J path: write NAME=VALUE"),
        (["good.jmx", "-o", "good.jmx"], "good.jmx is there already"),
        (["good.jmx", "-o", "none/good.yaml"], "cannot write none/good.yaml"),
        (["good.jmx", "--partial", "Requst"], "did you mean Request?"),
        (["good.jmx", "--", "./server", "{prot}"], "the experiment would not be valid"),
    ],
)
def test_mistakes(folder: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["import", *arguments]) == 2
    assert said in capsys.readouterr().err
