"""Users or arrivals that send HTTP/1.1 requests: the kind of every load that is no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from powerband.base.errors import FileProblem
from powerband.base.hosts import request_target
from powerband.base.yaml_document import Node
from powerband.loads.http.checks import check_http, check_open, check_pipeline, with_scenario
from powerband.loads.kind import LoadKind
from powerband.model.experiment import Experiment, Subject
from powerband.model.load import Load

if TYPE_CHECKING:
    from powerband.loads.driver import Driver, DriverSetup
    from powerband.processes.subject_process import RunningSubject


class Http(LoadKind):
    """The kind of a load that a fleet of engines sends as HTTP/1.1 requests."""

    local_url: ClassVar[str] = "http://127.0.0.1/"
    """A url of this machine. It stands for the server's while the options of a load are checked alone."""

    def check_tree(self, root: Node, subject: Subject | None) -> Iterable[FileProblem]:
        return () if subject is None else check_http(root, subject.url)

    def filled(self, root: Node, subject: Subject | None) -> Node:
        return root if subject is None else with_scenario(root, subject.url)

    def check_to_run(self, experiment: Experiment, root: Node) -> Iterable[FileProblem]:
        yield from check_open(root)
        yield from check_pipeline(experiment, root)

    def load_of_options(self, url: str, step: Mapping[str, Node], headers: Node) -> dict[str, Node]:
        """Returns the load of a command line: one request, whose path is the URL's. `step`: its keys that options
        give."""
        path, method = Node(request_target(url), f"--url {url}"), Node("GET", "--method GET")
        request = Node({"path": path, "headers": headers, "method": method, **step}, "--url")
        return {"scenario": Node((request,), "--url")}

    def driver(self, setup: DriverSetup, subject: RunningSubject) -> AbstractContextManager[Driver]:
        from powerband.loads.http.driver import engines_up

        return engines_up(setup, subject)

    def counts_slots(self, experiment: Experiment, load: Load) -> bool:
        """True for users of requests who never pause; a single user has nobody to be compared with. False if the server
        prints a count of its work when it ends (`subject.last_words`), since that should count the load alone."""
        wanted = experiment.measure.slots and experiment.subject.last_words is None
        return wanted and load.websocket is None and load.never_pauses and (load.users or 0) > 1

    def fails_every_trial(self, experiment: Experiment, code: str) -> bool:
        """True for a limit of this machine, unless a factor changes the load."""
        from powerband.processes.failures import Code

        limits = (Code.DESCRIPTOR_LIMIT, Code.PORT_LIMIT)
        return code in limits and not any(name.startswith("load.") for name in experiment.factors)
