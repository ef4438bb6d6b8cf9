"""The dialects of WebSocket messages that the engine speaks. They are not in `specs.py`, whose models are slow to
import."""

from __future__ import annotations

from typing import Literal, get_args

Dialect = Literal["plain", "socketcluster14", "socketcluster20"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
