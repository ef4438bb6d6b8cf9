"""The terminal that answers and progress are printed on. Control characters in the texts of servers, files and threads
have no effect on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from powerband.base.logs import printable


class Terminal(Console):
    """A console; if stderr has no reader any more, it is silent, so that nobody ends a run by not watching it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Replaces control characters in what rich has made of an object, apart from rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> None:
        """Goes silent on stderr; on stdout, ends the program as rich does."""
        if not self.stderr:
            super().on_broken_pipe()
        self.quiet = True
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), sys.stderr.fileno())

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError:  # a terminal that was closed
            if not self.stderr:
                raise
            self.on_broken_pipe()
