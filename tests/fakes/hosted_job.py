"""GitHub's part of a job: runs the steps of action.yml as they are written, on a repository made here.

Only GitHub's own services are simulated: its expressions (names, `||`, `==`, `&&`), its files for outputs and the
summary, and `gh`, which records its arguments, keeps one comment, and fails if there is a file `read-only`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

STEP_MOST_S = 600.0
ROOT = Path(__file__).parents[2]
ACTION = YAML(typ="safe").load(ROOT / "action.yml")
GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@example.org")

PYTHON = """\
import sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        time.sleep({wait} / 1000)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *words):
        pass

ThreadingHTTPServer.request_queue_size = 128  # of 5, most of 64 users find no place
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
# {wait} thousand steps of Marsaglia's xorshift, a generator of random numbers: some 2 us for each thousand.
COMPUTES = """\
package main

import ("fmt"; "net/http"; "os")

func main() {{
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {{
		x := uint64(88172645463325252)
		for i := 0; i < {wait}000; i++ {{ x ^= x << 13; x ^= x >> 7; x ^= x << 17 }}
		fmt.Fprint(w, x)
	}})
	http.ListenAndServe("127.0.0.1:"+os.Args[1], nil)
}}
"""
GO = """\
package main

import ("flag"; "fmt"; "net/http"; "time")

func main() {{
	port := flag.Int("port", 8080, "where to listen")
	flag.Parse()
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {{ time.Sleep({wait} * time.Millisecond) }})
	http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", *port), nil)
}}
"""


_GH = """\
#!/bin/sh
echo "$@" >>{folder}/asked
if [ -e {folder}/read-only ]; then echo "Resource not accessible by integration" >&2; exit 1; fi
for word; do
    case $word in body=@*) cp "${{word#body=@}}" {folder}/comment; exit ;; esac
done
if [ -e {folder}/comment ]; then echo 42; fi
"""


@dataclass(frozen=True)
class Server:
    """A server of the repository. `text`: its source, in which each commit fills {wait}."""

    file: str
    text: str
    build: str
    command: str


SERVERS = {
    "Python": Server("server.py", PYTHON, "", "python3 {revision}/server.py {port}"),
    "Go": Server("cmd/server/main.go", GO, "go build -o server ./cmd/server", "./{revision}/server --port {port}"),
    "Go, computing": Server("main.go", COMPUTES, "go build -o server main.go", "./{revision}/server {port}"),
}


def build_wheel(folder: Path, engine: Path) -> Path:
    """Builds a wheel of this tree with the given engine."""
    uv = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    environment = os.environ | {"POWERBAND_BUILT_ENGINE": str(engine)}
    subprocess.run(
        [uv, "build", "--quiet", "--wheel", "--out-dir", folder], cwd=ROOT, env=environment, check=True, timeout=300
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def pull_request(base: str, head: str) -> dict[str, str]:
    """GitHub's variables in the job of a pull request."""
    return {
        "event_name": "pull_request",
        "event.pull_request.number": "7",
        "event.pull_request.base.sha": base,
        "sha": head,
        "repository": "someone/server",
        "token": "unused",
    }


def repository(folder: Path, server: Server, waits: tuple[int, int]) -> tuple[str, str]:
    """Commits the server with each of two waits, in ms, and returns both commits."""
    subprocess.run([*GIT, "init", "--quiet", folder], check=True)
    commits = []
    (folder / server.file).parent.mkdir(parents=True, exist_ok=True)
    if server.build:
        (folder / "go.mod").write_text("module example\n\ngo 1.21\n")
    for wait in waits:
        (folder / server.file).write_text(server.text.format(wait=wait))
        subprocess.run([*GIT, "add", "."], cwd=folder, check=True)
        subprocess.run([*GIT, "commit", "--quiet", "--allow-empty", "-m", f"waits {wait} ms"], cwd=folder, check=True)
        commits.append(subprocess.check_output([*GIT, "rev-parse", "HEAD"], cwd=folder, text=True).strip())
    return commits[0], commits[1]


class Job:
    """Runs the steps of action.yml in a checkout. `temp`: the runner's temporary folder, where powerband is installed;
    jobs that share one install it once."""

    def __init__(
        self, checkout: Path, folder: Path, inputs: Mapping[str, str], github: Mapping[str, str], temp: Path
    ) -> None:
        self._checkout = checkout
        self._folder = folder
        self._temp = temp
        (folder / "bin").mkdir()
        temp.mkdir(exist_ok=True)
        gh = folder / "bin/gh"
        gh.write_text(_GH.format(folder=folder))
        gh.chmod(0o755)
        self._names = {f"github.{name}": value for name, value in github.items()}
        for name, declared in ACTION["inputs"].items():
            self._names[f"inputs.{name}"] = inputs.get(name, self._filled(declared.get("default", "")))
        self.log = ""

    def run(self, *, only: str = "", **inputs: str) -> int:
        """Runs the steps; returns the exit code of the first step that fails, else 0. `only`: run only the step of this
        name. `inputs`: new values of inputs."""
        self._names |= {f"inputs.{name}": value for name, value in inputs.items()}
        for at, step in enumerate(ACTION["runs"]["steps"]):
            if only not in ("", step["name"]):
                continue
            if "if" in step and not self._holds(step["if"]):
                continue
            outputs = self._folder / f"outputs-{at}"
            outputs.touch()
            environment = os.environ | {
                "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
                "RUNNER_TEMP": str(self._temp),
                "GITHUB_OUTPUT": str(outputs),
                "GITHUB_STEP_SUMMARY": str(self._folder / "summary"),
            }
            environment |= {name: self._filled(value) for name, value in step.get("env", {}).items()}
            environment.pop("POWERBAND_ENGINE", None)  # the package contains its own
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                check=False, cwd=self._checkout, env=environment, capture_output=True, text=True, timeout=STEP_MOST_S,
            )  # fmt: skip
            self.log += done.stdout + done.stderr
            for line in outputs.read_text().splitlines():
                name, _, value = line.partition("=")
                self._names[f"steps.{step.get('id')}.outputs.{name}"] = value
            if done.returncode != 0:
                return done.returncode
        return 0

    def output(self, name: str) -> str:
        return self._filled(ACTION["outputs"][name]["value"])

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\{\{(.*?)\}\}", lambda found: self._first(found[1]), str(text))

    def _first(self, expression: str) -> str:
        return next((value for name in expression.split("||") if (value := self._names.get(name.strip(), ""))), "")

    def _holds(self, condition: str) -> bool:
        terms = condition.removeprefix("${{").removesuffix("}}").split("&&")
        sides = [[side.strip() for side in term.split("==")] for term in terms]
        return all(self._names.get(name, "") == value.strip("'") for name, value in sides)
