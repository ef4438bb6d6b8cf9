"""The command line's own business: exit codes, stdout against stderr, no traceback."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from powerband import __version__, cli
from powerband.base.errors import MeasurementError, SubjectError
from powerband.cli import asking, invoke


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["--version"]) == 0
    told = rf"powerband {re.escape(__version__)} \(commit ([0-9a-f]{{12}}|unknown), powerband-engine [0-9.]+\)\n"
    assert re.fullmatch(told, capsys.readouterr().out)


def test_a_shell_completes_commands_options_and_experiments() -> None:
    script = """
        eval "$(powerband completion bash)"
        for words in "powerband ru" "powerband run quickst" "powerband run --soa"; do
          COMP_WORDS=($words) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
          _powerband_completion powerband
          echo "${COMPREPLY[@]}"
        done
    """
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines() == ["run", "quickstart", "--soak"], done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["plna"], 2, "No such command 'plna'"),
        (["plan"], 2, "Missing argument 'FILE_OR_NAME'"),
        (["plan", "quickstart", "--sed", "1"], 2, "--seed"),
        (["plan", "quickstar"], 2, "powerband: there is no experiment quickstar; did you mean quickstart?"),
        (["tune", "--ready", "5s"], 2, "(Did you mean one of: '--ready-http', '--ready-log', '--ready-timeout'?)"),
        (["plan", "quickstart", "--profile", "smok"], 2, "has no profile smok; did you mean smoke?"),
        (["plan", "quickstart", "--set", "load"], 2, "--set load: write KEY=VALUE"),
        (["plan", "quickstart", "--set", "load.usr=1"], 3, "--set load.usr=1: unknown key; did you mean users?"),
        (["check", "missing.yaml"], 2, "there is no file missing.yaml"),
        (["check", ""], 2, "the name of the experiment is empty"),
        (["check", "/dev/null"], 2, "/dev/null is a pipe or a device; write the experiment into a file"),
        (["plan", "quickstart", "--set", "measure=null"], 3, "it has no value: write one, or leave the key out"),
    ],
)
def test_mistakes(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("error", "code"),
    [(SubjectError("it died"), 4), (MeasurementError("no disk"), 5), (KeyboardInterrupt(), 130)],
)
def test_errors_end_with_their_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setitem(cli.powerband.commands, "failing", failing)
    assert invoke(["failing"]) == code
    assert capsys.readouterr().err.strip() == f"powerband: {str(error) or 'interrupted'}"


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError("deep"), MemoryError(), AssertionError("\ud800")])
def test_a_defect_is_one_sentence_and_its_details_are_kept(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setitem(cli.powerband.commands, "failing", failing)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert invoke(["failing"]) == 70
    (file,) = tmp_path.iterdir()
    said = capsys.readouterr().err
    assert said.startswith(f"powerband: this is a defect of powerband ({type(error).__name__}: ")
    assert said.endswith(f"please report it with {file}, which holds the details\n") and said.count("\n") == 1
    assert "Traceback" in file.read_text() and file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device", "/tmp/x"), FileNotFoundError(2, "No usable temporary directory")]
)
def test_what_the_system_refuses_is_one_sentence(
    error: OSError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setitem(cli.powerband.commands, "failing", failing)
    assert invoke(["failing"]) == 5
    said = capsys.readouterr().err
    assert said.startswith("powerband: the system refuses: ") and said.count("\n") == 1
    assert error.strerror in said and (not error.filename or error.filename in said)


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".yaml", "a/" + "x" * 300])
def test_a_path_that_cannot_be_looked_at(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", name]) == 2
    assert "powerband: " in capsys.readouterr().err


def test_check_names_every_error_and_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("subject: reference\nlaod: {}\nload: {users: 1, duration: 5}\n")
    assert invoke(["check", str(file)]) == 3
    assert capsys.readouterr().err == (
        f"powerband: 2 errors\n  laod in {file}:2:1: unknown key; did you mean load?\n"
        f"  load.duration in {file}:3:28: 5 has no unit: write 5s, 5ms or another of ns, us, ms, s, m, h\n"
    )


def test_check_looks_at_every_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("subject: reference\nload: {users: 1}\nprofiles: {smoke: {load: {usrs: 1}}}\n")
    assert invoke(["check", str(file)]) == 3
    assert "profiles.smoke.load.usrs" in capsys.readouterr().err
    file.write_text("subject: reference\nload: {users: 1}\nprofiles: {smoke: {measure: {repeats: 2}}}\n")
    assert invoke(["check", str(file), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["profiles"] == {
        "default": {"settings": 1, "blocks": 5},
        "smoke": {"settings": 1, "blocks": 2},
    }
    file.write_text(file.read_text().replace("smoke", "default"))
    assert invoke(["check", str(file), "--format", "json"]) == 0
    sizes = json.loads(capsys.readouterr().out)["profiles"]
    assert {name: size["blocks"] for name, size in sizes.items()} == {"": 5, "default": 2}


def test_check_speaks_json_of_what_is_wrong_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("subject: reference\nlaod: {}\nload: {users: 1}\nprofiles: {smoke: {load: {usrs: 1}}}\n")
    assert invoke(["check", str(file), "--format", "json"]) == 3
    captured = capsys.readouterr()
    assert captured.err == ""
    said = json.loads(captured.out)
    assert (said["format"], said["valid"]) == (1, False)
    assert said["problems"] == [  # the first is wrong in every profile, and reported once
        {"file": str(file), "line": 2, "column": 1, "key": "laod", "message": "unknown key; did you mean load?"},
        {
            "file": str(file),
            "line": 4,
            "column": 27,
            "key": "profiles.smoke.load.usrs",
            "message": "unknown key; did you mean users?",
        },
    ]
    file.write_text("subject: [\n")
    assert invoke(["check", str(file), "--format", "json"]) == 3
    assert json.loads(capsys.readouterr().out)["problems"][0]["line"] == 2


def test_a_plan_draws_a_seed_and_repeats_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["plan", "quickstart", "--format", "json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert invoke(["plan", "quickstart", "--seed", str(first["seed"]), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_doctor_speaks_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = invoke(["doctor", "--format", "json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {"engine", "cores", "descriptors", "wake-up"} <= {finding["name"] for finding in findings}
    assert code == (5 if any(finding["status"] == "failure" for finding in findings) else 0)
    assert all(bool(finding["advice"]) == (finding["status"] != "ok") for finding in findings)


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], ("numpy", "scipy", "optuna", "pydantic", "ruamel.yaml", "rich")),
        (["list"], ("numpy", "scipy", "optuna", "pydantic", "rich")),
        (
            ["check", "quickstart"],
            ("numpy", "scipy", "optuna", "rich", "powerband.model.results", "powerband.wire.specs"),
        ),
    ],
)
def test_what_starts_nothing_loads_no_heavy_library_that_it_does_not_need(
    arguments: list[str], heavy: tuple[str, ...]
) -> None:
    code = (
        f"import sys; from powerband.cli import invoke; invoke({arguments});"
        f"print([m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = "from powerband.cli import main; main(['plan', 'quickstart', '--set', 'measure.repeats=3000'])"
    command = f'{sys.executable} -c "{code}" | head -1; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("quickstart: 5 settings x 3,000 rounds")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("output", "code", "said"),
    [("> /dev/full", 5, "No space left on device"), ("| true", 0, ""), (">&-", 0, ""), (">&- 2>&-", 0, "")],
)
def test_output_that_goes_nowhere(output: str, code: int, said: str) -> None:
    program = f"{sys.executable} -c \"from powerband.cli import main; main(['plan', 'quickstart'])\""
    redirected = f"{program} {output}"
    done = subprocess.run(
        ["bash", "-c", f"{redirected}; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (code, 1 if said else 0)
    assert said in done.stderr


def test_what_stands_in_an_option_is_shown_without_what_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", "\x1b]0;title\x07" + "x" * 5000]) == 2
    assert invoke(["plan", "quickstart", "--seed", "x" * 5000 + "\x1b[2J"]) == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said and "\x07" not in said and "x...x" in said and len(said) < 1500


def test_the_proposed_line_runs_nothing_of_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["server {n}", "1,2", "80", "/", "1m"])
    monkeypatch.setattr(asking, "_prompt", lambda *_: next(answers))
    monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, argv: ran.append(argv))
    asking.ask()
    line = ["tune", "-P", "n=1,2", "--url", "http://127.0.0.1:80/", "--budget", "1m", "--", "server", "{n}"]
    assert ran == [[sys.executable, "-P", "-m", "powerband", *line]]


@pytest.mark.parametrize(("ignored", "code"), [(False, -signal.SIGINT), (True, 0)])
def test_a_ctrl_c_while_the_command_is_imported_ends_it_without_a_traceback(ignored: bool, code: int) -> None:
    program = f"""
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "powerband.cli.running":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
signal.signal(signal.SIGINT, signal.SIG_IGN if {ignored} else signal.default_int_handler)
sys.argv = ["powerband", "--help"]
from powerband.__main__ import start
start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
