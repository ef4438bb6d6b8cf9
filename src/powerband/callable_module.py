"""Lets `powerband.run(...)` and `powerband.tune(...)` be called, though a package and a module of ours are called so.
Importing any part of them makes the name stand for the module, so the module itself is what can be called.

It hands on to the function of the same name in `powerband.api`, which is imported at the first call."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    """A module that stands for a function as well."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._function(*arguments, **options)

    @property
    def __signature__(self) -> Any:  # what a notebook shows for `powerband.run?`
        import inspect  # noqa: PLC0415 - slow to import, and seldom wanted

        return inspect.signature(self._function)

    @property
    def _function(self) -> Any:
        return getattr(import_module("powerband.api"), self.__name__.rpartition(".")[2])


def make_callable(name: str) -> None:
    """To be called by the module of this name while it is imported."""
    sys.modules[name].__class__ = CallableModule
