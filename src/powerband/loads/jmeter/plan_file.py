"""Reads the facts of a JMeter plan that are needed before it is run: that it is a plan, which hosts it loads, and which
of its samples stand for others. In: a .jmx file. Out: a `Plan`.

Only what is written plainly is known: `${__P(name,default)}` with a given property, and variables that the plan
defines. Only JMeter knows what a plan does; the file itself is never changed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from powerband.base.hosts import loadable_host

TREE = "hashTree"
_HOST_PROPERTIES = ("HTTPSampler.domain", "HTTPSampler.proxyHost", "TCPSampler.server")
_PATH = "HTTPSampler.path"
_WHOLE_URL = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
_PROPERTY = re.compile(r"\$\{__P\(([^,()${}]+)(?:,([^()${}]*))?\)\}")
_LONG_PROPERTY = re.compile(r"\$\{__property\(([^,()${}]+)(?:,[^,()${}]*)?(?:,([^()${}]*))?\)\}")
_VARIABLE = re.compile(r"\$\{([\w.-]+)\}")
_ANY = re.compile(r"\$\{[^}]*\}")
_APART = ("SetupThreadGroup", "PostThreadGroup")
_OWN = ("search_paths", "plugin_dependency_paths")
_SCRIPT = re.compile("JSR223|BSF|BeanShell")
_DEPTH = 8  # of variables within variables: arbitrary, they may name each other in a circle
_LENGTH_MAX = 1 << 16  # characters of a host's name, filled in
_BYTES_MAX = 32 * 2**20  # arbitrary: four times what `import` reads; recorded answers may be in it


@dataclass(frozen=True)
class Destination:
    """A host that the plan sends to. `element`: the name of the element that says so; `host`: as it is written there,
    so that it may contain `${...}`. `is_path`: it is the path of a request, which has a host if it is a whole URL."""

    element: str
    host: str
    is_path: bool = False


@dataclass(frozen=True)
class Transaction:
    """A transaction controller and its `name`. `alone`: its sample is reported in place of those within it ("Generate
    parent sample"), not beside them."""

    name: str
    alone: bool

    def is_called(self, label: str) -> bool:
        """True if a sample of this label may be the controller's own; a `${...}` in its name may stand for anything."""
        first, *parts = _ANY.split(self.name)
        if not parts:
            return label == first
        at, end = len(first), len(label) - len(parts[-1])
        if not (label.startswith(first) and label.endswith(parts[-1]) and at <= end):
            return False
        for part in parts[:-1]:  # the earliest place of each part leaves most room for those after it
            found = label.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


@dataclass(frozen=True)
class Plan:
    """The facts of a plan, from its enabled elements only: the number of `thread_groups`, the `destinations` that are
    written plainly, its `transactions`, and the user-defined `variables` by name. `only_tcp`: it has TCP samplers, and
    none of HTTP. `text`: all that its elements say; `elsewhere`: a part of it is in another file.
    `groups_apart`: its thread groups that run before or after the load."""

    thread_groups: int
    destinations: tuple[Destination, ...]
    transactions: tuple[Transaction, ...]
    variables: Mapping[str, str]
    only_tcp: bool = False
    text: str = ""
    elsewhere: bool = False
    groups_apart: frozenset[str] = frozenset()
    samplers: frozenset[str] = frozenset()
    """The names of its samplers, as they are written."""

    def reads(self, name: str) -> bool:
        """True if the plan may read a property of this name, by a function or in a script; JMeter itself reads those
        with a dot in their name."""
        known = re.escape(name)
        named = re.search(rf"""[("'}}]\s*{known}\s*[,)"'$]|\bprops\s*\.\s*{known}\b""", self.text)
        return self.elsewhere or "." in name or name in _OWN or named is not None

    def stands_alone(self, label: str) -> bool:
        """True if a transaction of this label is to be counted, since the samples within it are not reported. False if
        its name leaves that open: counting twice is worse."""
        return {each.alone for each in self.transactions if each.is_called(label)} == {True}

    def replaces_samples(self, label: str) -> bool:
        """True if this may be the label of a transaction that is reported in place of the samples within it, and is no
        sampler's name."""
        return label not in self.samplers and any(each.alone and each.is_called(label) for each in self.transactions)

    def host(self, found: Destination, properties: Mapping[str, str]) -> str | None:
        """Returns a host with properties and variables filled in; None if it depends on anything else, or if it is a
        path without a host."""
        if not found.is_path:
            return self.value(found.host, properties)
        url = _WHOLE_URL.match(self._filled(found.host, properties) or "")
        if url is None or "${" in url[1]:
            return None
        # A name made by a function contains brackets, which no URL has.
        try:
            return urlsplit(f"http://{url[1]}").hostname
        except ValueError:
            return None

    def value(self, text: str, properties: Mapping[str, str]) -> str | None:
        """Returns a text of the plan with properties and variables filled in; None if it depends on anything else."""
        filled = self._filled(text, properties)
        return None if filled is None or "${" in filled else filled.strip()

    def _filled(self, text: str, properties: Mapping[str, str]) -> str | None:
        """Returns a text with all filled in that is known; None if it becomes too long."""

        def given(match: re.Match[str]) -> str:
            name = match[1].strip()
            own_default = "1" if match.re is _PROPERTY else name  # JMeter's own defaults
            # JMeter takes an empty property for one that is not given.
            return properties.get(name) or (own_default if match[2] is None else match[2])

        for _ in range(_DEPTH):
            before = text
            text = _LONG_PROPERTY.sub(given, _PROPERTY.sub(given, text))
            text = _VARIABLE.sub(lambda match: self.variables.get(match[1], match[0]), text)
            if text == before:
                break
            if len(text) > _LENGTH_MAX:
                return None
        return text


def read_plan(path: Path) -> Plan:
    """Reads a plan. Raises ValueError with a sentence if the file is no plan that can be run."""
    try:
        with path.open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
        if len(data) > _BYTES_MAX:
            raise ValueError(f"it is larger than {_BYTES_MAX // 2**20} MiB")
        root = ElementTree.fromstring(data)
    except OSError as error:
        raise ValueError(f"cannot read the JMeter plan {path}: {error.strerror or error}") from None
    except ElementTree.ParseError as error:
        raise ValueError(
            f"{path} is no valid XML ({error}): save the plan again in JMeter, or take it from a copy"
        ) from None
    except (ValueError, LookupError) as error:  # its encoding is unknown, or not the file's
        raise ValueError(f"{path} cannot be read as XML: {error}") from None
    if root.tag != "jmeterTestPlan":
        raise ValueError(
            f"{path} is no JMeter plan: it begins with <{root.tag}>, and a plan with <jmeterTestPlan>; name the .jmx "
            "file that JMeter saves"
        )
    elements = list(_enabled(root))
    tags = {element.tag for element in elements}
    groups = [element for element in elements if element.tag.lower().endswith("threadgroup")]
    if not groups:
        raise ValueError(
            f"{path} has no thread group that is enabled, so it would send nothing: add one in JMeter (Add, "
            "Threads, Thread Group), or enable it"
        )
    return Plan(
        thread_groups=len(groups),
        destinations=tuple(found for element in elements for found in _destinations(element)),
        transactions=tuple(
            Transaction(element.get("testname", ""), _text(element, "TransactionController.parent") == "true")
            for element in elements
            if element.tag == "TransactionController"
        ),
        variables=dict(pair for element in elements for pair in _variables(element)),
        only_tcp="TCPSampler" in tags and not any(tag.startswith("HTTPSampler") for tag in tags),
        text="\n".join(text for element in elements for text in element.itertext()),
        groups_apart=_names(group for group in groups if group.tag in _APART)
        - _names(group for group in groups if group.tag not in _APART),
        samplers=_names(element for element in elements if "Sampler" in element.tag),
        elsewhere="IncludeController" in tags or any(map(_is_in_a_file, elements)),
    )


def check_hosts(plan: Plan, properties: Mapping[str, str], allow_hosts: Collection[str]) -> None:
    """Raises ValueError if the plan loads a host that is neither this machine nor allowed, as far as hosts are written
    plainly."""
    for found in plan.destinations:
        host = plan.host(found, properties)
        if not host:
            continue
        try:
            loadable_host(f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}/", allow_hosts)
        except ValueError as error:
            plain = host in found.host.lower() if found.is_path else host == found.host
            written = "its path" if found.is_path else found.host
            source = "" if plain else f", for which {written} stands with these load.properties"
            raise ValueError(f"the plan's {found.element} goes to {host}{source}: {error}") from None


def _enabled(root: Element) -> Iterator[Element]:
    """Yields every element that JMeter would run. The `hashTree` after an element contains what is within it; if the
    element is disabled, so is its content."""
    waiting = [root]
    while waiting:
        skip = False
        within: list[Element] = []
        for element in waiting.pop():
            if element.tag == TREE:
                if not skip:
                    within.append(element)
                skip = False
                continue
            skip = element.get("enabled") == "false"
            if not skip:
                yield element
        waiting.extend(reversed(within))


def _names(elements: Iterable[Element]) -> frozenset[str]:
    return frozenset(element.get("testname", "") for element in elements)


def _is_in_a_file(element: Element) -> bool:
    """True for a script that is in a file of its own."""
    return _SCRIPT.search(element.tag) is not None and any(
        (child.get("name") or "").endswith("ilename") and child.text for child in element
    )


def _destinations(element: Element) -> Iterator[Destination]:
    name = element.get("testname") or element.tag
    for key in _HOST_PROPERTIES:
        if host := _text(element, key).strip():
            yield Destination(name, host)
    path = _text(element, _PATH).strip()
    if path.lower().startswith(("http", "${")):
        yield Destination(name, path, is_path=True)


def _variables(element: Element) -> Iterator[tuple[str, str]]:
    """Yields user-defined variables: those of the plan, and those of elements of their own."""
    if element.tag not in ("TestPlan", "Arguments"):
        return
    for argument in element.iter("elementProp"):
        if argument.get("elementType") == "Argument" and (name := _text(argument, "Argument.name").strip()):
            yield name, _text(argument, "Argument.value")


def _text(element: Element, name: str) -> str:
    """Returns the text of an element's property; empty if it has none."""
    return next((child.text or "" for child in element if child.get("name") == name), "")
