"""Writes a conversion as the text of an experiment file, with its differences from JMeter as comments at the top.

Names in a plan are untrusted: in a comment each stays on its line, in a value it is quoted wherever YAML might misread
it.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from powerband.base.units import duration_text, plural
from powerband.files.resolved import needs_no_quotes
from powerband.files.step_forms import METHODS
from powerband.jmx.converted import Conversion, ConvertedLoad, ConvertedStep
from powerband.jmx.elements.timers import Pause

_WIDTH = 110  # of the comments at the top of the file: fits a screen beside line numbers
_NAMED_MAX = 5  # arbitrary: what fits a comment
LONGEST_NS = 3600 * 10**9  # the end of a load whose users leave by themselves
_WARMUP_NS = 30 * 10**9  # the default of measure.warmup_max, once the ramp is over
_PORT = "{port}"
PLACEHOLDER = "./my-server --port {port}"


def experiment_text(conversion: Conversion, name: str, file: str, command: Sequence[str]) -> str:
    """The whole file. Without a command its place holds a comment, and `check` reports that it is missing."""
    root = CommentedMap()
    root["name"] = _text(name)
    root["subject"] = _subject(conversion, command)
    root["load"] = _load(conversion)
    measure = _measure(conversion.load)
    if measure:
        root["measure"] = measure
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 10_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = io.StringIO()
    yaml.dump(root, text)
    return "".join(f"{line}\n" for line in _header(conversion, file)) + text.getvalue()


def summary(conversion: Conversion) -> str:
    """The conversion in one line for the user: `10 users, 3 steps, 4 differences from JMeter`."""
    load = conversion.load
    who = f"{load.rate_per_s:g}/s" if load.rate_per_s is not None else plural(load.users, "user")
    return f"{who}, {plural(len(conversion.steps), 'step')}, {plural(len(conversion.notes), 'difference')} from JMeter"


def _header(conversion: Conversion, file: str) -> Iterator[str]:
    yield from _comment(f"Converted from the JMeter plan {file} ({conversion.plan}, thread group {conversion.group}).")
    yield from _comment(f"The plan asks {conversion.target.url}; here it is the server that powerband starts.")
    if conversion.defaults:
        taken = ", ".join(f"{name}={value}" for name, value in conversion.defaults.items())
        yield from _comment(f"Properties that were not given with -J, at their defaults: {taken}.")
    for path in conversion.left_out:
        yield from _comment(f"LEFT OUT, as asked by --partial: {path}")
    yield "#"
    yield "# What differs from JMeter:"
    for text, names in conversion.notes.items():
        yield from _comment(f"- {text}{_named(names)}", indent="  ")


def _named(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f" ({', '.join(names[:_NAMED_MAX])}{more})"


def _comment(text: str, indent: str = "") -> Iterator[str]:
    one_line = "".join(character if character.isprintable() else "?" for character in text)
    for line in textwrap.wrap(
        one_line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ):
        yield f"# {line}"


def _subject(conversion: Conversion, command: Sequence[str]) -> CommentedMap:
    subject = CommentedMap()
    target = conversion.target
    told = not command or any(_PORT in word for word in command)
    if command:
        subject["command"] = _flow([_text(word) for word in command])
    url = f"{target.scheme}://127.0.0.1:{_PORT if told else target.port}/"
    subject["url"] = DoubleQuotedScalarString(url)
    if not command:
        subject.yaml_set_comment_before_after_key(
            "url", before=f"Fill in how your server is started, for example:\ncommand: {PLACEHOLDER}", indent=2
        )
    return subject


def _load(conversion: Conversion) -> CommentedMap:
    load, steps = conversion.load, conversion.steps
    found = CommentedMap()
    if load.rate_per_s is None:
        found["users"] = load.users
    else:
        found["rate"] = float(f"{load.rate_per_s:.9g}")
        found["arrivals"] = load.arrivals
        found["max_in_flight"] = load.users
    if load.ramp_ns:
        found["ramp"] = duration_text(load.ramp_ns)
    pauses = {step.pause for step in steps}
    alike = len(pauses) == 1
    if alike and steps[0].pause.high_ns:
        found["think"] = _time(steps[0].pause)
    if load.requests_per_user is not None:
        found["requests_per_user"] = load.requests_per_user
    if load.duration_ns is not None:
        found["duration"] = duration_text(load.duration_ns)
    elif load.requests_per_user is not None:
        found["duration"] = duration_text(LONGEST_NS)
    else:
        found["duration"] = "10s"
    if not load.keep_alive:
        found["keep_alive"] = False
    if load.timeout_ns is not None:
        found["timeout"] = duration_text(load.timeout_ns)
    if load.connect_timeout_ns is not None:
        found["connect_timeout"] = duration_text(load.connect_timeout_ns)
    if conversion.target.scheme == "https":
        found["tls_insecure"] = True  # like JMeter, which trusts every certificate
    found["scenario"] = CommentedSeq(_step(step, pauses=not alike) for step in steps)
    return found


def _measure(load: ConvertedLoad) -> CommentedMap:
    """The measured window begins after the ramp, if there is one."""
    measure = CommentedMap()
    if load.warmup_ns is not None:
        measure["warmup"] = duration_text(load.warmup_ns)
    elif load.ramp_ns and load.requests_per_user is None:
        measure["warmup_min"] = duration_text(load.ramp_ns)
        measure["warmup_max"] = duration_text(load.ramp_ns + _WARMUP_NS)
    return measure


def _step(step: ConvertedStep, *, pauses: bool) -> CommentedMap:
    request = step.request
    found = CommentedMap()
    verb = request.method.lower()
    if verb in METHODS:
        found[verb] = _text(request.path)
    else:
        found["method"] = _text(request.method)
        found["path"] = _text(request.path)
    found["name"] = _text(step.name)
    if request.headers:
        found["headers"] = _headers(request.headers)
    if request.body or (
        request.body is not None and verb not in ("post", "put", "patch")
    ):  # these always send a length
        found["body"] = _text(request.body)
    check: dict[str, Any] = {}
    if step.check.statuses:
        statuses = step.check.statuses
        check["status"] = statuses[0] if len(statuses) == 1 else _flow(list(statuses))
    if step.check.contains:
        texts = [_text(text) for text in step.check.contains]
        check["contains"] = texts[0] if len(texts) == 1 else _flow(texts)
    if check:
        found["check"] = _mapping(check)
    if pauses and step.pause.high_ns:
        found["think"] = _time(step.pause)
    return found


def _headers(headers: Sequence[tuple[str, str]]) -> Any:
    """A mapping; a list of pairs if a name occurs twice."""
    if len({name for name, _ in headers}) < len(headers):
        return CommentedSeq(_flow([_text(name), _text(value)]) for name, value in headers)
    return _mapping({_text(name): _text(value) for name, value in headers})


def _time(pause: Pause) -> Any:
    if pause.is_constant:
        return duration_text(pause.low_ns)
    return _mapping({"uniform": _flow([duration_text(pause.low_ns), duration_text(pause.high_ns)])})


def _mapping(items: Mapping[str, Any]) -> CommentedMap:
    found = CommentedMap(items)
    found.fa.set_flow_style()
    return found


def _flow(items: Sequence[Any]) -> CommentedSeq:
    found = CommentedSeq(items)
    found.fa.set_flow_style()
    return found


def _text(text: str) -> str:
    """A text that reads back unchanged: bare, as a literal block, or in double quotes."""
    if needs_no_quotes(text):
        return text
    lines = text.split("\n")
    if len(lines) > 1 and lines[0].strip() and lines[-1].strip() and all(map(_is_plain_line, lines)):
        return cast(str, LiteralScalarString(text))
    return cast(str, DoubleQuotedScalarString(text))


def _is_plain_line(line: str) -> bool:
    return line.isprintable() and not line.endswith(" ")
