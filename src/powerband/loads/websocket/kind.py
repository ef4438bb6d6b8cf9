"""Users who each hold a WebSocket and send messages."""

from __future__ import annotations

from powerband.loads.kind import LoadKind
from powerband.loads.websocket.errors import user_errors
from powerband.loads.websocket.measured import USERS
from powerband.model.results import ErrorKind
from powerband.readings.evidence import Evidence


class WebSocketUsers(LoadKind):
    """Users who each hold a WebSocket and send messages."""

    name = "websocket"
    users = USERS

    def errors(self, evidence: Evidence) -> tuple[ErrorKind, ...]:
        return user_errors(evidence)
