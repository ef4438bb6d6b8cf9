"""Follows one trial. In: its files, while they grow. Out: a `TrialState`. A finished trial is read in the same way.

Lines that no load generator or probe writes are skipped and counted. `seconds.py` turns lines into figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from powerband.live.growing_files import Tail, changed_at
from powerband.live.seconds import LAG_SECONDS, SECOND_NS, LoadSeconds, ProbeSeconds
from powerband.live.state import POINTS_MAX, Figures, TrialPhase, TrialState
from powerband.model.experiment import Measure
from powerband.model.plan import TrialSpec
from powerband.store import NOT_AS_WRITTEN, TrialDir


class TrialFollower:
    """Follows one trial: call `read` repeatedly; `state` is the state so far. `damaged`: number of unreadable lines."""

    def __init__(self, directory: TrialDir, spec: TrialSpec, measured: Measure | None) -> None:
        self.spec = spec
        self.damaged = 0
        self._directory = directory
        self._own = {} if measured is None else measured.own_metrics()
        self._events, self._probe = Tail(directory.events), Tail(directory.probe)
        self._events_wait = False
        self._begin()

    def read(self, *, over: bool = False) -> bool:
        """Reads new data; returns True if there is more to read at once. `over`: the trial has ended, so that nothing
        is waited for."""
        events_more = self._events_wait or self._take_events()
        lines, _, probe_more = self._probe.read()
        for line in lines:
            self._try(self._seen.take, line)
        if over and not probe_more:
            self._try(self._seen.finish)
        more = events_more or probe_more
        probe_behind = self._seen.whole < self._load.whole
        self._events_wait = probe_behind and probe_more  # those of an hour would fill the memory
        self._emit(over=over and not more, more=probe_more if probe_behind else events_more)
        return more

    @property
    def state(self) -> TrialState:
        """The state of the trial, as of the last read."""
        phase, since_ns = self._phase()
        origin_ns = self._load.origin_ns
        return TrialState(
            number=self.spec.number,
            setting=self.spec.setting.id,
            block=self.spec.block,
            stage=self.spec.stage.value,
            rate_per_s=self.spec.rate_per_s,
            phase=phase,
            phase_began_s=self._time_of_day_s(since_ns),
            began_s=None if (found := changed_at(self._directory.spec)) is None else found[2] / 1e9,
            figures=self._points[-1] if self._points else None,
            points=tuple(self._points),
            points_before=self._dropped,
            phases_s={}
            if origin_ns is None
            else {name: (at - origin_ns) / SECOND_NS for name, at in self._load.phases_ns.items()},
        )

    def close(self) -> None:
        """Closes the files."""
        self._events.close()
        self._probe.close()

    def _begin(self) -> None:
        self._load, self._seen = LoadSeconds(), ProbeSeconds(self._own)
        self._points: list[Figures] = []
        self._dropped = self._next = 0

    def _take_events(self) -> bool:
        lines, again, more = self._events.read()
        if again:  # a resumed run repeats this trial
            self._probe.close()
            self._begin()
        known = self._load.origin_ns
        for line in lines:
            self._try(self._load.take, line)
        if known is None and self._load.origin_ns is not None:
            self._try(self._seen.begin, self._load.origin_ns)
        return more

    def _try(self, take: Callable[..., None], *what: Any) -> None:
        try:
            take(*what)
        except NOT_AS_WRITTEN:
            self.damaged += 1

    def _emit(self, *, over: bool, more: bool) -> None:
        """Makes the points of the whole seconds. `more`: the source that is behind has more to read at once, so that it
        is not silent."""
        last = max(self._load.last, self._seen.last)
        whole = (self._load.whole, self._seen.whole)
        silent = 0 if more else min(max(whole), last + 1) - LAG_SECONDS
        until = last + 1 if over else max(min(whole), silent)
        while self._next < until and self._next <= last:
            self._try(lambda second: self._points.append(self._figures(second)), self._next)
            self._next += 1
        surplus = len(self._points) - POINTS_MAX
        if surplus > 0:
            del self._points[:surplus]
            self._dropped += surplus

    def _figures(self, second: int) -> Figures:
        load: Mapping[str, float | None] = self._load.pop(second)
        seen = self._seen.pop(second)
        return Figures(
            t_s=float(second + 1),
            rate_per_s=load.get("rate_per_s"),
            errors_per_s=load.get("failed_per_s"),
            response_time_ns_mean=load.get("response_time_ns_mean"),
            response_time_ns_p50=load.get("response_time_ns_p50"),
            response_time_ns_p99=load.get("response_time_ns_p99"),
            in_flight=_whole(load.get("in_flight")),
            users=_whole(load.get("users")),
            **vars(seen),
        )

    def _phase(self) -> tuple[TrialPhase, int | None]:
        """The current phase, and its beginning on the monotonic clock."""
        if self._load.phases_ns:
            name, at_ns = list(self._load.phases_ns.items())[-1]
            if self._load.ended:
                return TrialPhase.ENDING, None
            return (TrialPhase(name) if name in set(TrialPhase) else TrialPhase.WARMUP), at_ns
        if self._seen.launched_ns is not None:
            return TrialPhase.LAUNCHED, self._seen.launched_ns
        return TrialPhase.STARTING, None

    def _time_of_day_s(self, at_ns: int | None) -> float | None:
        anchors = (self._load.wall_less_monotonic_ns, self._seen.wall_less_monotonic_ns)
        anchor_ns = next((anchor for anchor in anchors if anchor is not None), None)
        return None if at_ns is None or anchor_ns is None else (at_ns + anchor_ns) / 1e9


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
