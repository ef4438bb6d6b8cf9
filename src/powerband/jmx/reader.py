"""Reads the XML of a test plan, as written by JMeter 2.1 to 5.6. In: text. Out: the frozen tree.

Safe with untrusted files: a document type or an entity is refused before it could be expanded, and size, depth and
number of elements are bounded. The meaning of elements is not decided here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from powerband.base.errors import UsageError
from powerband.jmx.encodings import decoded
from powerband.jmx.tree import Element, Property

BYTES_MAX = 8 * 2**20  # arbitrary: far above a plan without recorded answers; expat holds all of it
NODES_MAX = 100_000  # arbitrary: 8 MiB of empty elements would be a million nodes
DEPTH_MAX = 200  # arbitrary: each level becomes a nested call, of which Python allows a thousand
PATH_MAX = 2000  # characters of an element's name, with the names of those around it: arbitrary

_BOMS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_DECLARED = re.compile(rb"""\A\s*<\?xml[^>]*?\bencoding\s*=\s*["']([A-Za-z][A-Za-z0-9._-]*)["']""")
_OWN_PACKAGE = re.compile(r"org\.apache\.jmeter\.(?:\w+\.)*")
_TEXTS = ("stringProp", "property")
_NAMED_INSIDE = ("doubleProp", "floatProp", "objProp")  # their name and value are elements of their own


def read_plan(path: Path) -> Element:
    """The test plan of a file. Raises UsageError."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    return parse_plan(data, str(path))


def parse_plan(data: bytes, file: str) -> Element:
    """Like `read_plan`, from the file's bytes. Raises UsageError with the file's name and the line."""
    if len(data) > BYTES_MAX:
        raise UsageError(f"{file} is larger than {BYTES_MAX // 2**20} MiB, which no test plan is")
    root = _Reader(file).read(_decoded(data, file))
    if root.tag != "jmeterTestPlan":
        raise UsageError(f"{file}:{root.line}: no JMeter test plan: it begins with <{root.tag}>, not <jmeterTestPlan>")
    for tree in root.children:
        if tree.tag == "hashTree":
            plans = [element for element in _elements(tree, (), file) if element.kind == "TestPlan"]
            if plans:
                return plans[0]
    raise UsageError(f"{file}: there is no Test Plan element in it: open it in JMeter and save it again")


@dataclass
class _Node:
    """One XML element while the file is read."""

    tag: str
    attributes: dict[str, str]
    line: int
    texts: list[str] = field(default_factory=list)
    children: list[_Node] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def _decoded(data: bytes, file: str) -> str:
    """The text, decoded by its byte order mark, else by the encoding in the XML declaration, else as UTF-8."""
    declared = _DECLARED.match(data)
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), None)
    if encoding is None:
        encoding = declared[1].decode("ascii") if declared else "utf-8"
    try:
        return decoded(data, encoding)
    except LookupError as error:
        raise UsageError(f"{file}: {error}") from None
    except ValueError as error:
        raise UsageError(f"{file} is not text in the encoding {encoding}, as it says: {error}") from None


class _Reader:
    """The Expat parser with its dangerous features refused."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.open: list[_Node] = []
        self.root: _Node | None = None
        self.count = 0
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.EntityDeclHandler = self._doctype

    def read(self, text: str) -> _Node:
        try:
            self.parser.Parse(text.encode("utf-8", "surrogatepass"), True)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            raise UsageError(f"{self.file}:{error.lineno}: not valid XML: {what}") from None
        assert self.root is not None
        return self.root

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        self.count += 1
        if self.count > NODES_MAX or len(self.open) >= DEPTH_MAX:
            raise UsageError(f"{self.file}:{line}: more elements, or more deeply nested ones, than a test plan has")
        node = _Node(tag, attributes, line)
        if self.open:
            self.open[-1].children.append(node)
        else:
            self.root = node
        self.open.append(node)

    def _end(self, tag: str) -> None:
        self.open.pop()

    def _characters(self, text: str) -> None:
        if self.open:
            self.open[-1].texts.append(text)

    def _doctype(self, *_: object) -> None:
        raise UsageError(
            f"{self.file}:{self.parser.CurrentLineNumber}: it declares a document type or an entity; JMeter writes "
            "none, and they are not read: remove the <!DOCTYPE ...> part"
        )


def _elements(tree: _Node, above: tuple[str, ...], file: str) -> tuple[Element, ...]:
    """The elements of a hashTree; the hashTree after each element contains its children."""
    found: list[Element] = []
    nodes = tree.children
    for index, node in enumerate(nodes):
        if node.tag == "hashTree":
            if index == 0 or nodes[index - 1].tag == "hashTree":
                raise UsageError(f"{file}:{node.line}: a hashTree that belongs to no element before it")
            continue
        after = nodes[index + 1] if index + 1 < len(nodes) else None
        below = after if after is not None and after.tag == "hashTree" else None
        found.append(_element(node, below, above, file))
    return tuple(found)


def _element(node: _Node, below: _Node | None, above: tuple[str, ...], file: str) -> Element:
    if node.tag == "testelement":
        raise UsageError(
            f"{file}:{node.line}: written by a JMeter before 2.1: open it in a newer JMeter and save it again"
        )
    kind = _kind(node.attributes.get("testclass") or node.tag)
    name = node.attributes.get("testname") or kind
    path = (*above, name)
    if sum(map(len, path)) > PATH_MAX:
        raise UsageError(
            f"{file}:{node.line}: its name and those around it are longer than a test plan's are: shorten it"
        )
    return Element(
        kind=kind,
        gui=_kind(node.attributes.get("guiclass", "")),
        name=name,
        enabled=node.attributes.get("enabled", "true").strip().lower() != "false",
        line=node.line,
        path=path,
        properties=tuple(_property(child) for child in node.children),
        children=() if below is None else _elements(below, path, file),
    )


def _kind(name: str) -> str:
    """The class name: without the package for JMeter's own classes, with it for others."""
    own = _OWN_PACKAGE.match(name)
    return name[own.end() :] if own else name


def _property(node: _Node) -> Property:
    name = node.attributes.get("name", "")
    if node.tag in _NAMED_INSIDE:
        inside = {child.tag: child for child in node.children}
        value = inside.get("value")
        name = name or (inside["name"].text if "name" in inside else "")
        return Property(name, value.text.strip() if value and not value.children else "", node.line)
    return Property(
        name or node.tag,
        "" if node.children else node.text if node.tag in _TEXTS else node.text.strip(),
        node.line,
        tuple(_property(child) for child in node.children),
        fills=node.tag in _TEXTS,
    )
