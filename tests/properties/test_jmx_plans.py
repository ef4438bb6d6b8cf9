"""Any test plan is converted as a whole, or every obstacle is reported; nothing else happens."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from hypothesis import event, given, settings
from hypothesis import strategies as st

from fakes.plans import Value, element, plan
from powerband.base.errors import UsageError
from powerband.files.experiment_file import parse_experiment
from powerband.jmx.conversion import convert
from powerband.jmx.converted import ConvertedStep
from powerband.jmx.elements.known import KNOWN, REFUSED
from powerband.jmx.plan_findings import ImportRefused
from powerband.jmx.reader import parse_plan
from powerband.jmx.writer import experiment_text
from powerband.model.load import Step

FILE = Path("plan.jmx")
COMMAND = ("./server", "--port", "{port}")
XML_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), max_size=12)
TEXTS = XML_TEXT | st.sampled_from(
    [
        "",
        "0",
        "1",
        "-1",
        "200",
        "2..",
        "true",
        "false",
        "${a}",
        "${__P(p,2)}",
        "${__UUID}",
        "/a b",
        "a=1",
        "${",
        "\\,",
        "yes",
    ]
)
VALUES: st.SearchStrategy[Value] = TEXTS | st.booleans() | st.integers(-1, 10**6) | st.floats(0, 1e6)
NAMES = [
    "ThreadGroup.num_threads", "ThreadGroup.ramp_time", "ThreadGroup.scheduler", "ThreadGroup.duration",
    "ThreadGroup.on_sample_error", "LoopController.loops", "HTTPSampler.path", "HTTPSampler.method",
    "HTTPSampler.domain",
    "HTTPSampler.port", "HTTPSampler.protocol", "HTTPSampler.use_keepalive", "HTTPSampler.postBodyRaw",
    "HTTPSampler.response_timeout", "ConstantTimer.delay", "RandomTimer.range", "throughput", "calcMode",
    "Assertion.test_field", "Assertion.test_type", "DurationAssertion.duration", "filename", "variableNames", "other",
]  # fmt: skip
WILD = ["ThreadGroup", "HTTPSamplerProxy", "GenericController", *KNOWN, *REFUSED, "of.a.stranger.Timer"]
TAME = [
    "HTTPSamplerProxy", "HTTPSamplerProxy", "GenericController", "LoopController", "TransactionController",
    "HeaderManager", "ConstantTimer", "ResponseAssertion", "ConfigTestElement", "Arguments", "ResultCollector",
]  # fmt: skip
METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"]
ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
PATHS = ASCII.map(lambda text: f"/{quote(text, safe='/')}".replace("/.", "/"))
NUMBERS = st.integers(0, 3).map(str)


@st.composite
def good_properties(draw: st.DrawFn, kind: str) -> dict[str, Value]:  # noqa: PLR0911  (a table)
    """Properties with which an element of this kind is converted, most of the time."""
    texts = draw(st.lists(XML_TEXT, max_size=2))
    match kind:
        case "ThreadGroup":
            return {"ThreadGroup.num_threads": "2", "ThreadGroup.ramp_time": draw(NUMBERS)}
        case "HTTPSamplerProxy":
            raw = draw(st.booleans())
            listed: list[Value] = [
                {"HTTPArgument.always_encode": True, "Argument.name": "" if raw else f"p{at}", "Argument.value": text}
                for at, text in enumerate(texts)
            ]
            return {
                "HTTPSampler.domain": "localhost",
                "HTTPSampler.use_keepalive": True,
                "HTTPSampler.path": draw(PATHS),
                "HTTPSampler.method": draw(st.sampled_from(METHODS)),
                "HTTPSampler.postBodyRaw": raw,
                "HTTPsampler.Arguments": {"Arguments.arguments": listed},
            }
        case "ResponseAssertion":
            field, test = draw(st.sampled_from([("response_data", 16), ("response_code", 1)]))
            tests: list[Value] = [f"x{text}" for text in texts] if test == 16 else ["2..|404"]
            return {
                "Assertion.test_field": f"Assertion.{field}",
                "Assertion.test_type": test,
                "Asserion.test_strings": tests,
            }
        case "HeaderManager":
            values = draw(st.lists(ASCII, max_size=2))
            return {
                "HeaderManager.headers": [{"Header.name": f"X-{at}", "Header.value": v} for at, v in enumerate(values)]
            }
        case "LoopController":
            return {"LoopController.loops": draw(NUMBERS)}
        case "ConstantTimer" | "UniformRandomTimer":
            return {"ConstantTimer.delay": draw(NUMBERS), "RandomTimer.range": 1.5}
        case "Arguments":
            return {
                "Arguments.arguments": [{"Argument.name": f"v{at}", "Argument.value": v} for at, v in enumerate(texts)]
            }
    return {}


@st.composite
def elements(draw: st.DrawFn, depth: int, wild: bool) -> str:
    kind = draw(st.sampled_from(WILD if wild else TAME))
    properties = draw(good_properties(kind))
    if wild:
        properties |= draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=2))
    children = draw(st.lists(elements(depth - 1, wild), max_size=3)) if depth else []
    gui = "HttpDefaultsGui" if kind == "ConfigTestElement" else ""
    return element(kind, draw(XML_TEXT), *children, gui=gui, enabled=draw(st.integers(0, 5)) > 0, **properties)


@st.composite
def plans(draw: st.DrawFn) -> str:
    wild = draw(st.booleans())
    inside = draw(st.lists(elements(2, wild), max_size=3))
    asked = element("HTTPSamplerProxy", "Last", **draw(good_properties("HTTPSamplerProxy")))
    users = element("ThreadGroup", "Users", *inside, asked, **draw(good_properties("ThreadGroup")))
    return plan(
        users, *draw(st.lists(elements(1, True), max_size=int(wild))), variables={"a": draw(TEXTS) if wild else "1"}
    )


@settings(max_examples=100)
@given(plans())
def test_any_plan_is_converted_whole_or_refused(text: str) -> None:
    tree = parse_plan(text.encode(), str(FILE))
    try:
        conversion = convert(tree, FILE, {}, ())
    except ImportRefused as refused:
        event("refused")
        assert refused.refusals
        known = {(element.full_path, element.line) for element in tree.walk()}
        assert {(each.path, each.line) for each in refused.refusals} <= known
        assert all(each.why and each.instead for each in refused.refusals)
        return
    event("converted")
    experiment = parse_experiment(experiment_text(conversion, "plan", "plan.jmx", COMMAND), "plan.yaml")
    assert [_as_read(step) for step in experiment.load.scenario] == [_as_converted(step) for step in conversion.steps]


@settings(max_examples=40)
@given(plans(), st.data())
def test_what_is_refused_can_be_left_out_by_its_path(text: str, data: st.DataObject) -> None:
    tree = parse_plan(text.encode(), str(FILE))
    try:
        convert(tree, FILE, {}, ())
    except ImportRefused as refused:
        paths = sorted({each.path for each in refused.refusals} - {tree.full_path})
        if not paths:
            return
        path = data.draw(st.sampled_from(paths))
        try:
            assert any(path in out for out in convert(tree, FILE, {}, [path]).left_out)
        except ImportRefused as still:
            assert path not in {each.path for each in still.refusals}


@settings(max_examples=60)
@given(st.binary(max_size=200) | st.builds(lambda text, at: text.encode()[:at], plans(), st.integers(0, 3000)))
def test_any_bytes_are_a_plan_or_a_clear_error(content: bytes) -> None:
    try:
        parse_plan(content, "plan.jmx")
    except UsageError as error:
        assert str(error).startswith("plan.jmx")


def _as_read(step: Step) -> tuple[object, ...]:
    return (
        step.name,
        step.method,
        step.path,
        step.headers,
        step.body or None,
        step.checks.status,
        step.checks.body_contains,
    )


def _as_converted(step: ConvertedStep) -> tuple[object, ...]:
    request, check = step.request, step.check
    return (
        step.name,
        request.method,
        request.path,
        request.headers,
        request.body or None,
        check.statuses,
        check.contains,
    )
