"""Reads what the nodes of a run do, from `nodes_now.json`. In: its text, the plan. Out: a `NodeState` for each node.

A node whose entry is damaged, or whose trial is not in the plan as read so far, is shown as idle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from powerband.live.state import NodeState, TrialPhase, TrialState
from powerband.model.plan import TrialSpec

_PHASES = {
    "": TrialPhase.STARTING,
    "launch": TrialPhase.STARTING,
    "apply": TrialPhase.STARTING,
    "ready": TrialPhase.LAUNCHED,
    "join": TrialPhase.WARMUP,
    "stop": TrialPhase.ENDING,
    **{phase.value: phase for phase in TrialPhase},
}
"""Phases of a trial, by the words that the code that runs trials uses."""


def nodes_now(text: bytes | None, specs: Mapping[int, TrialSpec]) -> tuple[NodeState, ...]:
    """Returns the state of each node. Never raises, whatever the file contains."""
    try:
        told = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        return ()
    nodes = told.get("nodes") if isinstance(told, dict) else None
    return tuple(_node(name, each, specs) for name, each in nodes.items()) if isinstance(nodes, dict) else ()


def _node(name: str, told: object, specs: Mapping[int, TrialSpec]) -> NodeState:
    if not isinstance(told, dict):
        return NodeState(name)
    lost, number, generators = told.get("lost"), told.get("trial"), told.get("load_from")
    load_from = tuple(each for each in generators if isinstance(each, str)) if isinstance(generators, list) else ()
    spec = specs.get(number) if isinstance(number, int) else None
    if spec is None:
        return NodeState(name, lost=lost if isinstance(lost, str) else "", load_from=load_from)
    word = told.get("phase")
    trial = TrialState(
        number=spec.number,
        setting=spec.setting.id,
        block=spec.block,
        stage=spec.stage.value,
        rate_per_s=spec.rate_per_s,
        phase=_PHASES.get(word, TrialPhase.MEASURE) if isinstance(word, str) else TrialPhase.STARTING,
        phase_began_s=_number(told.get("phase_began_s")),
        began_s=_number(told.get("began_s")),
    )
    return NodeState(name, trial, load_from=load_from)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
