"""Makes the command that starts a server with a setting: fills in templates, checks parameters. Pure.

`{name}` is a parameter, a factor, or one of `BUILT_IN`, which powerband fills in (`templates.py` has the syntax). No
text is passed to a shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from powerband.base.errors import did_you_mean
from powerband.base.hosts import LOCAL, loadable_host
from powerband.base.units import parse_bit_rate, parse_duration_ns, plain_duration
from powerband.model.experiment import Experiment, Parameter, Subject
from powerband.model.load import Step
from powerband.model.plan import Level, Setting, format_level
from powerband.model.templates import fill, placeholders

# Names that powerband fills in: the address that the load goes to, free ports, the trial's StatsD sink, the engine, the
# JDK or .NET SDK that was found, the server's own folder, the folder of its build, and the addresses of the services.
PASSWORD = "postgresql_password"
POSTGRESQL = ("postgresql_port", "postgresql_user", "postgresql_database", PASSWORD, f"{PASSWORD}_file")
LINK = ("link_a", "link_b", "link_a_address", "link_b_address")
SERVICES = (*POSTGRESQL, *LINK)  # empty if a setting uses no such service
LINK_DELAY, LINK_RATE = "link_delay", "link_rate"
"""The parameters or factors that describe a link."""
STATSD = ("statsd_port", "statsd_socket")  # a UDP port, and a path
DOTNET = ("dotnet", "dotnet_version")  # a program, and the SDK's major version
ADDRESS = "address"
BUILT_IN = (
    *(ADDRESS, "port", "metrics_port", *STATSD, "engine", "java", "java_home", *DOTNET, "folder", "build"),
    *SERVICES,
)
PORTS = ("port", "metrics_port")
STAND_INS = {**dict.fromkeys(BUILT_IN, "x"), **dict.fromkeys((*PORTS, STATSD[0]), "80"), ADDRESS: LOCAL}
"""A value for each of `BUILT_IN`, so that a template can be filled in before anything is started."""
_HOST_NETWORK = re.compile(r" --net(?:work)?[ =]host(?: |$)")


def render_command(subject: Subject, setting: Setting, given: Mapping[str, str]) -> list[str]:
    """The program that starts the server, and its arguments. `given`: the values of the names in `BUILT_IN`, as far as
    they are used. Raises ExperimentError for an unknown placeholder."""
    values = values_of(subject, setting, given)
    return [fill(part, values, "subject.command") for part in subject.command or ()]


def render_deployed_command(subject: Subject, setting: Setting, given: Mapping[str, str]) -> list[str]:
    """The program that changes the setting of a deployed server, and its arguments; empty if there is none. Raises
    ExperimentError."""
    command = None if subject.deployed is None else subject.deployed.command
    values = values_of(subject, setting, given)
    return [fill(part, values, "subject.deployed.command") for part in command or ()]


def render_env(subject: Subject, setting: Setting, given: Mapping[str, str]) -> dict[str, str]:
    """The variables added to the server's environment. Raises ExperimentError."""
    values = values_of(subject, setting, given)
    return {name: fill(text, values, f"subject.env.{name}") for name, text in subject.env.items() if text is not None}


def render_text(subject: Subject, setting: Setting, given: Mapping[str, str], text: str) -> str:
    """Any other template of a server, such as its url or metrics_url, filled in. Raises ExperimentError."""
    return fill(text, values_of(subject, setting, given), "subject")


def values_of(subject: Subject, setting: Setting, given: Mapping[str, str]) -> dict[str, str]:
    """The value of each placeholder: `given`, else a factor's level, else the experiment's `set` value, else the
    default. A duration is written as every program reads it."""
    found = {name: format_level(level) for name, level in subject.levels_at(setting).items()}
    for name, parameter in subject.parameters.items():
        if parameter.type == "duration":
            found[name] = plain_duration(found[name])
    return {**found, **given}


def templates_of(subject: Subject) -> list[str]:
    """Every text of a server in which placeholders are filled in."""
    optional = (subject.ready.http, subject.ready.log, subject.cwd, subject.metrics_url, subject.visitor_url)
    given = [text for text in optional if text is not None]
    return [*command_and_env(subject), subject.url, *given, *knob_templates(subject)]


def knob_templates(subject: Subject) -> list[str]:
    """The templates that change the setting of a server while it runs."""
    command = () if subject.deployed is None else subject.deployed.command or ()
    return [*map(_texts_of, subject.apply), *command]


def command_and_env(subject: Subject) -> list[str]:
    """The templates of the server's command and environment."""
    return [*(subject.command or ()), *(text for text in subject.env.values() if text is not None)]


def has_statsd_sink(subject: Subject) -> bool:
    """True if the server's command or env names the StatsD sink, so that each trial has one."""
    return bool(placeholders(command_and_env(subject)) & set(STATSD))


def has_series(subject: Subject) -> bool:
    """True if the server has figures of its own: on its metrics page, or sent to the StatsD sink."""
    return subject.metrics_url is not None or has_statsd_sink(subject)


def check_metrics_page(experiment: Experiment) -> None:
    """Raises ValueError if the server's metrics page is on a host that may not be loaded."""
    if experiment.subject.metrics_url is not None:
        page = render_text(experiment.subject, experiment.settings()[0], STAND_INS, experiment.subject.metrics_url)
        try:
            loadable_host(page, experiment.allow_hosts)
        except ValueError as error:
            raise ValueError(f"subject.metrics_url: {error}") from None


def service_parameters(subject: Subject) -> set[str]:
    """Parameters and factors that choose or configure a service; they need not occur in a template."""
    asked = {name for service in subject.services.values() for name in service.when}
    return asked | ({LINK_DELAY, LINK_RATE} if "link" in subject.services else set())


def uses(subject: Subject, name: Literal["postgresql", "link"], setting: Setting) -> bool:
    """True if a setting needs this service: the subject has it, and the setting has every value in the service's
    `when`."""
    service, levels = subject.services.get(name), subject.levels_at(setting)
    return service is not None and all(
        name in levels and format_level(levels[name]) == format_level(level) for name, level in service.when.items()
    )


def on_host_network(command: Sequence[str]) -> bool:
    """True if a command that runs a container gives it the network of the machine."""
    return _HOST_NETWORK.search(" ".join(command)) is not None


def link_of(subject: Subject, setting: Setting) -> tuple[int, int | None]:
    """The link that a setting needs: its delay one way in ns, and its rate in bits per second (None: no limit). Raises
    ValueError."""
    levels = subject.levels_at(setting)
    return parse_duration_ns(levels[LINK_DELAY]), parse_bit_rate(levels[LINK_RATE])


def render_step(subject: Subject, setting: Setting, given: Mapping[str, str], step: Step) -> Step:
    """A request of `subject.apply`, filled in. Raises ExperimentError."""
    values = values_of(subject, setting, given)
    changes = {
        "path": fill(step.path, values, "subject.apply"),
        "name": fill(step.name, values, "subject.apply"),
        "body": None if step.body is None else fill(step.body, values, "subject.apply"),
        "headers": tuple((name, fill(text, values, "subject.apply")) for name, text in step.headers),
    }
    return step.model_copy(update=changes)


def _texts_of(step: Step) -> str:
    return "\n".join([step.path, step.body or "", *(text for _, text in step.headers)])


def check_level(parameter: Parameter, level: Level) -> None:
    """Raises ValueError if a value is not of the parameter's type."""
    shown = format_level(level)
    match parameter.type:
        case "int" if isinstance(level, bool) or not isinstance(level, int):
            raise ValueError(f"{shown} is no whole number")
        case "float" if isinstance(level, bool) or not isinstance(level, int | float):
            raise ValueError(f"{shown} is no number")
        case "bool" if not isinstance(level, bool):
            raise ValueError(f"{shown} must be true or false")
        case "duration":
            if not isinstance(level, str) and level != 0:
                raise ValueError(f"{shown} has no unit: write {shown}s, {shown}ms or another of ns, us, ms, s, m, h")
            parse_duration_ns(level)
        case "choice":
            choices = [format_level(choice) for choice in parameter.choices]
            if shown not in choices:
                raise ValueError(f"{shown} is not one of its choices; {did_you_mean(shown, choices)}")
