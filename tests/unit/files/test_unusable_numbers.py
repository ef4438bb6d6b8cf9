"""Numbers that nothing can be measured with, and texts that are no valid patterns, are refused with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from powerband.cli import invoke

FILE = """\
name: numbers
subject: {command: [./server, --port, "{port}", --threads, "{threads}"]}
factors: {threads: [1, 2]}
load: {users: 10, duration: 5s}
"""
DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "number", [".nan", ".inf", "-.inf", "1e999", DIGITS, f"-{DIGITS}", "0x" + "f" * 5000, "2" * 30]
)
@pytest.mark.parametrize(
    "where", ["factors: {threads: [1, X]}", "load: {users: X}", "design: {seed: X}", "claims: [X]"]
)
def test_a_file_with_such_a_number_is_refused(
    number: str, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = where.partition(":")[0]
    kept = [line for line in FILE.splitlines() if not line.startswith(key)]
    file = tmp_path / "numbers.yaml"
    file.write_text("\n".join([*kept, where.replace("X", number)]))
    assert invoke(["check", str(file)]) == 3
    said = capsys.readouterr().err
    assert f"numbers.yaml:{len(kept) + 1}:" in said and "this number" in said and len(said) < 1000


@pytest.mark.parametrize("levels", [".nan", "1,1e999", DIGITS, f"1..{DIGITS}", f"1..9 step {DIGITS}", f"0.{DIGITS}..1"])
def test_an_option_with_such_a_number_is_refused(levels: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["tune", "-P", f"threads={levels}", "--", "./server", "{port}", "{threads}"]) == 3
    assert "powerband: -P threads=" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["-P", "threads=1,2", "--", "./s\udcff"], ["-P", "threads=\udcff,b", "--", "./s"],
     ["-P", "threads=1,2", "--env", "A=\udcff", "--", "./s"], ["-P", "threads=1,2", "--body", "\udcff", "--", "./s"]],
)  # fmt: skip
def test_an_argument_that_is_no_utf_8_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["tune", *words, "{port}", "{threads}"]) == 3
    assert "this text is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("load.users", "1e999"),
        ("factors.threads", "[.nan]"),
        ("objective.subject_to", '"goodput > nan"'),
        ("objective.subject_to", '"threads < inf"'),
        ("objective.subject_to", f'"goodput > {"9" * 400}"'),
        ("subject.ready.log", '"a{99999999999999}"'),
        ("subject.last_words", f'"{"(" * 5000}{")" * 5000}"'),
    ],
)
def test_an_override_with_such_a_value_is_refused(
    key: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "numbers.yaml"
    file.write_text(FILE)
    assert invoke(["check", str(file), "--set", f"{key}={value}"]) == 3
    assert f"--set {key}=" in capsys.readouterr().err


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "large.yaml"
    file.write_text("# " + "x" * (1 << 22))
    assert invoke(["check", str(file)]) == 3
    assert "is larger than 4 MB" in capsys.readouterr().err


def test_many_mistakes_are_counted_and_the_first_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "many.yaml"
    file.write_text(FILE + "".join(f"wrong{number}: 1\n" for number in range(80)))
    assert invoke(["check", str(file)]) == 3
    said = capsys.readouterr().err
    assert "80 errors" in said and "wrong49" in said and "wrong50" not in said and "... and 30 more" in said


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 5000, "]" * 9000 + "'" + "[" * 9000, "- " * 3000 + "a"])
def test_what_is_nested_too_deeply_is_refused_at_once(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text(text)
    assert invoke(["check", str(file)]) == 3
    assert "deep.yaml is nested too deeply" in capsys.readouterr().err
