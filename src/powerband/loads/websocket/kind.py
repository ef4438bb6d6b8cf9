"""Users who each hold a WebSocket and send messages."""

from __future__ import annotations

from powerband.loads.http.kind import Http


class WebSocketUsers(Http):
    """Users who each hold a WebSocket and send messages."""

    name = "websocket"
    users_join = True
