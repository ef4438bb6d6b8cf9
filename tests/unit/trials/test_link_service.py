"""`services: {link: ...}` in an experiment file: missing keys are reported with their place."""

from __future__ import annotations

import pytest

from powerband.base.errors import ExperimentError, SubjectError
from powerband.base.units import parse_bit_rate
from powerband.files.experiment_file import parse_experiment
from powerband.model.subjects import link_of
from powerband.trials.services import check_services

FILE = """\
name: linked
subject:
  command: "./s {port} {link_b} {link_b_address}"
  services: {link: {when: {where: netns}}}
  parameters:
    where: {type: choice, choices: [here, netns], default: netns, help: x}
    link_delay: {type: duration, default: 500us, help: x}
    link_rate: {type: string, default: 1gbit, help: x}
factors: {link_delay: [0ms, 2ms]}
load: {users: 1}
"""


def errors_of(text: str) -> list[str]:
    with pytest.raises(ExperimentError) as caught:
        parse_experiment(text, "x.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_parameters_that_only_the_link_needs_stand_in_no_template() -> None:
    experiment = parse_experiment(FILE, "x.yaml")
    delays = [link_of(experiment.subject, setting) for setting in experiment.settings()]
    assert delays == [(0, 10**9), (2_000_000, 10**9)]


def test_a_server_written_inline_has_them_as_factors() -> None:
    text = """\
name: inline
subject: {command: "./s {port} {link_b}", services: {link: {}}, set: {link_rate: 10mbit}}
factors: {link_delay: [1ms, 2ms]}
load: {users: 1}
"""
    experiment = parse_experiment(text, "x.yaml")
    assert [link_of(experiment.subject, setting) for setting in experiment.settings()][1] == (2_000_000, 10_000_000)


MISTAKES = {
    "no rate": (
        FILE.replace("    link_rate: {type: string, default: 1gbit, help: x}\n", ""),
        "subject.services.link in x.yaml:4:14: nothing says what the link is like: it needs link_delay",
    ),
    "a wrong rate": (
        FILE.replace("1gbit", "fast"),
        "subject.parameters.link_rate.default in x.yaml:8:40: 'fast' is no bandwidth: write 100mbit, 1gbit",
    ),
    "a wrong delay": (
        FILE.replace("[0ms, 2ms]", "[0ms, 2]"),
        "factors.link_delay[1] in x.yaml:9:29: 2 has no unit",
    ),
    "a when that is nothing": (
        FILE.replace("{where: netns}", "{were: netns}"),
        "subject.services.link.when.were in x.yaml:4:28: there is no parameter were; did you mean where?",
    ),
    "no service": (
        FILE.replace("  services: {link: {when: {where: netns}}}\n", "").replace(
            "{port}", "{port} {where} {link_delay} {link_rate}"
        ),
        "subject.command in x.yaml:3:12: {link_a}, {link_b} and their addresses are those of a link",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_place(name: str) -> None:
    text, said = MISTAKES[name]
    found = errors_of(text)
    assert any(problem.startswith(said) for problem in found), found


def test_a_link_and_a_database_at_once_are_refused() -> None:
    both = FILE.replace("services: {link:", "services: {postgresql: {}, link:")
    with pytest.raises(SubjectError, match=r"link_delay=0ms asks for a link and for PostgreSQL"):
        check_services(parse_experiment(both, "x.yaml"))


def test_nothing_is_asked_of_the_machine_where_no_setting_uses_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERBAND_ENGINE", "/nowhere")
    check_services(parse_experiment(FILE.replace("default: netns", "default: here"), "x.yaml"))


@pytest.mark.parametrize(
    ("text", "bits_per_s"),
    [("100mbit", 10**8), ("1.5 Gbit/s", 1_500_000_000), ("64kbit", 64_000), ("1000bit", 1000), ("unlimited", None)],
)
def test_bandwidths_are_read(text: str, bits_per_s: int | None) -> None:
    assert parse_bit_rate(text) == bits_per_s


@pytest.mark.parametrize("text", ["100", "1gb", "100mbyte", "0mbit", "999bit", "2000gbit", "", "-1mbit", None, True])
def test_what_is_no_bandwidth_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="is no bandwidth"):
        parse_bit_rate(text)
