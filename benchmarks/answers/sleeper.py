"""A WSGI application whose requests each hold a thread for 50 ms, as if they waited for a database."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

BODY = b"ok\n"


def app(_environ: Mapping[str, object], start_response: Callable[[str, list[tuple[str, str]]], object]) -> list[bytes]:
    time.sleep(0.05)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))])
    return [BODY]
