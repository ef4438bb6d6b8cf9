"""Users or arrivals that send HTTP/1.1 requests: the kind of every load that is no other."""

from __future__ import annotations

from powerband.loads.kind import LoadKind


class Http(LoadKind):
    """Users or arrivals that send HTTP/1.1 requests: the kind of every load that is no other."""

    name = "http"
