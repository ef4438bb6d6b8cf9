"""Test plans as JMeter writes them, made by calls: `plan(group(sampler(path="/x")))` is the XML of a whole file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from powerband.jmx.conversion import convert
from powerband.jmx.converted import Conversion
from powerband.jmx.reader import parse_plan

Value = str | bool | int | float | Sequence["Value"] | Mapping[str, "Value"]


def plan(*children: str, variables: Mapping[str, str] | None = None, name: str = "Test Plan") -> str:
    """The XML of a whole file; `children` stand in the test plan."""
    own = {"TestPlan.user_defined_variables": {"Arguments.arguments": arguments(variables or {})}}
    inner = element("TestPlan", name, *children, **own)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<jmeterTestPlan version="1.2" properties="5.0" jmeter="5.6.3">\n'
        f"<hashTree>\n{inner}</hashTree>\n</jmeterTestPlan>\n"
    )


def element(kind: str, name: str, *children: str, gui: str = "", enabled: bool = True, **properties: Value) -> str:
    """The XML of one element with the hashTree of its children."""
    inside = "".join(_property(key, value) for key, value in properties.items())
    head = f"{kind} guiclass={quoteattr(gui)} testclass={quoteattr(kind)} testname={quoteattr(name)}"
    switch = "" if enabled else ' enabled="false"'
    return f"<{head}{switch}>\n{inside}</{kind}>\n<hashTree>{''.join(children)}</hashTree>\n"


def group(*children: str, name: str = "Users", users: str = "1", loops: str = "-1", **properties: Value) -> str:
    given: dict[str, Value] = {
        "ThreadGroup.num_threads": users,
        "ThreadGroup.ramp_time": "0",
        "ThreadGroup.on_sample_error": "startnextloop",
        "ThreadGroup.main_controller": {"LoopController.continue_forever": False, "LoopController.loops": loops},
    }
    return element("ThreadGroup", name, *children, **{**given, **properties})


def sampler(
    *children: str,
    name: str = "Request",
    path: str = "/",
    method: str = "GET",
    query: Mapping[str, str] | None = None,
    body: str | None = None,
    enabled: bool = True,
    **properties: Value,
) -> str:
    """The XML of an HTTP Request. `query`: parameters that are encoded; `body`: Body Data."""
    given: dict[str, Value] = {
        "HTTPSampler.domain": "127.0.0.1",
        "HTTPSampler.port": "8080",
        "HTTPSampler.path": path,
        "HTTPSampler.method": method,
        "HTTPSampler.use_keepalive": True,
        "HTTPSampler.follow_redirects": False,
        "HTTPSampler.postBodyRaw": body is not None,
        "HTTPsampler.Arguments": {
            "Arguments.arguments": [argument("", body, encodes=False)]
            if body is not None
            else [argument(key, value) for key, value in (query or {}).items()]
        },
    }
    return element("HTTPSamplerProxy", name, *children, enabled=enabled, **{**given, **properties})


def defaults(*pairs: tuple[str, str], name: str = "HTTP Request Defaults", **properties: Value) -> str:
    parameters = {"HTTPsampler.Arguments": {"Arguments.arguments": [argument(key, value) for key, value in pairs]}}
    return element("ConfigTestElement", name, gui="HttpDefaultsGui", **{**parameters, **properties})


def headers(*pairs: tuple[str, str], name: str = "Headers") -> str:
    listed = [{"Header.name": key, "Header.value": value} for key, value in pairs]
    return element("HeaderManager", name, gui="HeaderPanel", **{"HeaderManager.headers": listed})


def timer(kind: str, delay: str = "0", spread: str | None = None, name: str = "Timer") -> str:
    properties: dict[str, Value] = {"ConstantTimer.delay": delay}
    if spread is not None:
        properties["RandomTimer.range"] = spread
    return element(kind, name, **properties)


def assertion(field: str, kind: int, *texts: str, name: str = "Assertion", **properties: Value) -> str:
    given: dict[str, Value] = {
        "Asserion.test_strings": list(texts),
        "Assertion.test_field": f"Assertion.{field}",
        "Assertion.test_type": kind,
    }
    return element("ResponseAssertion", name, **{**given, **properties})


def data(file: str, names: str = "", **properties: Value) -> str:
    given: dict[str, Value] = {"filename": file, "variableNames": names, "delimiter": ",", "recycle": True}
    return element("CSVDataSet", "Data", **{**given, **properties})


def variables(pairs: Mapping[str, str], name: str = "Variables") -> str:
    return element("Arguments", name, gui="ArgumentsPanel", **{"Arguments.arguments": arguments(pairs)})


def arguments(pairs: Mapping[str, str]) -> list[Value]:
    return [{"Argument.name": name, "Argument.value": value, "Argument.metadata": "="} for name, value in pairs.items()]


def argument(name: str, value: str, *, encodes: bool = True) -> dict[str, Value]:
    return {
        "HTTPArgument.always_encode": encodes,
        "Argument.name": name,
        "Argument.value": value,
        "Argument.metadata": "=",
    }


def converted(text: str, *partial: str, folder: Path | None = None, **properties: str) -> Conversion:
    file = (folder or Path()) / "plan.jmx"
    return convert(parse_plan(text.encode(), str(file)), file, properties, partial)


def _property(name: str, value: Value) -> str:
    key = quoteattr(name)
    match value:
        case bool():
            return f"<boolProp name={key}>{str(value).lower()}</boolProp>\n"
        case int():
            return f"<intProp name={key}>{value}</intProp>\n"
        case float():
            inner = f"<name>{escape(name)}</name><value>{value}</value><savedValue>0.0</savedValue>"
            return f"<doubleProp>{inner}</doubleProp>\n"
        case str():
            return f"<stringProp name={key}>{escape(value)}</stringProp>\n"
        case Mapping():
            kind = "HTTPArgument" if "HTTPArgument.always_encode" in value else _ELEMENT_TYPES.get(name, "Argument")
            kind = "Header" if "Header.name" in value else kind
            inside = "".join(_property(each, inner) for each, inner in value.items())
            return f"<elementProp name={key} elementType={quoteattr(kind)}>\n{inside}</elementProp>\n"
        case _:
            inside = "".join(_property(str(index), inner) for index, inner in enumerate(value))
            return f"<collectionProp name={key}>\n{inside}</collectionProp>\n"


_ELEMENT_TYPES = {
    "TestPlan.user_defined_variables": "Arguments",
    "HTTPsampler.Arguments": "Arguments",
    "ThreadGroup.main_controller": "LoopController",
}
