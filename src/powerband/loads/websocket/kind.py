"""Users who each hold a WebSocket and send messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from powerband.base.errors import FileProblem, UsageError
from powerband.base.hosts import is_websocket
from powerband.base.yaml_document import Node
from powerband.loads.http.checks import check_http
from powerband.loads.kind import LoadKind
from powerband.loads.websocket.checks import check_websocket
from powerband.model.experiment import Subject


class WebSocketUsers(LoadKind):
    """Users who each hold a WebSocket and send messages."""

    name = "websocket"
    beside_level: ClassVar = {"users": 1, "websocket": {}, "scenario": [{"name": "x", "message": "x"}]}
    users_join = True
    no_capacity = (
        "capacity is the highest rate of requests that come and go, and a WebSocket load has users who stay: take "
        "another objective (goodput, p99) and let load.users or load.pace vary"
    )
    local_url: ClassVar[str] = "ws://127.0.0.1/"

    def check_tree(self, root: Node, subject: Subject | None, problems: list[FileProblem]) -> tuple[Node, bool]:
        if subject is None:
            return root, False
        # A file with load.websocket and the URL of a page: the checks of HTTP name the contradiction.
        check = check_websocket if is_websocket(subject.url) else check_http
        return check(root, subject.url, problems)

    def load_of_options(self, url: str, step: Mapping[str, Node], headers: Node) -> dict[str, Node]:
        """The load of a command line: one message. `step`: its keys that options give; `headers`: the handshake's."""
        if "message" not in step:
            raise UsageError(f"--url {url}: a WebSocket load sends messages: name one, for example --message ping")
        websocket = Node({"headers": headers}, f"--url {url}")
        return {"websocket": websocket, "scenario": Node((Node(step, "--url"),), "--url")}
