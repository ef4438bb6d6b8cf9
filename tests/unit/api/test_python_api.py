"""`import powerband` is instant and typed, and uses the command line's words. Nothing is started here."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas
import pytest

import powerband
from fakes import synthetic
from powerband.api import measuring
from powerband.api.measuring import TuneOptions
from powerband.cli.running import tune as tune_command
from powerband.files.experiment_file import load_experiment
from powerband.model.experiment import Experiment
from powerband.model.plan import Level, Setting
from powerband.model.results import Estimate, TrialResult

GOLDEN = Path(__file__).parents[2] / "golden" / "run-small"
GROWTH = "memory_growth_bytes_per_s"


@pytest.fixture
def run(tmp_path: Path) -> powerband.Run:
    shutil.copytree(GOLDEN, tmp_path / "run-small")
    return powerband.read(tmp_path / "run-small")


def said_by(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_it_imports_nothing() -> None:
    code = "import sys; before = set(sys.modules); import powerband; print(sorted(set(sys.modules) - before))"
    assert json.loads(said_by(code).replace("'", '"')) == ["powerband"]


def test_functions_stay_functions_whatever_is_imported() -> None:
    code = (
        "import powerband\n"
        "import powerband.processes.stop_request, powerband.files.tune_options\n"
        "from powerband.processes import engine_fleet as engine\n"
        "from powerband import run, tune\n"
        "import powerband.api.run_results\n"
        "print(callable(powerband.run), callable(powerband.tune), powerband.run is run, engine.__name__)"
    )
    assert said_by(code) == "True True True powerband.processes.engine_fleet"


def test_what_is_offered() -> None:
    assert set(powerband.__all__) <= set(dir(powerband))
    assert all(getattr(powerband, name) is not None for name in powerband.__all__)
    assert inspect.signature(powerband.run) == inspect.signature(measuring.run)
    assert (Path(powerband.__file__).parent / "py.typed").is_file()
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        powerband.runn  # noqa: B018


def test_tune_has_every_option_of_the_command_line() -> None:
    elsewhere = {"parameters", "command", "runs", "output"}  # they have other names, or belong to the terminal
    views = {"live", "progress"}
    options = {option.name for option in tune_command.params if isinstance(option, click.Option)} - elsewhere - views
    assert set(TuneOptions.__annotations__) == options


def test_a_run_is_read_with_its_types(run: powerband.Run) -> None:
    assert run.answer == run.analysis.answer
    assert all(isinstance(trial, TrialResult) for trial in run.trials) and len(run.trials) == 6
    assert run.setting(threads=4).setting == Setting((("threads", 4),))
    with pytest.raises(
        powerband.UsageError, match=r"no settings have threads=5; name all parameters of one, for " "example"
    ):
        run.setting(threads=5)
    texts: list[tuple[Level, str]] = [(2, "2"), ("2.0", "2.0"), ("1e1", "1e1")]
    rows = tuple(replace(run.settings[0], setting=Setting((("x", level),))) for level, _ in texts)
    made = replace(run, analysis=replace(run.analysis, settings=rows))
    assert [made.setting(x=level).setting.id for level, _ in texts] == [f"x={text}" for _, text in texts]
    assert made.setting(x=10).setting.id == "x=1e1"
    assert run.to_json()["run"] == str(run.path.resolve())
    assert [row["trial"] for row in run.rows()] == [1, 2, 3, 4, 5, 6]
    assert run.markdown().startswith("### powerband")
    assert repr(run).startswith(f"Run({str(run.path)!r})\n")


def test_its_frames_are_its_tables(run: powerband.Run, tmp_path: Path) -> None:
    trials = run.frame("trials", library="pandas")
    assert trials["goodput_per_s"].tolist() == [trial.metrics["goodput_per_s"] for trial in run.trials]
    back = pandas.read_csv(run.export("trials", tmp_path / "x.csv"))
    assert back["goodput_per_s"].tolist() == pytest.approx(trials["goodput_per_s"].tolist(), rel=1e-15)
    assert run.frame("estimates", library="polars").height == len(run.frame("estimates", library="pandas"))


def test_a_figure_has_the_estimates(run: powerband.Run) -> None:
    analysis = synthetic.analysis()
    figure = replace(run, analysis=analysis).figure("throughput")
    (axes,) = figure.axes
    line = axes.containers[0].lines[0]
    assert list(line.get_xdata()) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert list(line.get_ydata()) == [row.estimates["goodput_per_s"].value for row in analysis.settings]
    assert axes.get_ylabel() == "goodput (per second)" and axes.get_xlabel() == "threads"
    (star,) = [line for line in axes.lines if line.get_marker() == "*"]
    assert list(star.get_xdata()) == [32]
    assert figure._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("levels", [("1.10", 1.9), ("1.10", 1.1), (1048576, 2097152)])
def test_a_figure_names_a_level_as_it_is_written(run: powerband.Run, levels: tuple[Level, ...]) -> None:
    analysis = synthetic.analysis(levels=(1, 32))
    versions = [Setting((("version", level),)) for level in levels]
    rows = tuple(replace(row, setting=of) for row, of in zip(analysis.settings, versions, strict=True))
    (axes,) = replace(run, analysis=replace(analysis, settings=rows)).figure("throughput").axes
    named = axes.get_xticklabels() if axes.get_xlabel() == "version" else axes.get_yticklabels()
    assert [text.get_text().removeprefix("version=") for text in named] == list(map(str, levels))


def test_a_figure_shows_what_is_below_zero(run: powerband.Run) -> None:
    analysis = synthetic.analysis(levels=(1, 32))
    values = zip(analysis.settings, (-120e3, 300e3), strict=True)
    rows = tuple(replace(row, estimates={GROWTH: Estimate(value, value, value, 0.95, 3)}) for row, value in values)
    (axes,) = replace(run, analysis=replace(analysis, settings=rows)).figure(GROWTH).axes
    low, _ = axes.get_ylim() if axes.get_xlabel() == "threads" else axes.get_xlim()
    assert low < 0


def test_a_run_whose_directory_is_no_more_says_so(run: powerband.Run, tmp_path: Path) -> None:
    file = tmp_path / "series.csv"
    run.path.rename(tmp_path / "moved")
    for used in (lambda: run.frame("series"), lambda: run.export("intervals", file), run.report):
        with pytest.raises(powerband.UsageError, match="no run directory"):
            used()
    assert not file.exists()


def test_a_figure_of_two_factors_has_a_line_for_each_level_of_the_other(run: powerband.Run) -> None:
    figure = replace(run, analysis=synthetic.two_factor_analysis()).figure("p99")
    assert figure.axes[0].get_ylabel() == "response time p99 (s)"
    shown = {text.get_text() for text in figure.axes[0].get_legend().get_texts()}
    assert shown - {"the answer"} in (
        {"queue=10", "queue=100", "queue=1000"}, {"threads=4", "threads=8", "threads=16"},
    )  # fmt: skip


def test_a_figure_of_names_has_a_row_for_each_and_reads_none_as_a_formula(run: powerband.Run) -> None:
    analysis = synthetic.analysis(levels=(1, 32))
    names = [Setting((("mode", name),)) for name in ("$x_{", "$\\frac$")]
    rows = tuple(replace(row, setting=name) for row, name in zip(analysis.settings, names, strict=True))
    figure = replace(run, analysis=replace(analysis, question="$\\bad{$", settings=rows)).figure("cpu")
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert [text.get_text().replace("\\$", "$") for text in figure.axes[0].get_yticklabels()] == [
        name.id for name in names
    ]


def test_long_names_leave_room_for_the_figure(run: powerband.Run) -> None:
    analysis = synthetic.analysis(levels=(1, 32))
    names = [Setting((("one", "a" * 30), ("two", "b" * 30), ("three", c))) for c in "xy"]
    rows = tuple(replace(row, setting=name) for row, name in zip(analysis.settings, names, strict=True))
    axes = replace(run, analysis=replace(analysis, settings=rows)).figure("cpu").axes[0]
    assert [text.get_text().replace("\n", ",") for text in axes.get_yticklabels()] == [name.id for name in names]
    axes.figure.draw_without_rendering()
    assert axes.get_position().width > 0.3


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("at_least", [False, True])
def test_a_figure_has_a_triangle_and_no_interval_of_a_lower_bound(
    run: powerband.Run, named: bool, at_least: bool
) -> None:
    made = synthetic.analysis(levels=(2, 32))
    rows = tuple(
        replace(
            row,
            setting=Setting((("mode", row.setting.id),)) if named else row.setting,
            estimates={name: replace(found, at_least=at_least) for name, found in row.estimates.items()},
        )
        for row in made.settings
    )
    (axes,) = replace(run, analysis=replace(made, settings=rows)).figure("p99").axes
    (bars,) = axes.containers[0].lines[2]
    assert all((start == end).all() == at_least for start, end in bars.get_segments())
    triangles = [line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "^"]
    points = axes.containers[0].lines[0].get_xydata().tolist()
    assert triangles == ([points] if at_least else [])
    legend = axes.get_legend()
    assert at_least is (legend is not None and "a lower bound" in [text.get_text() for text in legend.get_texts()])


def test_figures_that_cannot_be_drawn(run: powerband.Run) -> None:
    with pytest.raises(powerband.UsageError, match="there is no metric throughptu; did you mean throughput"):
        run.figure("throughptu")
    with pytest.raises(powerband.UsageError, match="no setting has a valid trial that measured jvm_gc_share"):
        run.figure("jvm_gc_share")


def test_a_notebook_shows_it_with_every_name_escaped(run: powerband.Run) -> None:
    answer = replace(run.answer, sentences=("<script>alert(1)</script>", "a & b"))
    settings = tuple(replace(row, setting=Setting((("<b>", "<i>"),))) for row in run.settings)
    html = replace(run, analysis=replace(run.analysis, answer=answer, settings=settings))._repr_html_()
    assert "&lt;script&gt;" in html and "a &amp; b" in html and "&lt;b&gt;=&lt;i&gt;" in html
    assert not any(tag in html for tag in ("<script", "<b>", "<i>", "style"))
    assert len(html) < 3000


def test_a_notebook_shows_the_answer_however_many_are_better(run: powerband.Run) -> None:
    made = synthetic.analysis(levels=tuple(range(1, 31)))
    answer = replace(made.answer, setting=synthetic.setting(threads=1))
    html = replace(run, analysis=replace(made, answer=answer))._repr_html_()
    assert "<td>threads=1</td>" in html and html.count("<tr>") == 13 and "and 18 more" in html


def test_two_runs_are_compared(run: powerband.Run, tmp_path: Path) -> None:
    found = powerband.compare(run, run.path)
    assert found.sentence and found.changes is found.result.changes
    assert len(found.frame(library="polars")) == len(found.changes)
    assert found.export(tmp_path / "x.csv").read_text().startswith("first,second,setting,threads,")
    assert "<table>" in found._repr_html_() or not found.changes
    with pytest.raises(powerband.UsageError, match="users is for two revisions of a server, whose command is missing"):
        powerband.compare(run, run, users=3)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """The experiments that would have been run."""
    found: list[Experiment] = []

    def measured(experiment: Experiment, *_: object, **__: object) -> None:
        found.append(experiment)

    monkeypatch.setattr(measuring, "_measured", measured)
    return found


def test_an_experiment_in_every_form_is_the_same(started: list[Experiment], tmp_path: Path) -> None:
    text = "name: x\nsubject: {use: reference}\nfactors: {threads: [1, 2]}\nload: {users: 4, duration: 2s}\n"
    file = tmp_path / "x.yaml"
    file.write_text(text)
    mapping = {
        "name": "x", "subject": {"use": "reference"}, "factors": {"threads": range(1, 3)},
        "load": {"users": 4, "duration": "2s"},
    }  # fmt: skip
    forms: list[Any] = [file, str(file), text, mapping, load_experiment(file)]
    for form in forms:
        powerband.run(form)
    assert all(experiment == started[0] for experiment in started)
    for form in forms:
        powerband.run(form, set={"load.users": 8, "factors.threads": [3]}, seed=5)
    changed = started[len(forms) :]
    assert all((e.load.users, e.factors, e.design.seed) == (8, {"threads": (3,)}, 5) for e in changed)
    for form in forms:
        powerband.run(form, set={"factors.threads": "[1..4, 6]"})
    assert all(e.factors == {"threads": (1, 2, 4, 6)} for e in started[2 * len(forms) :])
    powerband.run("quickstart", profile="smoke")
    assert started[-1].profile == "smoke"


def test_errors_of_a_mapping_name_the_key() -> None:
    with pytest.raises(powerband.ExperimentError) as raised:
        powerband.run({"subject": "reference", "load": {"usrs": 1}})
    assert "load.usrs: unknown key; did you mean users?" in str(raised.value)
    assert raised.value._render_traceback_() == [f"powerband: {raised.value}"]
    with pytest.raises(powerband.UsageError, match="there is no experiment quickstar; did you mean quickstart"):
        powerband.run("quickstar")
    with pytest.raises(powerband.UsageError, match="no run directory"):
        powerband.read("/nonexistent")


def test_tune_makes_the_experiment_of_the_command_line(started: list[Experiment]) -> None:
    from powerband.cli.running import tuned

    powerband.tune(
        "./server --port {port} {threads} {mode}", {"threads": "1..4", "mode": ["a,b", "c"]},
        users=50, slo=["p99 < 50ms"], env={"A": "b"}, headers={"X-Y": "z"}, insecure=True, think={"exponential": "3s"},
        minimise="p99", seed=3, ready_http="/health", order="blocks",
    )  # fmt: skip
    same = tuned(
        ("./server", "--port", "{port}", "{threads}", "{mode}"), parameters=("threads=1..4", "mode=x,c"),
        url="http://127.0.0.1:{port}/", method=None, body=None, message=None, expect=(), headers=("X-Y: z",),
        allow_hosts=(), slo=("p99 < 50ms",), maximise=None, minimise="p99", profile="normal", env=("A=b",), seed=3,
        users="50", insecure="true", think='{"exponential": "3s"}', ready_http="/health", order="blocks",
    )  # fmt: skip
    (made,) = started
    assert made.factors == {"threads": (1, 2, 4), "mode": ("a,b", "c")}
    assert made.model_copy(update={"factors": same.factors}) == same


def test_one_value_stands_for_a_list_of_one(started: list[Experiment]) -> None:
    for text in (200, "200", [200]):
        expect: Any = text
        powerband.tune("./server {port} {n}", {"n": "1..4"}, expect=expect, slo="p99 < 50ms")
    assert started == [started[0]] * 3
    assert started[0].load.scenario[0].checks.body_contains == ("200",)


def test_none_stands_for_the_default(started: list[Experiment]) -> None:
    nothing: Any = dict.fromkeys(measuring.TuneOptions.__annotations__)
    powerband.tune("./server {port} {n}", {"n": "1..4"})
    powerband.tune("./server {port} {n}", {"n": "1..4"}, **nothing)
    assert started[0] == started[1]
    with pytest.raises(AttributeError):  # without measurements there is nothing to compare
        powerband.compare("a", "b", "./{revision} {port}", apply=None, slo=None)
    with pytest.raises(powerband.UsageError, match="no run directory"):
        powerband.compare("a", "b", headers=None)
    with pytest.raises(powerband.UsageError, match="there is no option usrs; did you mean users"):
        powerband.tune("./s {threads}", {"threads": [1]}, usrs=None)  # type: ignore[call-arg]


def test_tune_of_a_server_that_runs_already(started: list[Experiment]) -> None:
    powerband.tune(None, {"n": "1..4"}, url="http://127.0.0.1:81/", apply="POST /knob {n}", restore={"n": 8}, pid=7)
    (made,) = started
    assert made.subject.command is None and made.subject.deployed is not None
    assert (made.subject.deployed.restore, made.subject.deployed.pid) == ({"n": 8}, 7)
    with pytest.raises(AttributeError):  # without measurements there is nothing to compare
        powerband.compare("a", "b", url="http://127.0.0.1:81/", apply_command="put {revision}")
    assert started[1].subject.deployed is not None and started[1].factors == {"revision": ("a", "b")}


def test_mistakes_in_tune() -> None:
    with pytest.raises(powerband.UsageError, match="there is no option usrs; did you mean users"):
        powerband.tune("./s {threads}", {"threads": [1]}, usrs=3)  # type: ignore[call-arg]
    with pytest.raises(powerband.UsageError, match="exclude each other"):
        powerband.tune("./s {threads}", {"threads": [1]}, maximise="p99", minimise="p99")
    with pytest.raises(powerband.UsageError, match="there is no profile fast; known: quick, normal, thorough"):
        powerband.tune("./s {threads} {port}", {"threads": [1]}, profile="fast")
    with pytest.raises(powerband.UsageError, match="there is no profile fast"):
        powerband.compare("a", "b", "{revision} {port}", profile="fast")
    with pytest.raises(powerband.ExperimentError, match="threads"):
        powerband.tune("./s {threads}", {"threads": []})
    with pytest.raises(powerband.UsageError, match=r"No closing quotation.*: close the quotation"):
        powerband.tune("./s 'x {threads}", {"threads": [1]})


@pytest.mark.parametrize("levels", [np.array([2, 8]), pandas.Series([2, 8]), np.arange(2, 9, 6), (np.int64(2), 8)])
def test_levels_may_be_arrays(levels: Any) -> None:
    file = {
        "name": "x",
        "subject": {"use": "reference"},
        "factors": {"threads": levels},
        "load": {"users": np.int64(4)},
    }
    found = measuring._experiment(file, None, {})
    assert [setting.as_dict() for setting in found.settings()] == [{"threads": 2}, {"threads": 8}]
    assert found.load.users == 4
