"""The instruments of a trial, what they add to its record, and how they move the start of its window."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from fakes.trials import START_NS, Figures, probe_lines
from powerband.base.procfs import ProcessStat
from powerband.loads.driver import TrialSetup, WarmUp
from powerband.loads.http import driver as http_driver
from powerband.model.experiment import Design, Experiment, Measure, Subject
from powerband.model.load import Load
from powerband.model.plan import Stage, TrialSpec
from powerband.processes.cpus import CpuSplit
from powerband.processes.engine_process import Pump
from powerband.processes.engines import EnginesHere
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import Rendered
from powerband.store import TrialDir, TrialRecord
from powerband.trials.instruments import instruments_of, neighbours, runtime_views, slot_looks
from powerband.trials.instruments.dotnet_figures import DotnetFigures
from powerband.trials.instruments.instrument import Instrument
from powerband.trials.instruments.neighbours import Neighbours
from powerband.trials.instruments.runtime_views import RuntimeViews
from powerband.trials.instruments.slot_looks import SlotLooks

SECOND = 1_000_000_000
HERE = EnginesHere(Path("engine"))
WRITES = {"write": {"name": "w", "path": "/w"}, "read": {"name": "r", "path": "/r"}, "count": "json", "expect": 1}
ALL = {"visitor": True, "snapshots": True, "acknowledged": WRITES}


def experiment(load: dict[str, Any] | None = None, **measure: Any) -> Experiment:
    return Experiment(
        name="x",
        subject=Subject(name="s", command=("x",)),
        load=Load(**{"users": 1, **(load or {})}),
        measure=Measure.model_validate(measure),
    )


def instruments(folder: Path, made: Experiment, stage: Stage = Stage.COMPARE) -> list[Instrument]:
    spec = TrialSpec(1, 0, 1, made.settings()[0], 1, stage)
    setup = TrialSetup(made, spec, TrialDir(folder), folder / "engine", CpuSplit((), (), ()), HERE)
    return instruments_of(setup, lambda pump: nullcontext(), {}, lambda phase: None)


def test_instruments_are_those_that_the_experiment_asks_for(tmp_path: Path) -> None:
    always = [
        "LinkInstrument", "DotnetFigures", "ThreadNames", "RuntimeViews", "GoCollector", "Neighbours", "LiveHeap",
        "FinalFigures",
    ]  # fmt: skip
    assert [type(each).__name__ for each in instruments(tmp_path, experiment())] == always
    asked = [type(each).__name__ for each in instruments(tmp_path, experiment(**ALL))]
    assert asked == [
        "LinkInstrument",
        "BrowserVisitor",
        "HeapSnapshots",
        "AcknowledgedWrites",
        "DotnetFigures",
        "ThreadNames",
        "RuntimeViews",
        "GoCollector",
        "Neighbours",
        "FinalFigures",
    ]
    searching = [type(each).__name__ for each in instruments(tmp_path, experiment(**ALL), Stage.CAPACITY)]
    assert searching == [
        "LinkInstrument",
        "BrowserVisitor",
        "DotnetFigures",
        "ThreadNames",
        "RuntimeViews",
        "GoCollector",
        "Neighbours",
        "FinalFigures",
    ], "a trial that only searches takes no more"


def test_an_instrument_adds_fields_that_a_record_has(tmp_path: Path) -> None:
    known = {each.name for each in fields(TrialRecord)}
    for asked in (ALL, {}):
        added = [name for each in instruments(tmp_path, experiment(**asked)) for name in each.record()]
        assert set(added) <= known
        assert len(added) == len(set(added))


def test_a_cache_that_cannot_be_written_costs_figures_and_no_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service's account often has a home that it may not write."""
    for name, text in {"sdk/dotnet": "#!/bin/sh\n", "app": "#!/bin/sh\n", "cache": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "app.runtimeconfig.json").write_text("{}")
    (tmp_path / "sdk/sdk/10.0.100").mkdir(parents=True)
    runtime = tmp_path / "sdk/shared/Microsoft.NETCore.App/10.0.0/System.Private.CoreLib.dll"
    runtime.parent.mkdir(parents=True)
    runtime.touch()
    monkeypatch.setenv("DOTNET_ROOT", str(tmp_path / "sdk"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (figures,) = [each for each in instruments(tmp_path, experiment()) if isinstance(each, DotnetFigures)]
    started = cast(Rendered, SimpleNamespace(argv=(str(tmp_path / "app"),), env=(), cwd=None))
    with Pump(StopRequest()) as pump, figures.around_trial(pump):
        assert figures.environment(started) == {}
    assert figures.record()["no_dotnet_figures"].startswith(f"cannot write {tmp_path / 'cache'}")


def warmup(made: Experiment, pause_ns: int = 0, joining_ns: int = 0) -> WarmUp:
    return WarmUp.of(made, Stage.COMPARE, made.load, joining_ns=joining_ns, pause_ns=pause_ns)


def test_a_fixed_warm_up_is_the_drivers_own_unless_an_instrument_pauses() -> None:
    fixed = experiment(warmup_ns=2 * SECOND)
    assert (warmup(fixed).by_command, warmup(fixed, joining_ns=SECOND).driver_ns) == (False, 3 * SECOND)
    assert (warmup(fixed, pause_ns=1).by_command, warmup(fixed, pause_ns=1).driver_ns) == (True, None)
    none = experiment(warmup_ns=0)
    assert (warmup(none, pause_ns=1).by_command, warmup(none, pause_ns=1).driver_ns) == (False, 0)


def test_users_begin_within_a_fixed_warm_up_also_if_a_command_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(http_driver, "fleet_specs", lambda load, **given: told.update(given))
    monkeypatch.setattr(http_driver, "fleet_up", lambda *given: None)
    made = experiment(warmup_ns=2 * SECOND)
    setup, subject = MagicMock(warmup=warmup(made, pause_ns=1)), MagicMock()
    setup.trial.load, setup.trial.experiment = made.load, made
    subject.rendered.url = "http://127.0.0.1:1/"
    http_driver.engines_up(setup, subject)
    assert (told["warmup_ns"], told["fixed_ns"]) == (None, 2 * SECOND)


@pytest.mark.parametrize("load", [{"ramp_ns": 9 * SECOND}, {"users": None, "rate_per_s": 5.0, "ramp_ns": 9 * SECOND}])
def test_a_fixed_warm_up_lasts_as_long_as_the_ramp_unless_there_is_none(load: dict[str, Any]) -> None:
    lengths = [warmup(experiment(load, warmup_ns=asked * SECOND)).fixed_ns for asked in (0, 2, 20)]
    assert lengths == [0, 9 * SECOND, 20 * SECOND]


@pytest.mark.parametrize(("load", "fixed_ns"), [({}, None), ({"requests_per_user": 5}, 0)])
def test_users_with_a_set_number_of_requests_have_no_warm_up(load: dict[str, Any], fixed_ns: int | None) -> None:
    made = warmup(experiment(load, warmup_ns=None))
    assert (made.fixed_ns, made.by_command) == (fixed_ns, fixed_ns is None)


def test_an_open_warm_up_lasts_until_the_load_is_built_up() -> None:
    ramped = experiment({"ramp_ns": 9 * SECOND, "think": 2 * SECOND}, warmup_min_ns=SECOND, warmup_max_ns=5 * SECOND)
    made = warmup(ramped)
    assert (made.least_ns, made.most_ns) == (9 * SECOND, 10 * SECOND)


def test_long_pauses_of_one_step_make_no_warm_up_longer_than_it_may_be() -> None:
    """The first pause of each user is cut to a random part, so that as many ask from then on as later."""
    made = warmup(experiment({"think": 60 * SECOND}, warmup_min_ns=SECOND, warmup_max_ns=5 * SECOND))
    assert (made.least_ns, made.most_ns) == (4 * SECOND, 5 * SECOND)


@pytest.mark.parametrize(
    ("load", "least_s"),
    [
        ({"think": SECOND}, 2),  # the least of a warm-up
        ({"think": 3 * SECOND}, 3),
        ({"think": SECOND, "scenario": [{"name": str(n)} for n in range(10)]}, 10),
        ({"think": 30 * SECOND, "scenario": [{"name": str(n)} for n in range(10)]}, 60),
        ({"think": 3 * SECOND, "users": None, "rate_per_s": 50.0, "scenario": [{"name": str(n)} for n in range(4)]}, 9),
    ],
)
def test_users_and_arrivals_are_at_all_steps_of_a_scenario_before_the_window(
    load: dict[str, Any], least_s: int
) -> None:
    made = warmup(experiment(load, warmup_min_ns=2 * SECOND, warmup_max_ns=5 * SECOND))
    assert made.least_ns == least_s * SECOND < made.most_ns


def test_a_load_may_last_as_long_as_a_runtime_that_compiles_holds_up_the_window() -> None:
    made = experiment(warmup_max_ns=60 * SECOND)
    short = WarmUp.of(made, Stage.SCREEN, made.load, joining_ns=0, pause_ns=0)
    assert short.most_ns < 2 * SECOND and short.longest_ns == warmup(made).longest_ns == 120 * SECOND


def test_slots_are_looked_at_once_in_the_first_full_trials(tmp_path: Path) -> None:
    """After short trials the first full block is the fourth. If the short trials decided the race, the looks come in
    the winner's second fresh start."""
    design = {"order": "race", "screen": "500ms"}
    made = experiment({"users": 64}).model_copy(update={"factors": {"threads": (1, 2, 4)}})
    screened = made.model_copy(update={"design": Design.model_validate(design)})

    def looked(of: Experiment, stage: Stage, block: int) -> bool:
        spec = TrialSpec(1, block, 1, of.settings()[0], 1, stage)
        setup = TrialSetup(of, spec, TrialDir(tmp_path), tmp_path / "engine", CpuSplit((), (), ()), HERE)
        found = instruments_of(setup, lambda pump: nullcontext(), {}, lambda phase: None)
        return "SlotLooks" in [type(each).__name__ for each in found]

    assert [looked(made, Stage.COMPARE, block) for block in range(4)] == [True, False, False, False]
    assert not any(looked(made, Stage.CONFIRM, block) for block in range(1, 4))
    assert not any(looked(screened, Stage.SCREEN, block) for block in range(3))
    assert [looked(screened, Stage.COMPARE, block) for block in range(3, 6)] == [True, False, False]
    assert [looked(screened, Stage.CONFIRM, block) for block in range(3, 6)] == [False, True, False]


def test_a_launcher_that_waits_while_the_server_is_loaded_does_none_of_its_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each process by its CPU time before and after the load, in clock ticks; one has ended meanwhile."""
    ticks = {10: (500, 502), 11: (90, 490), 12: (0, 4), 13: (7, 7), 14: (3, None)}
    now, found = 0, list[set[int]]()

    def stat(pid: int) -> ProcessStat:
        if (used := ticks[pid][now]) is None:
            raise ProcessLookupError
        return ProcessStat(pid, "x", "S", 1, 1, 1, used, 0, 0)

    monkeypatch.setattr(runtime_views, "process_stat", stat)
    monkeypatch.setattr(runtime_views, "runtime_views", lambda *pids: found.extend(map(set, pids)) or ())
    subject, looks = cast(Any, SimpleNamespace(pids=lambda: frozenset(ticks))), RuntimeViews()
    with looks.around_load(subject, cast(Any, None)):
        now = 1
    looks.after_load(subject, cast(Any, None))
    assert found == [{10, 11, 12, 13}, {11, 12}]


@pytest.mark.parametrize("root", [None, 4711])
def test_a_subject_that_descends_from_another_is_no_other_program(
    monkeypatch: pytest.MonkeyPatch, root: int | None
) -> None:
    found: list[int] = []
    monkeypatch.setattr(neighbours, "used_by_others", lambda before, after, *roots: found.extend(roots) or [])
    with Neighbours().around_load(cast(Any, SimpleNamespace(root_pid=root)), cast(Any, None)):
        pass
    assert found == [os.getpid(), *([root] if root else [])]


@pytest.mark.parametrize(("affinity", "used", "own"), [(1, 0.95, 8), (None, None, 8), (None, None, 1)])
def test_nothing_is_looked_at_where_the_cpus_that_the_server_may_use_are_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, affinity: int | None, used: float | None, own: int
) -> None:
    """The server may use one CPU of eight. It has been idle since the window, while the load drained. Beside a
    container powerband itself may use fewer CPUs (`own`)."""
    made = experiment({"users": 64, "duration": 10 * SECOND})
    directory = TrialDir(tmp_path)
    phases = {"measure": START_NS, "drain": START_NS + 10 * SECOND, "end": START_NS + 20 * SECOND}
    lines = probe_lines(Figures(subject_cores=0.95, busy_cores=1.5, cpus=8))
    *_, last = (line for line in lines if line["type"] == "sample")
    lines.insert(-1, {**last, "at_ns": phases["end"]})
    for line in lines:
        if line["type"] == "sample" and affinity is not None:
            line["trees"][0]["cpus_now"] = affinity
    directory.probe.write_text("".join(json.dumps(line) + "\n" for line in lines))
    spec = TrialSpec(1, 0, 1, made.settings()[0], 1, Stage.COMPARE)
    split = CpuSplit(machine=tuple(range(8)) if own == 1 else ())
    setup = TrialSetup(made, spec, directory, tmp_path / "engine", split, HERE)
    nothing = cast(Any, None)
    monkeypatch.setattr(slot_looks, "usable_cores", lambda: [[cpu] for cpu in range(own)])
    looks = SlotLooks(setup, phases, lambda phase: None)
    monkeypatch.setattr(SlotLooks, "_look", lambda *_, **__: [])
    looks.after_load(nothing, nothing)
    found = looks.record()["slots"]
    assert found.get("cpu_used") == (None if used is None else pytest.approx(used, rel=0.01))
    assert ("alone" in found) is (used is None)
