"""Everything that `powerband list` shows runs from an installed wheel, in a new venv and a new HOME: it is built in the
cache folder of that HOME, and nothing is written beside the package."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.guides import typed, words_of
from fakes.needs import need_dotnet, need_jdk, need_node, without
from fakes.smoke import CALM, UNLOOKED
from powerband.store import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.long, pytest.mark.usefixtures("no_process_left")]

ROOT = Path(__file__).parents[2]
HOME = Path.home()  # of the user who runs the tests: it has what the machine needs to reach its registries
# The shortest experiment of each subject, with one level of its factor.
SUBJECTS: dict[str, tuple[str, Callable[[], object], str]] = {
    "quickstart": ("reference", lambda: None, "threads=[16]"),
    "cached-threads-idle": ("threads", need_jdk, "pool=[cached]"),
    "vertx-spread": ("vertx", lambda: need_jdk(maven=True), "instances=[10]"),
    "spring-accept-count": ("spring", lambda: need_jdk(maven=True), "accept_count=[100]"),
    "infinite-reflection": ("pekko", lambda: need_jdk(maven=True), "dispatcher=[fork-join]"),
    "socketcluster-concurrency": ("socketcluster", need_node, "version=[20]"),
    "akka-net-throughput": ("akka-net", need_dotnet, "throughput=[100]"),
}
# Maven builds these as it does `vertx`.
ALIKE = {"spring-accept-count", "infinite-reflection"}


class Stranger:
    """A user with an empty HOME, and a venv with the wheel."""

    def __init__(self, folder: Path, uv: str) -> None:
        self.uv = uv
        (self.wheel,) = folder.glob("*.whl")
        self.home = folder / "home"
        self.home.mkdir()
        self.bin = folder / "venv" / "bin"
        (self.package,) = (folder / "venv" / "lib").glob("python*/site-packages/powerband")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run_by(str(self.bin / "powerband"), *arguments)

    def run_by(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command; `more`: added to its environment."""
        kept = ("LANG", "POWERBAND_TEST_MARK", "DOTNET_ROOT", "RestoreSources", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS",
                "JAVA_TOOL_OPTIONS")  # fmt: skip
        env = {name: os.environ[name] for name in kept if name in os.environ}
        env |= {"HOME": str(self.home), "PATH": f"{self.bin}:{os.environ['PATH']}"}
        env |= {"PYTHONPYCACHEPREFIX": str(self.home / "byte-code"), "NPM_CONFIG_USERCONFIG": str(HOME / ".npmrc")}
        # What Maven has fetched before, since it is large.
        env |= {"MAVEN_OPTS": f"-Dmaven.repo.local={HOME / '.m2' / 'repository'}", **more}
        return subprocess.run(command, env=env, cwd=self.home, capture_output=True, text=True, check=False, timeout=500)

    def files(self) -> set[Path]:
        return {path for path in self.package.parent.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def stranger(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    uv = shutil.which("uv") or ROOT / ".tools/bin/uv"
    if not Path(uv).is_file():
        without("no uv here: `make setup` brings it")
    folder = tmp_path_factory.mktemp("stranger")
    # The wheel contains the engine that is tested here, so no compiler is needed.
    env = {**os.environ, "POWERBAND_BUILT_ENGINE": str(engine), "UV_CACHE_DIR": str(HOME / ".cache" / "uv")}
    for command in (
        ["build", "--quiet", "--wheel", "--out-dir", folder, ROOT],
        ["venv", "--quiet", folder / "venv"],
        ["pip", "install", "--quiet", "--python", folder / "venv/bin/python", "WHEEL"],
    ):
        words = [next(folder.glob("*.whl")) if word == "WHEEL" else word for word in command]
        subprocess.run([uv, *words], env=env, check=True, timeout=300)
    return Stranger(folder, str(uv))


def test_the_manual_page_is_where_the_docs_say(stranger: Stranger) -> None:
    (named,) = re.findall(r"`man -l \.venv/(\S+)`", (ROOT / "docs" / "install.md").read_text())
    assert (stranger.bin.parent / named).is_file()


@pytest.mark.parametrize("start", ["python3 -m venv", "uv tool", "pipx"])
def test_each_way_to_install_brings_the_command(start: str, stranger: Stranger, tmp_path: Path) -> None:
    """The commands of docs/install.md, with a pipx that uv brings."""
    line = " ".join(words_of("install.md", start)).replace("WHEEL", str(stranger.wheel))
    script = f'pipx() {{ uv tool run pipx "$@"; }}; cd {tmp_path}; {line}'
    cached = {
        "UV_CACHE_DIR": str(HOME / ".cache" / "uv"),
        "PIP_CACHE_DIR": str(HOME / ".cache" / "pip"),
        "PIP_NO_COMPILE": "1",
    }
    path = f"{Path(stranger.uv).parent}:{os.environ['PATH']}"
    done = stranger.run_by("bash", "-ec", script, HOME=str(tmp_path), PATH=path, **cached)
    assert done.returncode == 0, done.stderr
    (command,) = [*tmp_path.glob(".venv/bin/powerband"), *tmp_path.glob(".local/bin/powerband")]
    assert stranger.run_by(str(command), "--version").stdout.startswith("powerband ")


def test_all_that_is_listed_is_valid(stranger: Stranger) -> None:
    listed = json.loads(stranger.run("list", "--format", "json").stdout)
    assert {name for name, *_ in SUBJECTS.values()} == {each["name"] for each in listed["subjects"]}
    program = "import sys; from powerband.cli import invoke; sys.exit(max(invoke(['check', n]) for n in sys.argv[1:]))"
    done = stranger.run_by("python", "-c", program, *(each["name"] for each in listed["experiments"]))
    assert done.returncode == 0, done.stderr


def test_one_command_answers_without_an_installation(stranger: Stranger) -> None:
    """README.md's, shorter; `uvx` is `uv tool run`."""
    uvx, *words = shlex.split(typed("../README.md", "uvx "))
    given = [str(stranger.wheel) if word == "WHEEL" else word for word in words]
    assert uvx == "uvx" and given != words
    short = ("--profile", "smoke", "--no-progress", *UNLOOKED, *CALM, "--runs", "elsewhere")
    shared = {"UV_CACHE_DIR": str(HOME / ".cache" / "uv"), "UV_PYTHON": sys.executable}
    done = stranger.run_by(stranger.uv, "tool", "run", *given, *short, **shared)
    assert done.returncode in (0, 5), done.stderr
    assert list((stranger.home / "elsewhere").glob("*-quickstart/report.html"))


def test_the_sources_of_each_subject_are_in_the_package(stranger: Stranger) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "subjects"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    packaged = {
        str(path.relative_to(stranger.package / "data")) for path in stranger.files() if "subjects" in path.parts
    }
    assert packaged == set(listed.stdout.splitlines())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.table) if name in ALIKE else name for name in SUBJECTS]
)
def test_an_experiment_of_each_subject_runs_and_nothing_is_written_beside_the_package(
    name: str, stranger: Stranger
) -> None:
    subject, need, level = SUBJECTS[name]
    need()
    before = stranger.files()
    once = ("--set", "measure.repeats=1", "--set", "measure.retries=0", *CALM)
    short = ("--set", f"factors.{level}", "--set", "claims=[]", *once, *UNLOOKED)
    done = stranger.run("run", name, "--profile", "smoke", "--no-progress", "--seed", "1", *short)
    assert done.returncode in (0, 1, 5), done.stderr  # a busy machine may leave no valid trial
    (run,) = (stranger.home / "runs").glob(f"*-{name}")
    assert {record.status for record in RunDir.open(run).records()} == {"measured"}, done.stderr
    assert (run / "report.html").is_file()
    assert stranger.files() == before
    built = stranger.home / ".cache" / "powerband" / "subjects"
    assert subject == "reference" or list(built.glob(f"{subject}-*"))
