"""A table of all kinds of elements that are converted, and the advice for kinds that are not.

docs/jmeter-import.md contains the same table; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from powerband.jmx.tree import Element


class Role(Enum):
    """The function of an element in its branch of the plan."""

    PLAN = "plan"
    GROUP = "group"
    CONTROLLER = "controller"
    SAMPLER = "sampler"
    VARIABLES = "variables"
    DATA = "data"
    DEFAULTS = "defaults"
    HEADERS = "headers"
    TIMER = "timer"
    PAUSE = "pause"
    ASSERTION = "assertion"
    SILENT = "silent"  # sends nothing and changes nothing that is sent


@dataclass(frozen=True)
class Known:
    """A kind of element that is converted. `label`: its name in JMeter's menus. `role`: its function in the plan.
    `how`: what becomes of it, as one line of the documentation's table."""

    label: str
    role: Role
    how: str


_STEP = "a step: method, path with its query, body, and the headers that JMeter would send with it"
KNOWN: dict[str, Known] = {
    "TestPlan": Known("Test Plan", Role.PLAN, "its user variables are filled in wherever they are used"),
    "ThreadGroup": Known(
        "Thread Group",
        Role.GROUP,
        "`users`, `ramp`, `duration`; a loop count becomes `requests_per_user`. One group: others are refused",
    ),
    "GenericController": Known("Simple Controller", Role.CONTROLLER, "its requests, in place"),
    "RecordingController": Known("Recording Controller", Role.CONTROLLER, "its requests, in place"),
    "TransactionController": Known(
        "Transaction Controller",
        Role.CONTROLLER,
        "its requests, in place; a comment says that their sum is not measured",
    ),
    "LoopController": Known("Loop Controller", Role.CONTROLLER, "its requests, written out as often as it loops"),
    "HTTPSamplerProxy": Known("HTTP Request", Role.SAMPLER, _STEP),
    "HTTPSampler": Known("HTTP Request (Java, before 2.5)", Role.SAMPLER, _STEP),
    "HTTPSampler2": Known("HTTP Request (HttpClient, before 2.5)", Role.SAMPLER, _STEP),
    "ConfigTestElement": Known(
        "HTTP Request Defaults", Role.DEFAULTS, "fills what a request of its branch leaves empty; parameters are added"
    ),
    "HeaderManager": Known(
        "HTTP Header Manager", Role.HEADERS, "`headers` of the requests of its branch; of one name the nearest counts"
    ),
    "Arguments": Known("User Defined Variables", Role.VARIABLES, "filled in wherever they are used"),
    "CSVDataSet": Known(
        "CSV Data Set Config",
        Role.DATA,
        "the scenario is written out once for each row; each user goes through all rows in their order",
    ),
    "ConstantTimer": Known("Constant Timer", Role.TIMER, "`think` of the step before"),
    "UniformRandomTimer": Known("Uniform Random Timer", Role.TIMER, "`think: {uniform: [...]}` of the step before"),
    "GaussianRandomTimer": Known(
        "Gaussian Random Timer", Role.TIMER, "a uniform `think` of the same mean and spread, which a comment says"
    ),
    "PoissonRandomTimer": Known(
        "Poisson Random Timer", Role.TIMER, "a uniform `think` of the same mean and spread, which a comment says"
    ),
    "ConstantThroughputTimer": Known(
        "Constant Throughput Timer",
        Role.TIMER,
        "an open load: `rate`, `arrivals: constant`, `max_in_flight` of as many as there are threads",
    ),
    "PreciseThroughputTimer": Known(
        "Precise Throughput Timer",
        Role.TIMER,
        "the same, but `arrivals: poisson`",
    ),
    "TestAction": Known(
        "Flow Control Action",
        Role.PAUSE,
        "its Pause, with its timers: `think` of the step before; other actions are refused",
    ),
    "ResponseAssertion": Known(
        "Response Assertion",
        Role.ASSERTION,
        "on the code: `check: {status: ...}`; on the text, where it asks for plain text: `check: {contains: ...}`",
    ),
    "DurationAssertion": Known(
        "Duration Assertion",
        Role.ASSERTION,
        "`timeout`, where all requests have the same; a comment says the difference",
    ),
    "ResultCollector": Known("any listener that shows or saves results", Role.SILENT, "left out"),
    "Summariser": Known("Generate Summary Results", Role.SILENT, "left out"),
    "TestFragmentController": Known("Test Fragment", Role.SILENT, "left out"),
    "WorkBench": Known("WorkBench", Role.SILENT, "left out"),
    "ProxyControl": Known("HTTP(S) Test Script Recorder", Role.SILENT, "left out"),
    "HTTPMirrorControl": Known("HTTP Mirror Server", Role.SILENT, "left out"),
}


@dataclass(frozen=True)
class Advice:
    """An answer to a kind of element that is refused. `why`: the reason. `instead`: what the user can do."""

    why: str
    instead: str


_SCRIPT = Advice(
    "it runs a script, and the load generator runs none",
    "write what it computes into the plan as user variables or a CSV file",
)
_EXTRACTOR = Advice(
    "it takes a value out of an answer, and a step sends the same each time",
    "write a value that the server accepts, in a user variable or a CSV file",
)
_CHOICE = Advice(
    "it decides anew what is sent next, and a scenario's steps always follow one another",
    "write the requests into a Simple Controller in the order that matters, or make a plan of each case",
)
_OTHER_GROUP = Advice(
    "it runs before or after the load, and an experiment has one group of users",
    "let the server's own start do it (subject.command, subject.build), or write it into the plan's one Thread Group",
)

REFUSED: dict[str, Advice] = {
    "CookieManager": Advice(
        "the load generator keeps no cookies",
        "where the server needs none, leave it out by name; a session that stays the same can be a Cookie header in an "
        "HTTP Header Manager",
    ),
    "CacheManager": Advice(
        "the load generator has no cache: it sends every request", "leave it out by name, if that is the load you want"
    ),
    "AuthManager": Advice(
        "the load generator answers no challenges", "write an Authorization header into an HTTP Header Manager"
    ),
    "DNSCacheManager": Advice(
        "an experiment loads one server by its address", "leave it out by name: no other name is looked up"
    ),
    "KeystoreConfig": Advice("the load generator sends no client certificates", "use a server that asks for none"),
    "CounterConfig": Advice(
        "a counter gives another value each time, and a step sends the same each time",
        "list the values in a CSV file that a CSV Data Set reads",
    ),
    "RandomVariableConfig": Advice(
        "it draws another value each time, and a step sends the same each time",
        "list the values in a CSV file that a CSV Data Set reads",
    ),
    "UserParameters": Advice(
        "it gives each user values of its own, and all users send the same", "list the values in a CSV file"
    ),
    "SetupThreadGroup": _OTHER_GROUP,
    "PostThreadGroup": _OTHER_GROUP,
    "OpenModelThreadGroup": Advice(
        "its schedule is a program of its own",
        "use a Thread Group with a Precise Throughput Timer, or write load: {rate: ..., arrivals: poisson} yourself",
    ),
    "OnceOnlyController": Advice(
        "it sends a request once for each user, and a scenario's steps are repeated alike",
        "leave it out by name, or take its requests out of it",
    ),
    "IfController": _CHOICE,
    "WhileController": _CHOICE,
    "SwitchController": _CHOICE,
    "RandomController": _CHOICE,
    "RandomOrderController": _CHOICE,
    "InterleaveControl": _CHOICE,
    "ThroughputController": _CHOICE,
    "ForeachController": _CHOICE,
    "RunTime": _CHOICE,
    "CriticalSectionController": Advice(
        "users would wait for each other, and those of a scenario do not", "take its requests out of it"
    ),
    "IncludeController": Advice("it takes its content from another file", "copy that content into this plan"),
    "ModuleController": Advice(
        "it takes its content from elsewhere in the plan", "copy that content to where it is used"
    ),
    "SyncTimer": Advice(
        "it lets users wait for each other, and those of a scenario do not",
        "leave it out by name, or set the ramp-up to 0",
    ),
    "SizeAssertion": Advice(
        "a check of the answer's size is not known",
        "check for a text at the end of the answer (Response Assertion, Substring)",
    ),
    "BackendListener": Advice(
        "powerband sends its figures nowhere", "leave it out by name; powerband has a report and metrics of its own"
    ),
    "RegexExtractor": _EXTRACTOR,
    "BoundaryExtractor": _EXTRACTOR,
    "JSONPostProcessor": _EXTRACTOR,
    "JMESPathExtractor": _EXTRACTOR,
    "HtmlExtractor": _EXTRACTOR,
    "XPathExtractor": _EXTRACTOR,
    "XPath2Extractor": _EXTRACTOR,
    "AnchorModifier": Advice(
        "it reads the links of an answer to choose what is sent next", "write the requests that follow as HTTP Requests"
    ),
    "GraphQLHTTPSampler": Advice(
        "GraphQL requests are not known", "write it as an HTTP Request with the JSON as its body"
    ),
}

_BY_NAME = (
    ("JSR223", _SCRIPT),
    ("BeanShell", _SCRIPT),
    ("BSF", _SCRIPT),
    ("Extractor", _EXTRACTOR),
    ("PreProcessor", Advice("a pre-processor of this kind is not known", "write what it computes into the plan")),
    ("PostProcessor", _EXTRACTOR),
    ("Assertion", Advice(
        "a check of this kind is not known: the status and texts in the body can be checked",
        "use a Response Assertion (Text Response, Substring)",
    )),
    ("Timer", Advice("a timer of this kind is not known", "use one of JMeter's constant, random or throughput timers")),
    ("ThreadGroup", Advice("a thread group of this kind is not known", "use JMeter's own Thread Group")),
    ("Controller", _CHOICE),
    ("Sampler", Advice("only HTTP requests are sent", "leave it out by name, or load that server with another tool")),
    ("Request", Advice("only HTTP requests are sent", "leave it out by name, or load that server with another tool")),
    ("Listener", Advice("a listener of this kind is not known", "leave it out by name: powerband has its own report")),
    ("Collector", Advice("a listener of this kind is not known", "leave it out by name: powerband has its own report")),
)  # fmt: skip
_OTHER_PANEL = Advice(
    "it holds settings of another protocol, or of a kind that is not known",
    "leave it out by name: HTTP Requests do not use it",
)
_ELSE = Advice("an element of this kind is not known", "leave it out by name, if the requests are the same without it")


def role_of(element: Element) -> Role | None:
    """The role of an element; None if it is refused."""
    if element.kind == "ConfigTestElement" and element.gui != "HttpDefaultsGui":
        return None
    if element.kind == "Arguments" and element.gui not in ("", "ArgumentsPanel"):
        return None
    known = KNOWN.get(element.kind)
    return None if known is None else known.role


def advice_on(kind: str) -> Advice:
    """Returns the advice on a kind that is refused: its own, or one that its name suggests."""
    if kind in KNOWN:
        return _OTHER_PANEL
    if kind in REFUSED:
        return REFUSED[kind]
    simple = kind.rsplit(".", 1)[-1]
    return next((advice for word, advice in _BY_NAME if word in simple), _ELSE)
