"""Writes an experiment as YAML with everything filled in, but for a drain that follows the timeout: a run directory
keeps it, and it loads back to the same value."""

from __future__ import annotations

import io
import re
from typing import Any

from pydantic import BaseModel
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from powerband.base.units import duration_text
from powerband.base.yaml_document import parse_scalar
from powerband.loads import kind_of
from powerband.model.constraint import Constraint
from powerband.model.experiment import Experiment, Objective
from powerband.model.load import Constant, Exponential, Load, Uniform

# Text that needs no quotes anywhere, within [..] and {..} too. All other text gets double quotes, since the emitter
# leaves some text bare that reads back as something else ([?0] is a mapping, [1..4] a range if it is run again).
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./% =<>+*-]*(?<! )")


def resolved_yaml(experiment: Experiment) -> str:
    """Returns the whole experiment in the form of a file, with the subject inline, so that it needs no other file."""
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 10_000  # a folded text is hard to read, and hard to write correctly
    text = io.StringIO()
    yaml.dump(_plain(experiment), text)
    return text.getvalue()


def needs_no_quotes(text: str) -> bool:
    """Returns True if the text, written into YAML without quotes, reads back as the same text everywhere."""
    return _PLAIN.fullmatch(text) is not None and ".." not in text and parse_scalar(text) == text


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _short(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        items = CommentedSeq(_plain(item) for item in value)
        if not any(isinstance(item, dict) for item in items):
            items.fa.set_flow_style()
        return items
    if isinstance(value, str) and not needs_no_quotes(value):
        return DoubleQuotedScalarString(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)  # the server is given a level 1.0 of a range as 1, also if this file is run
    return value


def _short(value: BaseModel) -> Any:
    """Returns a model in the form in which a person writes it."""
    plain: Any
    match value:
        case Constant():
            plain = duration_text(value.ns)
        case Uniform():
            plain = {"uniform": [duration_text(value.min_ns), duration_text(value.max_ns)]}
        case Exponential():
            plain = {"exponential": duration_text(value.mean_ns)}
        case Constraint():
            plain = value.text
        case Objective():
            fields = {key: "100%" if item == 1 else item for key, item in _fields(value).items()}  # a bare 1 is refused
            plain = {fields.pop("direction"): fields.pop("metric"), **fields}
        case Load():
            plain = _fields(value)
            if "drain_ns" not in value.model_fields_set:  # it follows the timeout, also one that varies
                del plain["drain"]
        case Experiment():
            plain, keys = _fields(value), kind_of(value).load_keys
            if keys is not None:  # the others are defaults that nothing reads
                plain["load"] = {key: item for key, item in plain["load"].items() if key in keys}
        case _:
            plain = _fields(value)
    return plain


def _fields(model: BaseModel) -> dict[str, Any]:
    """Returns every field by its key in a file. A field that is None is left out, since None is then its default; only
    an automatic warm-up is written, for the reader."""
    plain = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        key = field.alias or name
        if name == "warmup_ns" and value is None:
            plain[key] = "auto"
        elif name.endswith("_ns") and value is not None:
            plain[key] = duration_text(value)
        elif value is not None:
            plain[key] = _plain(value)
    return plain
