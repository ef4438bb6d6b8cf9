"""The kinds of load: HTTP, WebSocket, a JMeter plan, a program that drives itself. Each folder contains all of one
kind.

Only this module decides which kind an experiment has; the kind's object answers everything that depends on it.
"""

from powerband.base.hosts import is_websocket
from powerband.base.yaml_document import Node
from powerband.loads.counted.kind import SelfDriven
from powerband.loads.http.kind import Http
from powerband.loads.jmeter.kind import JMeterPlan
from powerband.loads.kind import LoadKind
from powerband.loads.websocket.kind import WebSocketUsers
from powerband.model.experiment import Experiment, Subject
from powerband.model.load import Load

HTTP, WEBSOCKET, JMETER, SELF_DRIVEN = Http(), WebSocketUsers(), JMeterPlan(), SelfDriven()


def kind_of(experiment: Experiment) -> LoadKind:
    """Returns the kind of a valid experiment: self-driven if its subject has a counter, else that of its load."""
    return SELF_DRIVEN if experiment.subject.counts is not None else kind_of_load(experiment.load)


def kind_of_load(load: Load) -> LoadKind:
    """Returns the kind of a load that drives a server."""
    if load.jmeter is not None:
        return JMETER
    return HTTP if load.websocket is None else WEBSOCKET


def kind_of_options(url: str, counts: str | None) -> LoadKind:
    """Returns the kind that a command line asks for. `counts`: the counter of a program that drives itself."""
    return kind_of_url(url) if counts is None else SELF_DRIVEN


def kind_of_url(url: str) -> Http:
    """Returns WebSocket users for ws:// and wss://, HTTP for every other url."""
    return WEBSOCKET if is_websocket(url) else HTTP


def kind_in_file(root: Node, subject: Subject | None) -> LoadKind:
    """Returns the kind that a file asks for, before its load is known to be valid. `subject` is None if it is not
    valid."""
    if root.at("subject", "counts").value is not None:
        return SELF_DRIVEN
    if root.at("load", "jmeter").value is not None:
        return JMETER
    if root.at("load", "websocket").value is not None:
        return WEBSOCKET
    is_mapping = isinstance(root.children.get("load", Node({})).value, dict)
    return kind_of_url(subject.url) if subject is not None and is_mapping else HTTP
