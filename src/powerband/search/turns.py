"""Records and replays the calls to a planner, `ask` and `tell`, in their order, so that the planner can be rebuilt.

On one machine the order is that of the trials' numbers: each `tell` came before the next `ask`. If blocks were in
flight on several nodes, `turns.jsonl` of the run directory has a line for each call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from powerband.base.errors import UsageError
from powerband.model.experiment import Experiment
from powerband.model.plan import Stage, TrialSpec
from powerband.model.results import TrialResult
from powerband.search.planner import Planner
from powerband.search.planners import planner_for
from powerband.store import NOT_AS_WRITTEN, RunDir, open_private, read_json_lines, write_atomically, writing

_REPLANNED = {Stage.EXPLORE, Stage.SATURATE, Stage.CAPACITY}
"""The stages of trials that earlier versions planned in another order on several nodes."""


@dataclass(frozen=True)
class Turn:
    """One call: `ask` returned the trial with this `number`, or (`told`) `tell` received its result. `block`: the
    argument of `ask`; `node`: the node that ran the trial; empty on one machine."""

    number: int
    told: bool = False
    block: int | None = None
    node: str = ""

    def to_json(self) -> dict[str, object]:
        """The line of `turns.jsonl`."""
        return {"told": self.number} if self.told else {"asked": self.number, "in": self.block, "node": self.node}


@dataclass(frozen=True)
class Turns:
    """The calls to the planner of a run. `nodes`: how many nodes the run began with. `turns`: None for a run on one
    machine."""

    nodes: int = 1
    turns: tuple[Turn, ...] | None = None

    @classmethod
    def read(cls, run: RunDir) -> Turns:
        """Reads `turns.jsonl`, without a line that a kill cut off."""
        nodes, turns = 1, []
        for line in read_json_lines(run.turns, damaged=lambda error: None):
            with suppress(*NOT_AS_WRITTEN):
                if "nodes" in line:
                    nodes = max(1, int(line["nodes"]))
                elif "told" in line:
                    turns.append(Turn(int(line["told"]), told=True))
                else:
                    turns.append(Turn(int(line["asked"]), False, line["in"], str(line["node"])))
        return cls(nodes, tuple(turns) if run.turns.is_file() else None)

    @property
    def in_flight(self) -> set[int]:
        """The numbers of the trials that were asked for and not told; empty for a run on one machine."""
        turns = self.turns or ()
        return {turn.number for turn in turns} - {turn.number for turn in turns if turn.told}

    def of(self, numbers: Iterable[int]) -> Iterator[Turn]:
        """The calls; for a run on one machine, those for the trials with these numbers."""
        if self.turns is not None:
            yield from self.turns
            return
        for number in numbers:
            yield Turn(number)
            yield Turn(number, told=True)

    def planner(self, experiment: Experiment) -> Planner:
        """A new planner of the experiment, for this number of nodes, which has received no result."""
        return planner_for(experiment, experiment.design.seed or 0, nodes=self.nodes)


@dataclass
class Replayed:
    """The calls that were repeated, `turns`. `asked`: the trials that `ask` returned, by number; `in_flight`: by number
    the node of each whose result `tell` did not receive; `node_of`: the node of each block."""

    turns: list[Turn] = field(default_factory=list)
    asked: dict[int, TrialSpec] = field(default_factory=dict)
    in_flight: dict[int, str] = field(default_factory=dict)
    node_of: dict[int, str] = field(default_factory=dict)


def replay(
    run: RunDir,
    planner: Planner,
    turns: Iterable[Turn],
    ran: Mapping[int, TrialSpec],
    results: Mapping[int, TrialResult],
) -> Replayed:
    """Repeats the calls up to the first whose result is not known. `ran`: the trials as they ran, as far as known.
    Raises UsageError if the planner plans other trials than those."""
    replayed = Replayed()
    for turn in turns:
        if turn.told:
            result = results.get(turn.number)
            if result is None or turn.number not in replayed.in_flight:
                break
            planner.tell(result)
            del replayed.in_flight[turn.number]
            replayed.turns.append(turn)
            continue
        if not turn.node and turn.number not in results:
            break
        spec = planner.ask(turn.block)
        known = ran.get(turn.number)
        if spec is None or spec.number != turn.number or (known is not None and spec != known):
            raise _another_plan(run, turn.number, known or results.get(turn.number), spec)
        replayed.asked[turn.number] = spec
        replayed.in_flight[turn.number] = replayed.node_of[spec.block] = turn.node
        replayed.turns.append(turn)
    return replayed


def _another_plan(
    run: RunDir, number: int, ran: TrialSpec | TrialResult | None, wanted: TrialSpec | None
) -> UsageError:
    what = "of no plan" if ran is None else f"{ran.setting.id} in round {ran.block}"
    instead = "nothing more" if wanted is None else f"{wanted.setting.id} in round {wanted.block}"
    stages = {each.stage for each in (ran, wanted) if each is not None}
    if run.turns.is_file() and stages & _REPLANNED:
        return UsageError(
            f"{run.path} cannot go on: trial {number} is {what}, but the plan wants {instead}. An earlier version of "
            "powerband planned explorations and capacity searches on a cluster in another way. Its trials are kept: "
            f"`powerband report {run.path}` says what they show, `powerband run {run.experiment}` starts anew"
        )
    return UsageError(
        f"{run.path}: trial {number} is {what}, but the plan wants {instead}: the directory's experiment.yaml was "
        "changed, or another version of powerband wrote it; start a new run, or `powerband report` what there is"
    )


class TurnLog:
    """Writes the calls of a run on several nodes to `turns.jsonl`, each before anything follows from it."""

    def __init__(self, run: RunDir) -> None:
        self._run = run

    def begin(self, nodes: int, turns: Iterable[Turn] = ()) -> None:
        """Begins the log, or goes on with it from the calls that were repeated: what follows them is dropped, since it
        does not go with the calls to come. `nodes`: see `Turns`. Raises MeasurementError if the disk cannot be
        written."""
        with writing(self._run.path):
            lines = [_line({"nodes": nodes}), *(_line(turn.to_json()) for turn in turns)]
            write_atomically(self._run.turns, "".join(lines))

    def add(self, turn: Turn) -> None:
        """Adds a call. Raises MeasurementError if the disk cannot be written."""
        with writing(self._run.path), open_private(self._run.turns, "a") as file:
            file.write(_line(turn.to_json()))
            file.flush()
            os.fsync(file.fileno())


def _line(data: Mapping[str, object]) -> str:
    return json.dumps(data) + "\n"
