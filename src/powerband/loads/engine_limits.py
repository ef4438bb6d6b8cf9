"""Says before anything is started how much of an experiment's load this machine can hold.

In: an experiment. Out: sentences on how the fleet grows for it, and which limits it will meet. The same limits end a
trial that meets them (`engine_specs.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from powerband.base.hosts import LOADABLE, split_url
from powerband.loads.engine_specs import DESCRIPTORS_RESERVED, fleet_shape
from powerband.model.experiment import Experiment
from powerband.processes.engine_process import descriptor_limit, raising_descriptors, subject_descriptor_limit
from powerband.processes.failures import TrialFailed
from powerband.processes.ports import local_ports


def foreseen(experiment: Experiment) -> list[str]:
    """Returns sentences about the setting with the most users; none if one engine process holds them all."""
    if experiment.generators:
        return []  # the limits are those of other machines
    users = max((experiment.load_for(setting).users or 0 for setting in experiment.settings()), default=0)
    host = split_url(experiment.subject.url, LOADABLE).hostname or ""
    starts_with = subject_descriptor_limit() if experiment.subject.is_own_process else None
    return list(_sentences(users, host, descriptor_limit(), local_ports(), starts_with))


def _sentences(users: int, host: str, descriptors: int, ports: int, starts_with: int | None) -> Iterator[str]:
    """Yields the sentences. `descriptors`: how many one process may open; `ports`: how many connections one address may
    open; `starts_with`: how many descriptors the server may open unless it raises its limit; None: not known, since it
    runs already, or in a container."""
    try:
        fleet = fleet_shape(users, descriptors, host, ports)
    except TrialFailed as failed:
        yield f"This machine cannot hold {users:,} users: {failed}."
        return
    sources = [source for engine in fleet for source in engine]
    if len(fleet) > 1 or sources:
        engines = f"{len(fleet)} process{'' if len(fleet) == 1 else 'es'}"
        addresses = f" with {len(sources)} source addresses ({sources[0]} to {sources[-1]})" if sources else ""
        yield f"{users:,} users take {engines} of the load generator{addresses}, each with {descriptors:,} descriptors."
    needed = users + DESCRIPTORS_RESERVED
    if starts_with is None or needed <= starts_with:
        return
    need = f"{users:,} users need several processes, or a limit of {needed:,} ({raising_descriptors(needed)})."
    if needed > descriptors:
        yield f"One process of the server may open {descriptors:,} descriptors too: {need}"
    else:
        yield (
            f"One process of the server starts with a limit of {starts_with:,} descriptors: unless it raises that "
            f"itself, {need}"
        )
