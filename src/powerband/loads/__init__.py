"""The kinds of load: HTTP, WebSocket, a JMeter plan, a program that drives itself. A folder holds all of one kind.

The kind of an experiment is asked for here and nowhere else; its object answers everything that depends on it.
"""

from powerband.loads.counted.kind import SelfDriven
from powerband.loads.http.kind import Http
from powerband.loads.jmeter.kind import JMeterPlan
from powerband.loads.kind import LoadKind
from powerband.loads.websocket.kind import WebSocketUsers
from powerband.model.experiment import Experiment
from powerband.model.load import Load

HTTP, WEBSOCKET, JMETER, SELF_DRIVEN = Http(), WebSocketUsers(), JMeterPlan(), SelfDriven()


def kind_of(experiment: Experiment) -> LoadKind:
    """The kind of load that each trial of this experiment has."""
    return SELF_DRIVEN if experiment.subject.counts is not None else kind_of_load(experiment.load)


def kind_of_load(load: Load) -> LoadKind:
    """The same of a load that drives a server."""
    if load.jmeter is not None:
        return JMETER
    return HTTP if load.websocket is None else WEBSOCKET
