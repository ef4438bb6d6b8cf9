"""For which load and on which CPUs an answer holds, and a warning where a setting that CPUs decide did not get them
all.

In: the standing of the settings. Out: the end of the answer's first sentence; warnings. Method: docs/methods/cpus.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from powerband.analyze.settings.standing import Standing
from powerband.base.units import joined
from powerband.loads import kind_of
from powerband.model.cpu_use import CpuUse
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting

_COUNTS_CPUS = re.compile(
    r"(thread|worker|loop|proc|instance|cluster|pool|cpu|core|fork|acceptor)s?|process(es)?|concurrency|parallelism"
    r"|gomaxprocs"
)


def holds_for(standing: Standing, setting: Setting) -> str:
    """`, with 64 users that never pause, on 1 of this machine's 2 CPUs`; of a capacity, which has a rate of its own,
    the CPUs alone."""
    experiment = standing.experiment
    load = "" if experiment.objective.is_capacity else kind_of(experiment).load_words(experiment.load_for(setting))
    cpus = "" if standing.cpus is None else _on_cpus(standing, standing.cpus, setting)
    return "".join(f", {words}" for words in (load, cpus) if words)


def _on_cpus(standing: Standing, cpus: CpuUse, setting: Setting) -> str:
    one = cpus.machine == 1
    if cpus.server < cpus.machine:
        return f"on {cpus.server:.3g} of {_machines(cpus)}"
    used = standing.value(setting, "engine_cpu_cores") if cpus.shared else None
    load = "" if used is None else f" (the load took {used / cpus.machine:.1%} of {'it' if one else 'them'})"
    return f"on {'the only CPU' if one else f'all {cpus.machine} CPUs'} of this machine{load}"


def cpus_kept(experiment: Experiment, cpus: CpuUse | None) -> Iterator[str]:
    """A warning where factors count threads or processes by their names, and the server had fewer CPUs than there
    are: more of them pay off on more CPUs."""
    counting = [name for name in experiment.factors if counts_cpus(name)]
    if cpus is None or cpus.server >= cpus.machine or not counting:
        return
    yield (
        f"{joined(counting)} may be right for {cpus.server:.3g} of {_machines(cpus)} only: the others were "
        "kept from the server, and with more CPUs more may be better; --cpus all (host.cpus: all) gives it all of them"
    )


def _machines(cpus: CpuUse) -> str:
    return "this machine's only CPU" if cpus.machine == 1 else f"this machine's {cpus.machine} CPUs"


def counts_cpus(factor: str) -> bool:
    """Whether a factor's name says that it counts threads, loops, workers or processes: `threads`, `http.workers`,
    `poolSize`, `GOMAXPROCS`. `load.engine_threads` counts those of the generator."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", factor)
    return not factor.startswith("load.") and any(_COUNTS_CPUS.fullmatch(word.lower()) for word in words)
