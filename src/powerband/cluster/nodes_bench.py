"""Makes the nodes of a cluster a bench (`trials/bench.py`): each node runs one trial at a time, block after block,
alone or with other nodes that load its server.

In: an experiment, a run directory, trials. Out: the trials' directories, unpacked, and their records. A trial that was
sent to a node comes back whole, or it did not happen: if the node is silent for `SILENT_S`, nothing of the trial
counts, and the node itself has ended it by then. Not here: which trial runs next (`search/`).
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from powerband.base.errors import MeasurementError, PowerbandError, UsageError
from powerband.base.units import plural
from powerband.cluster.heartbeat import BEAT_S, SILENT_S, ClusterNode, Heartbeat, node_answer, read_facts
from powerband.cluster.joining import Remote
from powerband.cluster.kept_facts import KeptFacts
from powerband.cluster.node import KINDS, LIBRARY, LOST
from powerband.cluster.nodes_now import NodesNow
from powerband.cluster.parcels import MADE_BY_BUILDS, NEVER_NEEDED, pack, size_text, unpack
from powerband.files.library import library_root
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.store import TrialDir, TrialRecord, writing
from powerband.trials.bench import Bench, Job, record_lost
from powerband.trials.opening import variables_taken

LOOK_S = 0.5
BACK_S = 10.0
"""If all nodes are lost, the time to wait for one to come back."""

Joined = Callable[[], AbstractContextManager[Sequence[Remote]]]


@dataclass
class _Place(ClusterNode):
    """A node that runs trials, and its state. `generators`: the nodes that load its server."""

    generators: tuple[ClusterNode, ...] = ()
    shown_phase: str = ""  # the phase last written to `nodes_now.json`, and its begin
    phase_began_s: float = 0.0
    began_s: float = 0.0  # begin of the trial, by the time of day here
    spec: TrialSpec | None = None
    directory: TrialDir | None = None
    trial: Future[Any] | None = None
    lost: str = ""  # the reason why nothing runs here; empty: trials may run
    opening: Future[Any] | None = None  # getting ready again after it was lost
    out: bool = False  # it will not come back
    between_s: list[float] = field(default_factory=list)  # from the end of a trial to the next, by the node's clock
    cores: dict[str, list[float]] = field(default_factory=dict)  # cores that actor and raylet used, for each trial

    @property
    def with_generators(self) -> tuple[ClusterNode, ...]:
        return (self, *self.generators)

    @property
    def silent(self) -> str:
        """The name of the node, or of its generator, that was not heard from for too long; empty if there is none."""
        now_s = time.monotonic()
        return next((each.name for each in self.with_generators if now_s - each.answered_s > SILENT_S), "")

    @property
    def gets_ready(self) -> bool:
        """True if the node is getting ready again after it was lost, or just did, and is still heard of."""
        return self.opening is not None and (self.opening.done() or not self.silent)

    def now(self) -> dict[str, Any]:
        """The node's state for `NodesNow.write`."""
        load = {"load_from": [each.name for each in self.generators]} if self.generators else {}
        if self.spec is None:
            return {"lost": self.lost, **load} if self.lost else load
        if self.phase != self.shown_phase:
            self.shown_phase, self.phase_began_s = self.phase, time.time()
        phase = {"phase": self.phase, "phase_began_s": self.phase_began_s}
        return {"trial": self.spec.number, "began_s": self.began_s, **phase, **load}


class ClusterBench:
    """The nodes of a cluster as a bench. Usage: `open`, then `begin` and `ended` as of any bench, then `close`."""

    def __init__(self, job: Job, nodes: Sequence[Remote]) -> None:
        self._job = job
        cluster = job.experiment.cluster
        places = grouped(nodes, job.experiment.generators, as_named=bool(cluster and cluster.nodes))
        self._nodes = {place.name: place for place in places}
        self._all = [each for place in places for each in place.with_generators]
        self._order: dict[str, Any] = {}
        self._parcels: list[bytes] = []
        self._kept = KeptFacts(job.run)
        self._stopped = False
        self._heartbeat = Heartbeat(self._all)
        self._shown: tuple[str, str] = ("", "")
        self._now = NodesNow(job.run)

    @property
    def places(self) -> Sequence[str]:
        """The nodes that can run trials. If there is none, waits up to `BACK_S` for one that may come back, and as long
        as one gets ready, since a build may take any time."""
        deadline = time.monotonic() + BACK_S
        while not (places := self._there) and not self._job.stop.requested:
            if all(node.out for node in self._nodes.values()):
                break
            if time.monotonic() >= deadline and not any(node.gets_ready for node in self._nodes.values()):
                break
            self._welcome_back()
            time.sleep(LOOK_S / 5)
        return places

    @property
    def _there(self) -> list[str]:
        return [name for name, node in self._nodes.items() if not node.lost]

    # Before the first trial.

    def open(self) -> None:
        """Checks every node, sends it what it needs, and builds there. Raises MeasurementError, SubjectError,
        UsageError."""
        self._now.write({})
        read_facts(self._all)
        self._rename_replaced()
        self._write_facts()
        self._pack()
        self._heartbeat.begin()
        for node in self._nodes.values():
            node.trial = self._opening(node)
        self._job.observer.note(self._said())
        for node in self._nodes.values():
            self._wait_open(node)

    def _opening(self, place: _Place) -> Future[Any]:
        """Begins to get a node ready, after the nodes that load its server."""
        order = {**self._order, "address": place.remote.address, "generators": []}
        if not place.generators:
            return place.remote.call("open", order, self._parcels)
        whole: Future[Any] = Future()

        def in_turn() -> None:
            try:
                whole.set_result(self._opened(place, order))
            except Exception as error:  # Ray's own
                whole.set_exception(error)

        threading.Thread(target=in_turn, daemon=True).start()
        return whole

    def _opened(self, place: _Place, order: dict[str, Any]) -> Any:
        """Gets the generators ready, then the node, with the generators' addresses and secrets. Returns the answer of
        the first that fails, or that of the node."""
        for node in place.generators:
            answer = node.generate()
            if failed := answer.get("failed"):
                return {"failed": {**failed, "message": f"{node.name}, which is to load it: {failed['message']}"}}
            order["generators"].append(answer)
        return place.remote.call("open", order, self._parcels).result()

    def _said(self) -> str:
        names = ", ".join(self._nodes)
        count = plural(len(self._nodes), "node")
        if not self._job.experiment.generators:
            return f"{count} of the cluster: {names}; whole rounds run on each"
        loads = (f"{', '.join(each.name for each in node.generators)} for {node.name}" for node in self._nodes.values())
        return f"{count} of the cluster: {names}; whole rounds run on each, its load comes from: {'; '.join(loads)}"

    def _rename_replaced(self) -> None:
        """Gives a machine a name of its own if another machine of the same name ran trials before the run was left."""
        for node in self._all:
            if self._kept.is_another_machine(node.name, node.facts):
                name = f"{node.name} ({node.remote.address})"
                self._job.observer.note(
                    f"{node.name} is another machine than when this run was left: here it is {name}"
                )
                node.remote = replace(node.remote, name=name)
        self._nodes = {node.name: node for node in self._nodes.values()}

    def _write_facts(self) -> None:
        told = {node.name: {**node.facts, "address": node.remote.address} for node in self._all}
        for node in self._nodes.values():
            for each in node.generators:
                told[each.name]["loads"] = node.name
        self._kept.keep(told, self.overhead())

    def _pack(self) -> None:
        """Packs the folders that the experiment names, as the nodes need them."""
        experiment, library = self._job.experiment, library_root()
        asked = [] if experiment.cluster is None else [Path(name) for name in experiment.cluster.files]
        folder = experiment.subject.folder
        folders = [*asked, *([Path(folder)] if folder else [])]
        own = [path for path in dict.fromkeys(folders) if not path.resolve().is_relative_to(library)]
        without = NEVER_NEEDED | (MADE_BY_BUILDS if experiment.subject.build is not None else frozenset())
        try:
            self._parcels = [pack(path, without) for path in own]
        except MeasurementError as error:
            cure = (
                "name a smaller folder, or say with subject.build how the server is built: what builds make is left out"
            )
            raise MeasurementError(f"{error}; {cure}") from None
        for path in own:
            size = size_text(path, without)
            self._job.observer.note(f"copied to each node, and removed there at the end: {path} ({size})")
        self._order = {
            "experiment": resolved_yaml(experiment),
            "moved": [[str(library), LIBRARY]],
            "copied": [str(path) for path in own],
            "variables": variables_taken(experiment),
        }

    def _wait_open(self, node: _Place) -> None:
        """Waits until a node is ready. Raises the error if it does not get ready."""
        assert node.trial is not None
        while not node.trial.done():
            wait([node.trial], timeout=LOOK_S)
            self._pass_on_stop(again=True)  # a node that does not run its program yet forgets it
            if silent := node.silent:
                raise MeasurementError(f"{silent} did not report for {SILENT_S:.0f} s while it got ready")
        answer, node.trial = node_answer(node.name, node.trial, 0), None
        assert answer["said"] == "ready"

    # Trials.

    def begin(self, place: str, experiment: Experiment, spec: TrialSpec, directory: TrialDir) -> None:
        node = self._nodes[place]
        assert node.trial is None and not node.lost, f"{place} cannot run a trial now"
        order = {"spec": spec.to_json(), "host": experiment.host.model_dump(mode="json"), "node": place}
        node.spec, node.directory, node.phase, node.shown_phase = spec, directory, "", ""
        node.began_s = node.phase_began_s = time.time()
        node.trial = node.remote.call("trial", order)

    def ended(self) -> tuple[str, TrialRecord]:
        while True:
            busy = [node for node in self._nodes.values() if node.spec is not None]
            assert busy, "no trial was begun"
            self._now.write({node.name: node.now() for node in self._nodes.values()})
            wait([node.trial for node in busy if node.trial is not None], LOOK_S, FIRST_COMPLETED)
            self._pass_on_stop()
            self._show_phase(busy)
            self._welcome_back()
            for node in busy:
                assert node.trial is not None
                if node.trial.done():
                    return node.name, self._take(node)
                if silent := node.silent:
                    who = "it" if silent == node.name else f"{silent}, which loads its server,"
                    return node.name, self._lose(node, f"{who} did not report for {SILENT_S:.0f} s")

    def _take(self, node: _Place) -> TrialRecord:
        """The record of the trial that a node has ended. Raises the errors that must end the run."""
        assert node.trial is not None and node.directory is not None and node.spec is not None
        try:
            answer = node.trial.result()
        except Exception as error:  # Ray's own, of an actor, a node or a way that is gone
            return self._lose(node, f"its actor is gone ({type(error).__name__})")
        if failed := answer.get("failed"):
            if failed["kind"] in ("ExperimentError", "UsageError"):
                raise KINDS[failed["kind"]](f"{node.name}: {failed['message']}")
            return self._lose(node, failed["message"], back=failed["kind"] == LOST)
        with writing(node.directory.path):
            folder = node.directory.path.with_name(f".{node.directory.path.name}")
            _remove(folder)
            unpack(answer["parcel"], folder)
            _remove(node.directory.path)
            folder.replace(node.directory.path)
            # A node's time of day is not this machine's.
            os.utime(node.directory.spec, (node.began_s, node.began_s))
        record = node.directory.read_record()
        node.directory.write_record(record)  # synced, on this disk
        for name, cpu_s in answer["ray_cpu_s"].items():
            node.cores.setdefault(name, []).append(cpu_s / answer["ray_took_s"])
        if answer["between_s"] is not None:
            node.between_s.append(answer["between_s"])
        node.spec = node.directory = node.trial = None
        return record

    def _lose(self, node: _Place, why: str, *, back: bool = True) -> TrialRecord:
        """Records that the trial did not happen. Nothing runs on the node until it answers again; `back`: False if it
        will not come back."""
        assert node.spec is not None and node.directory is not None
        spec, directory = node.spec, node.directory
        node.lost = why
        node.spec = node.directory = node.trial = None
        others = len(self._there)
        goes_on = f"its round runs again elsewhere ({plural(others, 'node')} left)" if others else "no node is left"
        self._job.observer.note(f"{node.name} is lost: {why}. Trial {spec.number} did not happen; {goes_on}")
        if not back:
            node.out = True
        return record_lost(directory, spec, node.name, f"{node.name} is lost: {why}")

    def _welcome_back(self) -> None:
        """Gets lost nodes that answer again ready, as at the beginning. A node that cannot get ready, and says why,
        does not come back."""
        for node in self._nodes.values():
            if not node.lost or node.out:
                continue
            if node.opening is None:
                if time.monotonic() - min(each.answered_s for each in node.with_generators) < 2 * BEAT_S:
                    node.opening = self._opening(node)
            elif node.opening.done():
                opening, node.opening = node.opening, None
                answer: dict[str, Any] = {}
                with suppress(Exception):  # it is lost still
                    answer = opening.result()
                failed = answer.get("failed")
                if answer.get("said") == "ready":
                    node.lost = ""
                    self._job.observer.note(f"{node.name} is back")
                elif failed and failed["kind"] != LOST:
                    node.lost, node.out = failed["message"], True
                    self._job.observer.note(f"{node.name} does not come back: {node.lost}")

    def _show_phase(self, busy: Sequence[_Place]) -> None:
        """Shows the phase of the trial that began last, for a view that has room for one trial."""
        last = max(busy, key=lambda node: node.spec.number if node.spec is not None else 0)
        if last.phase and (last.name, last.phase) != self._shown:
            self._shown = (last.name, last.phase)
            self._job.observer.phase(last.phase)

    def _pass_on_stop(self, *, again: bool = False) -> None:
        if self._job.stop.requested and (again or not self._stopped):
            self._stopped = True
            for node in self._nodes.values():  # their generators end with the trial
                with suppress(Exception):  # a lost node has stopped
                    node.remote.call("stop")

    # After the last trial.

    def close(self) -> None:
        """Ends what runs on the nodes, and writes the run's last facts and costs. Raises nothing if a node or the disk
        fails."""
        self._heartbeat.end()
        self._now.close()
        with suppress(PowerbandError):
            if any(node.facts for node in self._all):
                self._write_facts()

    def overhead(self) -> dict[str, dict[str, float]]:
        """The costs by node: cores that the actor and Ray's daemon used during its trials (`actor_cores`,
        `raylet_cores`), on average over so many `trials`, and `between_s_max`, the longest time from the end of a trial
        to the next, in seconds: packed, sent, unpacked and analysed, and the next planned."""
        found: dict[str, dict[str, float]] = {}
        for node in self._nodes.values():
            told = {f"{name}_cores": sum(each) / len(each) for name, each in node.cores.items() if each}
            told["trials"] = max(map(len, node.cores.values()), default=0)
            if node.between_s:
                told["between_s_max"] = max(node.between_s)
            found[node.name] = told
        return found


def grouped(nodes: Sequence[Remote], generators: int, *, as_named: bool) -> list[_Place]:
    """Groups the nodes, in their order, by `generators` + 1: the first of a group runs servers, the others load them,
    and nodes that are left over do nothing. `as_named`: keeps the order, which is the user's; else the head, which
    comes first and has Ray's own work to do, moves to the end. Raises UsageError if there are too few nodes."""
    size = generators + 1
    if len(nodes) < size:
        raise UsageError(
            f"cluster.generators: {generators} takes {size} nodes at least, one for the server and the others for "
            f"its load, and the cluster has {plural(len(nodes), 'node')}: {', '.join(node.name for node in nodes)}"
        )
    ordered = [*nodes[1:], nodes[0]] if generators and not as_named else nodes
    groups = [ordered[at : at + size] for at in range(0, len(ordered) - generators, size)]
    return [_Place(group[0], generators=tuple(map(ClusterNode, group[1:]))) for group in groups]


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def cluster_bench(join: Joined) -> Callable[[Job], AbstractContextManager[Bench]]:
    """Returns the function that opens the nodes of a cluster as a bench. `join`: yields the nodes (`joining.joined`;
    tests pass nodes without Ray)."""

    @contextmanager
    def opened(job: Job) -> Iterator[Bench]:
        with join() as nodes:
            bench = ClusterBench(job, nodes)
            try:
                bench.open()
                yield bench
            finally:
                bench.close()

    return opened
