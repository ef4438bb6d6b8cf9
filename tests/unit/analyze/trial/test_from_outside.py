"""A trial of a server that already ran, or of one in a container: figures that cannot be seen are left out, and figures
of this machine are not taken for those of the server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import Figures, experiment, record_of, spec, write_trial
from powerband.analyze.trial.bottleneck.scene import scene_of
from powerband.analyze.trial.measure import measure
from powerband.model.experiment import Measure, Subject
from powerband.model.load import Step
from powerband.model.results import TrialResult
from powerband.readings.evidence import Evidence
from powerband.readings.fleet import merge_fleet
from powerband.store import TrialDir

SUBJECT = Subject(
    name="there", url="http://there/", deployed=True, apply=(Step(name="knob", method="POST", path="/{threads}"),)
)  # type: ignore[arg-type]


IN_CONTAINER = Subject(name="s", command=("docker", "run", "-p", "{port}:80", "image", "{threads}"))


def measured(
    tmp_path: Path,
    figures: Figures,
    *,
    here: bool = True,
    own_network: bool = False,
    served_by: str = "",
    watched: bool = False,
    subject: Subject = SUBJECT,
    **changes: Any,
) -> TrialResult:
    directory = TrialDir(tmp_path / "0001")
    seen = {"here": here, "own_network": own_network, "served_by": served_by}
    record = replace(record_of(spec(), figures), subject=seen, cpus={})
    write_trial(directory, record, figures)
    if not watched:
        lines = [json.loads(line) for line in directory.probe.read_text().splitlines()]
        for line in lines:
            if line["type"] == "sample":
                line["trees"] = [tree for tree in line["trees"] if tree["name"] != "subject"]
        kept = [line for line in lines if line.get("tree") != "subject"]
        directory.probe.write_text("".join(json.dumps(line) + "\n" for line in kept))
    return measure(directory, record, experiment(subject=subject, **changes))


@pytest.mark.parametrize("here", [True, False])
def test_its_own_figures_are_absent(tmp_path: Path, here: bool) -> None:
    result = measured(tmp_path, Figures(), here=here)
    assert result.valid and result.metrics["goodput_per_s"] == pytest.approx(1000, rel=0.01)
    assert not [name for name in result.metrics if name.startswith(("subject_", "threads_", "rss_"))]
    assert result.bottleneck is None and result.cpus is None


def test_the_accept_queues_of_this_machine_are_not_those_of_another(tmp_path: Path) -> None:
    assert "accept_overflows" not in measured(tmp_path / "a", Figures(), here=False).metrics
    assert "accept_overflows" in measured(tmp_path / "b", Figures(), here=True).metrics
    container = measured(tmp_path / "c", Figures(busy_cores=1.9), here=True, own_network=True)
    assert "accept_overflows" not in container.metrics and "host_foreign_cores" not in container.metrics


@pytest.mark.parametrize(
    ("words", "known"), [((), False), (("--network", "host"), True), (("--net=host",), True), (("-h", "host"), False)]
)
def test_a_full_accept_queue_in_a_network_of_its_own_is_not_seen(
    tmp_path: Path, words: tuple[str, ...], *, known: bool
) -> None:
    subject = Subject(name="s", command=("docker", "run", *words, "-p", "{port}:80", "image", "{threads}"))
    found = measured(tmp_path, Figures(), subject=subject, watched=True)
    assert ("accept_overflows" in found.metrics) is known


def test_busy_programs_beside_the_generator_count_by_what_it_waited(tmp_path: Path) -> None:
    """The server is on another machine, so its CPUs are not those that other programs used here."""
    figures = Figures(busy_cores=1.9, engine_wait=0.0)
    result = measured(tmp_path, figures, here=False)
    assert result.valid and result.metrics["host_foreign_cores"] > 1 and result.held_up < 0.05


@pytest.mark.parametrize(
    ("subject", "apart"), [(SUBJECT, "(taskset)"), (IN_CONTAINER, "(docker's --cpuset-cpus, --cpus)")]
)
def test_advice_names_no_key_that_is_refused_for_it(tmp_path: Path, subject: Subject, apart: str) -> None:
    for name, figures in (("note", Figures(engine_wait=0.0)), ("starved", Figures(engine_wait=0.7))):
        result = measured(tmp_path / name, figures, subject=subject, watched=True)
        advice = [problem.message for problem in result.problems]
        advice += [] if result.bottleneck is None else [each.advice for each in result.bottleneck.candidates]
        assert any(apart in text for text in advice)
        assert [text for text in advice if "host." in text] == []


@pytest.mark.parametrize(
    ("command", "advised"), [(IN_CONTAINER.command, False), (("./gradlew", "run", "{port}", "{threads}"), True)]
)
def test_nobody_who_starts_a_container_is_advised_to_do_so(
    tmp_path: Path, command: tuple[str, ...], *, advised: bool
) -> None:
    """Docker Desktop's own program listens for it, and whose CPUs the container has is not known."""
    subject = Subject(name="s", command=command)
    result = measured(tmp_path, Figures(), subject=subject, served_by="com.docker.backend (pid 7)")
    (told,) = [problem.message for problem in result.problems if problem.code == "served_by_another"]
    assert ("start the server itself" in told) is ("shares CPUs" in told) is advised


@pytest.mark.parametrize("engine_wait", [0.0, 0.7])
def test_a_server_on_another_machine_shares_no_cpus(tmp_path: Path, engine_wait: float) -> None:
    there = measured(tmp_path, Figures(engine_wait=engine_wait), here=False)
    assert "not_pinned" not in {problem.code for problem in there.problems}
    assert ("generator_starved" in {problem.code for problem in there.problems}) is (engine_wait > 0)
    advice = [problem.message for problem in there.problems]
    advice += [] if there.bottleneck is None else [each.advice for each in there.bottleneck.candidates]
    assert [text for text in advice if "shares the server's" in text or "keep server and load" in text] == []


@pytest.mark.parametrize("here", [True, False])
def test_only_a_server_on_this_machine_may_share_the_cpus_of_the_load_generator(*, here: bool) -> None:
    record = replace(record_of(spec(), Figures()), subject={"here": here}, cpus={})
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    seen = Evidence.read(record, experiment(subject=SUBJECT), fleet, (), None)
    assert scene_of(seen, {}, ()).shares_cpus is here


@pytest.mark.parametrize(
    ("begun_on", "later", "subject", "apart"),
    [
        ([0], 1, IN_CONTAINER, True),
        ([0], 2, IN_CONTAINER, False),
        ([0, 1], 2, IN_CONTAINER, False),
        ([], 1, IN_CONTAINER, False),
        ([0], 1, SUBJECT, False),
    ],
)
def test_a_container_on_cpus_of_its_own_shares_none(
    tmp_path: Path, begun_on: list[int], later: int, subject: Subject, apart: bool
) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures(engine_wait=0.0)
    cpus: dict[str, list[int]] = {"subject": [], "engine": [1], "probe": [1]}
    record = replace(record_of(spec(), figures), subject={"own_cpus": begun_on}, cpus=cpus)
    write_trial(directory, record, figures)
    named = '"name": "subject"'
    directory.probe.write_text(directory.probe.read_text().replace(named, f'{named}, "cpus_now": {later}'))
    result = measure(directory, record, experiment(subject=subject))
    assert ("not_pinned" in {problem.code for problem in result.problems}) is not apart


@pytest.mark.parametrize(
    ("whole", "own", "share"), [(2.0, None, 0.2375), (2.0, 4.0, 0.475), (2.0, 2.0, 0.95), (None, 4.0, 0.475)]
)
def test_the_quota_of_powerband_is_none_of_a_container(
    tmp_path: Path, whole: float | None, own: float | None, share: float
) -> None:
    """If the container runs in the one that powerband runs in, the quota is among the container's own, too."""
    directory, figures = TrialDir(tmp_path / "0001"), Figures(subject_cores=1.9, busy_cores=2.2, cpus=8)
    record = replace(record_of(spec(), figures), cpus={}, cpu_quota=whole)
    write_trial(directory, record, figures)
    told = '"name": "subject"' if own is None else f'"name": "subject", "cpu_quota_now": {own}'
    directory.probe.write_text(directory.probe.read_text().replace('"name": "subject"', told))
    metrics = measure(directory, record, experiment(subject=IN_CONTAINER)).metrics
    assert metrics["subject_cpu_share"] == pytest.approx(share, rel=0.02)


@pytest.mark.parametrize("watched", [False, True])
def test_programs_beside_a_server_on_this_machine_may_be_its_own(tmp_path: Path, watched: bool) -> None:
    result = measured(tmp_path, Figures(busy_cores=1.9, engine_wait=0.6), here=True, watched=watched)
    assert result.valid and "host_foreign_cores" not in result.metrics and result.held_up == 0.0
    assert not [problem for problem in result.problems if problem.code.startswith("host_foreign")]


def test_they_count_where_a_limit_is_set_and_the_server_is_watched(tmp_path: Path) -> None:
    limited = Measure(repeats=3, foreign_cpu_max=0.1)
    result = measured(tmp_path, Figures(busy_cores=1.9), here=True, watched=True, measure=limited)
    assert [problem.code for problem in result.problems if problem.fatal] == ["host_foreign"]


def test_of_a_container_that_was_not_found_only_answers_are_judged(tmp_path: Path) -> None:
    result = measured(tmp_path, Figures(busy_cores=1.9), subject=IN_CONTAINER)
    assert result.valid and result.bottleneck is None and "host_foreign_cores" not in result.metrics
    assert not [name for name in result.metrics if name.startswith(("subject_", "threads_", "rss_"))]


def test_the_proxy_before_a_container_is_no_other_program(tmp_path: Path) -> None:
    result = measured(tmp_path, Figures(busy_cores=1.9, engine_wait=0.6), subject=IN_CONTAINER, watched=True)
    assert result.valid and "subject_cpu_cores" in result.metrics and result.bottleneck is not None
    assert "host_foreign_cores" not in result.metrics
