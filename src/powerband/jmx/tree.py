"""A test plan as a frozen tree: elements with their properties, each with its line. No I/O, no interpretation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Property:
    """One property of an element. `items` are those of a collection, or of an element within the element.

    `fills`: an empty text counts as not set, so that a default replaces it; a number or a switch never does."""

    name: str
    text: str
    line: int
    items: tuple[Property, ...] = ()
    fills: bool = False

    def find(self, name: str) -> Property | None:
        return next((item for item in self.items if item.name == name), None)

    def text_of(self, name: str, default: str = "") -> str:
        found = self.find(name)
        return default if found is None else found.text

    @property
    def is_set(self) -> bool:
        return not (self.fills and self.text == "")


@dataclass(frozen=True)
class Element:
    """One element of a plan. `kind` is its class without JMeter's own package; `path` ends with its name."""

    kind: str
    gui: str
    name: str
    enabled: bool
    line: int
    path: tuple[str, ...]
    properties: tuple[Property, ...] = ()
    children: tuple[Element, ...] = ()

    def find(self, name: str) -> Property | None:
        """The property of this name; None if it is absent or an empty text."""
        return next((each for each in self.properties if each.name == name and each.is_set), None)

    def text_of(self, name: str, default: str = "") -> str:
        found = self.find(name)
        return default if found is None else found.text

    @property
    def full_path(self) -> str:
        return " > ".join(self.path)

    def walk(self) -> Iterator[Element]:
        """This element and all below it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()
