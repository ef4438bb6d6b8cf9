"""Users who each hold a WebSocket and send messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from powerband.base.errors import FileProblem, UsageError
from powerband.base.hosts import is_websocket
from powerband.base.yaml_document import Node
from powerband.loads.http.kind import Http
from powerband.loads.websocket.checks import check_websocket, with_websocket
from powerband.model.experiment import Subject

if TYPE_CHECKING:
    from powerband.model.results import ErrorKind
    from powerband.readings.evidence import Evidence, Source


class WebSocketUsers(Http):
    """The kind of a load whose users each join with a WebSocket, keep it, and send messages over it."""

    # The least that makes a WebSocket load valid beside one varied key.
    beside_level: ClassVar = {"users": 1, "websocket": {}, "scenario": [{"name": "x", "message": "x"}]}
    users_join = True
    no_capacity = (
        "capacity is the highest rate of requests that come and go, and a WebSocket load has users who stay: take "
        "another objective (goodput, p99) and let load.users or load.pace vary"
    )
    local_url = "ws://127.0.0.1/"

    def check_tree(self, root: Node, subject: Subject | None) -> Iterable[FileProblem]:
        if subject is not None and is_websocket(subject.url):
            return check_websocket(root)
        return super().check_tree(root, subject)  # load.websocket, with an HTTP url

    def filled(self, root: Node, subject: Subject | None) -> Node:
        if subject is not None and is_websocket(subject.url):
            return with_websocket(root)
        return super().filled(root, subject)

    def load_of_options(self, url: str, step: Mapping[str, Node], headers: Node) -> dict[str, Node]:
        """Returns the load of a command line: one message. `step`: its keys that options give; `headers`: the
        handshake's."""
        if "message" not in step:
            raise UsageError(f"--url {url}: a WebSocket load sends messages: name one, for example --message ping")
        websocket = Node({"headers": headers}, f"--url {url}")
        return {"websocket": websocket, "scenario": Node((Node(step, "--url"),), "--url")}

    @property
    def users(self) -> Source:
        from powerband.loads.websocket.measured import USERS

        return USERS

    def corrected(self, evidence: Evidence) -> Evidence:
        from powerband.loads.websocket.measured import with_absent

        return replace(evidence, fleet=with_absent(evidence.fleet, evidence.crowd, evidence.load))

    def errors(self, evidence: Evidence) -> tuple[ErrorKind, ...]:
        from powerband.loads.websocket.failed_requests import user_errors

        return user_errors(evidence)
