"""Both sides of the wire read the same examples: the schemas and `powerband.wire` accept `protocol/good` and refuse
`protocol/bad`. `engine/src/contract/schema.rs` tests the engine on the same files, named SCHEMA.CASE.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from pydantic import TypeAdapter, ValidationError

from powerband.wire import link_messages as link_protocol
from powerband.wire.load_events import LOAD_EVENT, OUTCOMES, Outcome
from powerband.wire.message import encode, kind_of
from powerband.wire.probe_events import PROBE_EVENT
from powerband.wire.specs import COMMAND, LoadSpec, ProbeSpec

PROTOCOL = Path(__file__).parents[2] / "protocol"
TYPES: dict[str, TypeAdapter[Any]] = {
    "load-spec": TypeAdapter(LoadSpec),
    "probe-spec": TypeAdapter(ProbeSpec),
    "command": COMMAND,
    "load-event": LOAD_EVENT,
    "probe-event": PROBE_EVENT,
    "link-spec": TypeAdapter(link_protocol.LinkSpec),
    "link-event": link_protocol.LINK_EVENT,
}

# The generated schemas do not list the keys of `outcomes` and `blocked_on_samples`; the two parsers do.
BEYOND_THE_SCHEMA = {"load-event.unknown-outcome", "probe-event.unknown-wait"}


def examples(folder: str) -> list[Any]:
    return [pytest.param(path, id=path.stem) for path in sorted((PROTOCOL / folder).glob("*.json"))]


def schema_of(path: Path) -> Any:
    return json.loads((PROTOCOL / f"{path.name.split('.')[0]}.schema.json").read_text())


def type_of(path: Path) -> TypeAdapter[Any]:
    return TYPES[path.name.split(".")[0]]


@pytest.mark.parametrize("path", examples("good"))
def test_a_good_example_is_accepted(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), schema_of(path))
    type_of(path).validate_json(path.read_text())


@pytest.mark.parametrize("path", examples("bad"))
def test_a_bad_example_is_refused(path: Path) -> None:
    if path.stem not in BEYOND_THE_SCHEMA:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(path.read_text()), schema_of(path))
    with pytest.raises(ValidationError):
        type_of(path).validate_json(path.read_text())


@pytest.mark.parametrize("path", examples("good"))
def test_what_python_writes_is_what_it_read(path: Path) -> None:
    message = type_of(path).validate_json(path.read_text())
    line = encode(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    jsonschema.validate(json.loads(line), schema_of(path))
    assert type_of(path).validate_json(line) == message


def test_every_type_of_message_has_examples_of_both_kinds() -> None:
    for name in TYPES:
        assert list((PROTOCOL / "good").glob(f"{name}.*.json")), name
        assert list((PROTOCOL / "bad").glob(f"{name}.*.json")), name


@pytest.mark.parametrize("name", ["load-event", "probe-event", "link-event"])
def test_every_event_of_the_schema_has_a_good_example(name: str) -> None:
    schema = json.loads((PROTOCOL / f"{name}.schema.json").read_text())
    kinds = {variant["properties"]["type"]["const"] for variant in schema["oneOf"]}
    shown = {json.loads(path.read_text())["type"] for path in (PROTOCOL / "good").glob(f"{name}.*.json")}
    assert shown == kinds


@pytest.mark.parametrize("name", ["load-event", "probe-event", "link-event", "load-spec", "probe-spec", "link-spec"])
def test_both_sides_have_the_same_fields(name: str) -> None:
    theirs = json.loads((PROTOCOL / f"{name}.schema.json").read_text())
    ours = TYPES[name].json_schema()
    assert fields_of(theirs) == fields_of(ours)


def fields_of(schema: Any) -> set[frozenset[str]]:
    """The set of field names of every object in a schema."""
    found: set[frozenset[str]] = set()

    def visit(part: Any) -> None:
        if isinstance(part, dict):
            if isinstance(part.get("properties"), dict):
                found.add(frozenset(part["properties"]))
            for item in part.values():
                visit(item)
        elif isinstance(part, list):
            for item in part:
                visit(item)

    visit(schema)
    return found


def test_the_example_with_every_outcome_has_ours() -> None:
    example = PROTOCOL / "good" / "load-event.interval-with-every-outcome.json"
    assert tuple(json.loads(example.read_text())["outcomes"]) == OUTCOMES
    assert set(OUTCOMES) == set(get_args(Outcome))


def test_the_type_of_a_line_is_seen_without_decoding_it() -> None:
    for path in (PROTOCOL / "good").glob("*-event.*.json"):
        event = json.loads(path.read_text())
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        assert kind_of(line) == event["type"]
    assert kind_of(b'{"at_ns":1,"type":"armed"}') == ""
    assert kind_of(b"garbage") == ""
