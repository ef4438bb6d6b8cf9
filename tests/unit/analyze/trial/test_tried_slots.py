"""The looks at other numbers of users tell the slots only if nobody took more from one of them than from the window."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import (
    SECOND,
    START_NS,
    Figures,
    experiment,
    histogram,
    probe_lines,
    record_of,
    spec,
    summary,
    write_trial,
)
from powerband.analyze.trial.measure import measure
from powerband.model.results import TrialResult
from powerband.store import TrialDir

LOADED = Figures(users=10, goodput_per_s=400, window_s=4)
LOOK_S = 0.5
MS = 1_000_000
ALONE_NS = START_NS + 4 * SECOND
DOUBLED_NS = ALONE_NS + round(LOOK_S * SECOND)


def look(begin_ns: int, users: int, per_s: float) -> dict[str, Any]:
    taken = summary(Figures(users=users, goodput_per_s=per_s, window_s=LOOK_S))
    return taken | {"measure_start_ns": begin_ns, "measure_end_ns": begin_ns + round(LOOK_S * SECOND)}


def taken(stolen: dict[int, float], foreign: dict[int, float]) -> Iterator[dict[str, Any]]:
    """The probe's lines. `stolen`, `foreign`: the CPUs that the hypervisor and other programs take from a time on."""
    before = {"cpu_steal_ns": 0.0, "cpu_busy_ns": 0.0}
    last_ns = START_NS - SECOND
    for line in probe_lines(LOADED):
        if line["type"] == "sample":
            at, host = line["at_ns"], line["host"]
            for name, by_time in (("cpu_steal_ns", stolen), ("cpu_busy_ns", foreign)):
                cores = next((by_time[begin] for begin in sorted(by_time, reverse=True) if begin <= last_ns), 0.0)
                before[name] += cores * (at - last_ns)
                host[name] += round(before[name])
                host["cpu_idle_ns"] -= round(before[name])
            last_ns = at
        yield line


def tried(folder: Path, stolen: dict[int, float], foreign: dict[int, float]) -> TrialResult:
    looks = {"alone": [look(ALONE_NS, 1, 100)], "doubled": [look(DOUBLED_NS, 20, 400)], "outgoing": 0}
    directory = TrialDir(folder / "0001")
    record = write_trial(directory, replace(record_of(spec(), LOADED), slots=looks), LOADED)
    directory.probe.write_text("".join(json.dumps(line) + "\n" for line in taken(stolen, foreign)))
    return measure(directory, record, experiment())


@pytest.mark.parametrize(
    ("stolen", "foreign", "why"),
    [
        pytest.param({}, {}, "", id="by nobody"),
        pytest.param({START_NS: 0.2}, {}, "", id="by the hypervisor, all the time"),
        pytest.param({ALONE_NS: 0.2}, {}, "(0 %, 10 %, 10 %)", id="by the hypervisor, from the looks"),
        pytest.param({START_NS: 0.2, DOUBLED_NS: 0.0}, {}, "(10 %, 10 %, 0 %)", id="by the hypervisor, until one look"),
        pytest.param({}, {DOUBLED_NS: 0.5}, "other programs used", id="by others, from a look"),
        pytest.param({}, {START_NS: 0.5, ALONE_NS: 0.0}, "other programs used", id="by others, from the window alone"),
    ],
)
def test_what_is_taken(tmp_path: Path, stolen: dict[int, float], foreign: dict[int, float], why: str) -> None:
    result = tried(tmp_path, stolen, foreign)
    notes = "".join(problem.message for problem in result.problems if problem.code == "no_slots")
    assert (why in notes) if why else not notes
    assert ("slots" in result.metrics) is not bool(why)


def far_node(error_ns: int) -> dict[str, Any]:
    clock = {"offset_ns": 0, "uncertainty_ns": error_ns, "after_offset_ns": 0, "after_uncertainty_ns": error_ns}
    return {"node": "b", "engines": [0], **clock}


@pytest.mark.parametrize(
    ("connect_ns", "generators", "slots"),
    [
        pytest.param(4 * MS, (), 6, id="from the server's own node"),
        pytest.param(4 * MS, (far_node(3 * MS),), 2, id="from another node"),
        pytest.param(9 * MS, (far_node(2 * MS),), 2, id="from another node, by TLS"),
    ],
)
def test_the_network_between_nodes_is_no_service(
    tmp_path: Path, connect_ns: int, generators: tuple[dict[str, Any], ...], slots: int
) -> None:
    """A request of one user takes 6 ms, 4 of them on the network; ten users get 1,000 answers a second."""
    figures = Figures(users=10, goodput_per_s=1000, window_s=4)
    alone = look(ALONE_NS, 1, 166)
    alone["cohort_times"] = alone["cohort_times"] | {"response_time_ns": histogram([6 * MS] * 83)}
    alone["connections"] = alone["connections"] | {"connect_time_ns": histogram([connect_ns])}
    looks = {"alone": [alone], "doubled": [look(DOUBLED_NS, 20, 1000)], "outgoing": 0}
    directory = TrialDir(tmp_path / "0001")
    record = replace(record_of(spec(), figures), slots=looks, generators=generators)
    metrics = measure(directory, write_trial(directory, record, figures), experiment()).metrics
    assert metrics["slots"] == pytest.approx(slots, rel=0.02)
    assert metrics["alone_time_ns_mean"] == pytest.approx(6 * MS, rel=0.01)
