"""Users who each hold a WebSocket and send messages."""

from __future__ import annotations

from powerband.loads.kind import LoadKind


class WebSocketUsers(LoadKind):
    """Users who each hold a WebSocket and send messages."""

    name = "websocket"
