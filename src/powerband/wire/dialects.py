"""The dialects of WebSocket messages that the engine speaks; apart from `specs.py`, whose models take their time."""

from __future__ import annotations

from typing import Literal, get_args

Dialect = Literal["plain", "socketcluster14", "socketcluster20"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
