"""A test plan as a frozen tree: elements with their properties, each with its line. No I/O, no interpretation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Property:
    """One property of an element. `name`, `text`: as in the file, empty if it has none. `line`: where it stands.
    `items`: those of a collection, or of an element within the element.

    `fills`: an empty text counts as not set, so that a default replaces it; a number or a switch never does."""

    name: str
    text: str
    line: int
    items: tuple[Property, ...] = ()
    fills: bool = False

    def find(self, name: str) -> Property | None:
        """The item of this name; None if there is none."""
        return next((item for item in self.items if item.name == name), None)

    def text_of(self, name: str, default: str = "") -> str:
        """The text of the item of this name; `default` if there is none."""
        found = self.find(name)
        return default if found is None else found.text

    @property
    def is_set(self) -> bool:
        """False if the text is empty and a default replaces it."""
        return not (self.fills and self.text == "")


@dataclass(frozen=True)
class Element:
    """One element of a plan. `kind`: its class without JMeter's own package. `gui`: the class of its panel in JMeter,
    by which elements of one kind differ. `name`: as the user called it. `enabled`: False if the user switched it off.
    `line`: where it stands in the file. `path`: the names of the elements around it and its own. `properties`;
    `children`: the elements below it, in order."""

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
        """The text of the property of this name; `default` if it is absent or an empty text."""
        found = self.find(name)
        return default if found is None else found.text

    @property
    def full_path(self) -> str:
        """The path in one line, as `--partial` and refusals write it."""
        return " > ".join(self.path)

    def walk(self) -> Iterator[Element]:
        """This element and all below it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()
