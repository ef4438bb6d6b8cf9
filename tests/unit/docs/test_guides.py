"""The guides name files, bottlenecks and servers that there are. A test runs each block of theirs and each `powerband`
command in their text, as it stands on the page; `NOT_RUN` has the others, with the reason. What a guide quotes of the
code is the code's."""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from collections.abc import Callable
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from fakes import plans
from fakes.guides import block_of, shown, text_of, typed, words_of
from fakes.pages import ROOT, Block, blocks, tables
from fakes.trials import experiment
from powerband.analyze.settings.nodes import nodes_of
from powerband.cli import powerband
from powerband.files.experiment_file import parse_experiment
from powerband.files.known_knobs import GO, known_server
from powerband.jmx.elements.known import KNOWN, REFUSED
from powerband.jmx.importing import import_plan
from powerband.jmx.plan_findings import ImportRefused
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import TrialResult

GUIDES = ("jvm-servers", "node", "python-servers", "go-servers", "dotnet-servers", "docker")
DOTNET = ("processes/dotnet_hook.py", "trials/instruments/dotnet_figures.py")
PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md") if not path.name.endswith(".ko.md"))
TAKES: dict[str, Callable[..., str | list[str]]] = {
    function.__name__: function for function in (shown, typed, block_of, words_of)
}
# By page, and by words of the block or of the command: why no test takes it from the page and runs it.
NOT_RUN = {
    "benchmarks.md": {"make bench": "takes hours"},
    "ci.md": {"actions/upload-artifact": "an action of GitHub, which runs on its machines only"},
    "cluster.md": {
        "Nodes differ": "an output, compared below",
        "powerband resume DIR": "a form; tests/e2e/test_cluster.py resumes",
    },
    "docker.md": dict.fromkeys(
        ("FROM my-image", "docker build"), "an image with Python is in a registry; tried by hand"
    ),
    "history.md": {"import ruptures": "run by test_history.py beside this file"},
    "install.md": {"docker run": "an image with Python is in a registry; tried by hand"},
    "jvm-servers.md": {"metrics_url": "a part of a file in examples/boot-app, which tests/e2e/test_examples.py runs"},
    "jmeter-import.md": dict.fromkeys(("- post:", "not converted"), "an output, compared below"),
    "prometheus.md": {"docker run": "an image with Grafana is in a registry"},
    "python.md": {"": "all run by tests/e2e/test_python.py"},
    "reading-the-answer.md": {"": "an output, made by `make reference`"},
    "remote-server.md": {"powerband resume runs/...": "a form"},
    "statsd.md": dict.fromkeys(("reflection.received:1|c", "hits|c"), "read by engine/src/statsd/tests.rs"),
    "troubleshooting.md": {"powerband resume runs/...": "a form"},
    "tutorial.md": {
        "uv tool install": "tests/e2e/test_installed.py installs by uv",
        "powerband resume runs/...": "a form",
        **dict.fromkeys(
            ("--repeats 1 -- python3", "--profile quick -- python3", "--objective capacity", "sed 's/range"),
            "run by tests/e2e/test_tutorial.py",
        ),
        **dict.fromkeys(
            ("No setting could be measured", "Use threads=32", "slower_server.py is worse"),
            "an output, made by `make tutorial`",
        ),
    },
}


@cache
def taken() -> list[str | list[str]]:
    """Lists what end-to-end tests take from pages: texts of blocks, lines, and the words of commands."""
    found: list[str | list[str]] = []
    for file in (ROOT / "tests" / "e2e").glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name), args=args) if name in TAKES:
                    texts = [each.value for each in args if isinstance(each, ast.Constant)]
                    if len(texts) == len(args) and texts[0].endswith(".md"):
                        given = TAKES[name](*texts)
                        found.append(["powerband", *given] if name == "shown" else given)
    return found


def is_taken(block: Block) -> bool:
    """True if tests take the block, or each line that a reader types there."""
    lines = re.sub(r"\\\n\s*", "", block.text).splitlines()
    return block.text in taken() or (
        block.language in ("", "sh")
        and all(line in taken() or shlex.split(line, comments=True) in taken() for line in lines)
    )


@pytest.mark.parametrize("page", PAGES)
def test_a_test_runs_each_command_and_block(page: str) -> None:
    spans = re.findall(r"`(powerband \w+ [^`\n]+)`", text_of(page))
    left = [block.text for block in blocks(text_of(page)) if not is_taken(block)]
    left += [span for span in spans if shlex.split(span) not in taken()]
    reasons = NOT_RUN.get(page, {})
    assert [each for each in left if not any(words in each for words in reasons)] == []
    assert [words for words in reasons if not any(words in each for each in left)] == [], "these are run, or gone"


def test_every_option_for_a_server_that_runs_is_one_of_tune() -> None:
    named = set(re.findall(r"`(--[a-z-]+)", text_of("remote-server.md")))
    assert named <= {name for parameter in powerband.commands["tune"].params for name in parameter.opts}


def test_the_file_of_the_jvm_guide_is_that_of_its_sample() -> None:
    """Whose run is tested."""
    yaml = YAML(typ="safe")
    part = yaml.load(block_of("jvm-servers.md", "metrics_url"))
    whole = yaml.load((ROOT / "examples" / "boot-app" / "live-limit.yaml").read_text())
    assert part == {name: {key: whole[name][key] for key in keys} for name, keys in part.items()}


def test_the_reasons_for_which_dotnet_is_not_seen_inside_are_given_in_these_words() -> None:
    quoted = re.findall(r"^- \*(.+?)\*:", text_of("dotnet-servers.md"), re.M)
    code = "".join((ROOT / "src" / "powerband" / file).read_text() for file in DOTNET)
    said = re.sub(r"\{[\w.]+\}", "N", code)
    assert len(quoted) == 4 and [words for words in quoted if re.sub(r"(?<= )\d+", "N", words) not in said] == []


@pytest.mark.parametrize("page", GUIDES)
def test_what_an_answer_names_is_called_so(page: str) -> None:
    """Words between backticks, three or more, are a bottleneck's."""
    named = set(re.findall(r"`((?:[A-Za-z]+ ){2,}[a-z]+)`", text_of(f"{page}.md")))
    assert named <= {each.words for each in BottleneckName}
    assert named or page in ("jvm-servers", "dotnet-servers", "docker")


def test_the_python_servers_are_known_ones() -> None:
    rows = re.findall(r"^\| (\w+)(?:, \w+)? \| `([^`]+)` \|$", text_of("python-servers.md"), re.M)
    assert len(rows) == 5
    for label, command in rows:
        known = known_server(command.split())
        assert known is not None and known.name.lower() == label.lower()
        assert all(f"{{{knob.name}}}" in command for knob in known.knobs)


def test_the_knobs_of_node_and_go_are_the_known_ones() -> None:
    for page, known in (("node", known_server(["node", "server.js"])), ("go-servers", GO)):
        assert known is not None
        assert all(f"--env {knob.variable}={{{knob.name}}}" in text_of(f"{page}.md") for knob in known.knobs)


def without_figures(text: str) -> str:
    return re.sub(r"\b\d+(\.\d+)? ", "N ", text)


def test_the_sentence_about_nodes_is_the_code_s() -> None:
    """But for its figures."""
    made = experiment({"threads": (16, 32, 64)}, measure={"repeats": 12})
    rates = {16: 800.0, 32: 1140.0, 64: 1200.0}
    dice = np.random.default_rng(1)
    trials = []
    for block in range(12):
        node = "abcd"[block % 4]
        for setting in made.settings():
            threads = setting.as_dict()["threads"]
            assert isinstance(threads, int)
            rate = 1270.0 if (node, threads) == ("b", 32) else rates[threads]
            metrics = {"goodput_per_s": rate * math.exp(dice.normal(0, 0.003))}
            trials.append(TrialResult(len(trials) + 1, block, 1, setting, "measured", (), metrics, node=node))
    found = nodes_of(made, trials, made.settings()[-1])
    assert found is not None
    shown = blocks(text_of("cluster.md"))[0].text
    assert shown.splitlines() and [without_figures(line) for line in shown.splitlines()] == [
        without_figures(sentence) for sentence in found.sentences
    ]


def test_whoever_reaches_a_server_is_told() -> None:
    """Each server that listens on its node's address where other nodes load it, in the row that says so."""
    servers = {path.parent.name for path in ROOT.glob("subjects/*/subject.yaml") if "://{address}:" in path.read_text()}
    row = next(row for row in tables((ROOT / "SECURITY.md").read_text())[1] if "with `generators`" in row[1])
    assert servers and set(re.findall("`(.*?)`", row[0])) == servers


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", text_of("websocket.md"), re.S))
def test_each_example_of_websockets_is_valid(text: str) -> None:
    subject = 'subject: {command: "node server.js {port}", url: "ws://127.0.0.1:{port}/"}\n'
    assert parse_experiment(text if "subject:" in text else subject + text, "example.yaml").load.websocket is not None


def test_the_sample_of_websockets_is_there_and_its_version_fixed() -> None:
    folder = ROOT / "examples" / "ws-server"
    assert "node server.js {port} {processes}" in text_of("websocket.md")
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    locked = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted


IMPORT = text_of("jmeter-import.md")


def rows_of_the_import(heading: str) -> list[str]:
    section = IMPORT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def test_the_table_of_converted_elements_is_the_codes() -> None:
    """Neighbouring elements that are converted to the same thing share a row."""
    table = []
    for how, group in groupby(KNOWN.items(), key=lambda item: item[1].how):
        kinds, known = zip(*group, strict=True)
        labels = ", ".join(each.label for each in known)
        table.append(f"| {labels} | {', '.join(f'`{kind}`' for kind in kinds)} | {how} |")
    assert rows_of_the_import("What is converted") == table


def test_every_kind_that_is_refused_with_advice_is_named() -> None:
    named = set(re.findall(r"`(\w+)`", IMPORT.partition("## What is refused\n")[2].partition("\n## ")[0]))
    assert set(REFUSED) <= named
    assert not named & set(KNOWN)


def test_the_plan_of_the_page_converts() -> None:
    imported = import_plan(ROOT / "examples" / "shop.jmx", command=("./shop", "--port", "{port}"))
    made = parse_experiment(imported.text, "shop.yaml")
    assert [step.name for step in made.load.scenario] == ["Log in", "Look at a product", "Order"] * 2
    for quoted in re.findall(r"```yaml\n(.*?)```", IMPORT, re.S):
        assert quoted in imported.text


def test_the_refusal_of_the_page_is_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the number of the line."""
    monkeypatch.chdir(tmp_path)
    script = plans.element("JSR223PreProcessor", "JSR223 PreProcessor")
    Path("login.jmx").write_text(plans.plan(plans.group(plans.sampler(script, name="Login"))))
    with pytest.raises(ImportRefused) as refused:
        import_plan(Path("login.jmx"))
    said = re.sub(r"jmx:\d+", "jmx:41", f"powerband: {refused.value}")
    assert said.startswith(block_of("jmeter-import.md", "is not converted"))
