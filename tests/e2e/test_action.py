"""The GitHub Action as action.yml defines it runs on a repository made here, with a package made from this tree. The
server of Go gets the inputs that docs/ci.md shows, with shorter trials."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from fakes.guides import block_of
from fakes.hosted_job import GIT, ROOT, SERVERS, Job, Server, build_wheel, pull_request, repository
from fakes.needs import without

WORKFLOW = YAML(typ="safe").load(block_of("ci.md", "runs-on"))
(SHOWN,) = (step["with"] for step in WORKFLOW["jobs"]["powerband"]["steps"] if "with" in step)
# Users that pause get no looks at slots, which take two seconds.
SHORT = "--repeats 5 --users 8 --think 1ms --duration 500ms --warmup 200ms --budget 2m"


@pytest.fixture(scope="module")
def package(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"), engine)


@pytest.fixture(scope="module")
def temp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runner")


@pytest.fixture(scope="module")
def installed(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a runner in which uv has put the package, so that the step that installs it finds it there."""
    folder = tmp_path_factory.mktemp("runner")
    uv = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    python = folder / "powerband" / "bin" / "python"
    env = {**os.environ, "UV_CACHE_DIR": str(Path.home() / ".cache" / "uv")}
    for words in (
        ["venv", "--quiet", "--python", "python3", folder / "powerband"],
        ["pip", "install", "--quiet", "--python", python, package],
    ):
        subprocess.run([uv, *words], env=env, check=True, timeout=300)
    return folder


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.parametrize(
    ("language", "waits", "worse"),
    [("Python", (20, 25), True), ("Go", (20, 20), False)],
)
def test_a_regression_fails_the_job_and_nothing_else_does(
    language: str, waits: tuple[int, int], worse: bool, *, package: Path, installed: Path, tmp_path: Path
) -> None:
    server = SERVERS[language]
    if server.build and shutil.which("go") is None:
        without("no Go here")
    checkout = tmp_path / "checkout"
    base, head = repository(checkout, server, waits)
    if language == "Go":
        inputs = {**SHOWN, "options": f"{SHOWN['options']} {SHORT}"}
    else:
        inputs = {"command": server.command, "options": f"--profile quick {SHORT}"}
    job = Job(checkout, tmp_path, {**inputs, "package": str(package)}, pull_request(base, head), installed)
    assert job.run() == worse, job.log
    assert (job.output("verdict") == "worse") is worse, job.log  # five short blocks seldom show that two are equivalent
    assert job.output("exit-code") == str(int(worse))
    assert (Path(job.output("run")) / "report.html").is_file()
    mark, _, comment = (tmp_path / "comment").read_text().partition("\n")
    assert mark.startswith("<!-- powerband ") and comment == (tmp_path / "summary").read_text()
    assert "goodput" in comment
    assert "--method POST repos/someone/server/issues/7/comments" in (tmp_path / "asked").read_text()
    # A later run changes the comment, and a token that may only read, as that of a fork, fails no job.
    assert job.run(only="Comment on the pull request") == 0, job.log
    assert "--method PATCH repos/someone/server/issues/comments/42" in (tmp_path / "asked").read_text()
    (tmp_path / "read-only").touch()
    assert job.run(only="Comment on the pull request") == 0 and "::notice::no comment" in job.log


@pytest.mark.e2e
@pytest.mark.crowded
@pytest.mark.long
def test_a_server_that_does_not_start_fails_the_job_with_its_words(package: Path, temp: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    base, head = repository(checkout, Server("server.py", "raise SystemExit('no licence {wait}')", "", ""), (1, 2))
    # As of a shallow checkout: the tag of the base has to be fetched.
    subprocess.run(["git", "tag", "v1", base], cwd=checkout, check=True)
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", "--no-tags", f"file://{checkout}", shallow], check=True)
    inputs = {"command": SERVERS["Python"].command, "base": "v1", "head": head, "package": str(package)}
    job = Job(shallow, tmp_path, inputs, {"event_name": "push"}, temp)
    assert job.run() == 4, job.log
    assert "no licence" in job.log
    assert job.output("verdict") == ""
    assert not (tmp_path / "comment").exists()
    # A mistake in the options is refused before there is a run, and is reported in the summary too.
    shutil.rmtree(Path(job.output("run")).parent)
    assert job.run(only="Compare", options="--no-such-option") == 0, job.log
    assert (job.output("exit-code"), job.output("run")) == ("2", "")
    assert "could not compare (exit code 2)" in (tmp_path / "summary").read_text()


@pytest.mark.e2e
@pytest.mark.crowded
def test_a_push_that_creates_a_branch_is_compared_with_the_default_branch(tmp_path: Path) -> None:
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    base, head = repository(origin, SERVERS["Python"], (20, 25))
    for words in (("branch", "--force", "trunk", base), ("switch", "--quiet", "--create", "new", head)):
        subprocess.run(["git", *words], cwd=origin, check=True)
    subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", "--branch", "new", f"file://{origin}", clone], check=True
    )
    before = {"event_name": "push", "event.before": "0" * 40, "sha": head}
    named = {**before, "event.repository.default_branch": "trunk"}
    job = Job(clone, tmp_path, {"command": ""}, named, tmp_path / "temp")
    assert job.run(only="Check out and build both revisions") == 0, job.log
    (folder,) = (tmp_path / "temp").iterdir()
    assert [(folder / each / "server.py").read_text().count("sleep(20 ") for each in ("base", "head")] == [1, 0]
    (tmp_path / "lone").mkdir()
    lone = Job(clone, tmp_path / "lone", {"command": ""}, before, tmp_path / "lone" / "temp")
    assert lone.run(only="Check out and build both revisions") == 2 and "name one (the input base)" in lone.log


@pytest.mark.e2e
@pytest.mark.crowded
def test_a_pull_request_is_compared_with_what_it_is_merged_into(tmp_path: Path) -> None:
    """The base got slower after the event of a pull request that changes no server."""
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    before, trunk = repository(origin, SERVERS["Python"], (20, 25))

    def git(*words: str) -> str:
        return subprocess.check_output([*GIT, *words], cwd=origin, text=True).strip()

    git("switch", "--quiet", "--create", "change", before)
    (origin / "README").write_text("Says more.\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "says more")
    git("switch", "--quiet", "--create", "merged", trunk)
    git("merge", "--quiet", "--no-edit", "change")
    merged = git("rev-parse", "HEAD")
    subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", "--branch", "merged", f"file://{origin}", clone], check=True
    )
    job = Job(clone, tmp_path, {"command": ""}, pull_request(before, merged), tmp_path / "temp")
    assert job.run(only="Check out and build both revisions") == 0, job.log
    (folder,) = (tmp_path / "temp").iterdir()
    assert [(folder / each / "server.py").read_text().count("sleep(25 ") for each in ("base", "head")] == [1, 1]
    assert [(folder / each / "README").exists() for each in ("base", "head")] == [False, True]


@pytest.mark.e2e
@pytest.mark.parametrize(("verdict", "code"), [("worse", 0), ("", 1)])
def test_a_job_that_must_not_fail_on_worse_fails_where_nothing_was_compared(
    verdict: str, code: int, tmp_path: Path
) -> None:
    """A powerband whose installation is broken ends with 1, as one that finds the head worse."""
    program = tmp_path / "temp/powerband/bin/powerband"
    program.parent.mkdir(parents=True)
    program.write_text(f"""#!/bin/sh\n[ -z '{verdict}' ] || echo '{{"verdict": "{verdict}"}}'\nexit 1\n""")
    program.chmod(0o755)
    (tmp_path / "checkout").mkdir()
    inputs = {"command": "./server", "fail-on-worse": "false"}
    job = Job(tmp_path / "checkout", tmp_path, inputs, {"event_name": "push"}, tmp_path / "temp")
    assert job.run(only="Compare") == 0, job.log
    assert job.run(only="Judge") == code, job.log
