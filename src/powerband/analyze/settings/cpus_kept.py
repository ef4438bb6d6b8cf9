"""Words the load and the CPUs for which an answer holds, and a warning if the server did not get all CPUs although its
parameters depend on their number.

In: the standing of the settings, trials. Out: the end of the answer's first sentence; warnings, also where a runtime
uses fewer CPUs than a setting counts. Method: docs/methods/cpus.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from powerband.analyze.settings.standing import Standing, names, verb
from powerband.base.units import joined
from powerband.loads import kind_of
from powerband.model.cpu_use import CpuUse
from powerband.model.experiment import Experiment
from powerband.model.host_use import Pinning
from powerband.model.plan import Setting
from powerband.model.results import TrialResult
from powerband.model.runtime import RuntimeView

DEALT_LEAST = 3 / 8  # of the CPUs: the least that a server gets; of 8 cores one at most watches, and half drive
ROUNDING = 1e-6  # of a mean of equal values
_COUNTS_CPUS = re.compile(
    r"(thread|worker|loop|proc|instance|cluster|pool|cpu|core|fork|acceptor)s?|process(es)?|concurrency|parallelism"
    r"|gomaxprocs"
)


def holds_for(standing: Standing, setting: Setting) -> str:
    """Words load and CPUs: `, with 64 users that never pause, on 1 of this machine's 2 CPUs, the load generator on the
    other`; for a capacity, which has a rate of its own, the CPUs alone."""
    experiment = standing.experiment
    load = "" if experiment.objective.is_capacity else kind_of(experiment).load_words(experiment.load_for(setting))
    cpus = standing.cpus_for(setting)
    where = "" if cpus is None else _on_cpus(standing, cpus, setting)
    return "".join(f", {words}" for words in (load, where) if words)


def _on_cpus(standing: Standing, cpus: CpuUse, setting: Setting) -> str:
    one = cpus.machine == 1
    if cpus.server < cpus.machine:
        apart = "" if cpus.shared else _apart(standing, cpus, setting)
        return f"on {cpus.server:.3g} of {_machines(cpus)}{apart}"
    used = standing.value(setting, "engine_cpu_cores") if cpus.shared else None
    load = "" if used is None else f" (the load took {100 * used / cpus.machine:.1f} % of {'it' if one else 'them'})"
    return f"on {'the only CPU' if one else f'all {cpus.machine} CPUs'} of this machine{load}"


def _apart(standing: Standing, cpus: CpuUse, setting: Setting) -> str:
    """Words where the load generator runs, if one runs on this machine. A CPU quota that neither the experiment nor a
    container of the server sets may hold for powerband too: then both use up the same CPU time, whatever CPUs they run
    on."""
    experiment, quota = standing.experiment, standing.value(setting, "cpu_quota_cores")
    own = not experiment.subject.is_own_process or experiment.host_for(setting).cpu_quota is not None
    alone = bool(experiment.generators) or not kind_of(experiment).sends_requests
    if quota is not None and quota <= cpus.server * (1 + ROUNDING) and not own:
        return ", by a quota" if alone else ", by a quota that the load generator may share"
    if alone:
        return ""
    others = "the other" if cpus.machine - cpus.server == 1 else "others"
    return f", the load generator on {others}"


def cpus_kept(experiment: Experiment, cpus: CpuUse | None, results: Sequence[TrialResult] = ()) -> Iterator[str]:
    """Yields a warning if factors count threads or processes, by their names, and the server had fewer CPUs than there
    are: more threads pay off on more CPUs. It also says what the server's runtime made of its CPUs."""
    counting = [name for name in experiment.factors if counts_cpus(name)]
    if cpus is None or cpus.server >= cpus.machine or not counting:
        return
    quotas = [each.metrics["cpu_quota_cores"] for each in results if each.valid and "cpu_quota_cores" in each.metrics]
    # Only a quota gives a part of a CPU. Of several settings each may have a quota of its own.
    in_parts = cpus.server != round(cpus.server)
    if in_parts or any(math.isclose(quota, cpus.server, rel_tol=ROUNDING) for quota in quotas):
        more = "its CPU quota allows no more"
    elif _chose_fewer(experiment, cpus):
        more = "its own CPU affinity allows no more"
    else:
        more = "--cpus all (host.cpus: all) gives it all of them"
    yield (
        f"with more CPUs another value of {joined(counting)} may be best: the server had {cpus.server:.3g} of "
        f"{_machines(cpus)}{_seen(results)}; {more}"
    )


def _chose_fewer(experiment: Experiment, cpus: CpuUse) -> bool:
    """True if the server certainly had fewer CPUs than it was given, or left them: by its own affinity (`taskset`,
    `numactl`, `worker_cpu_affinity`)."""
    host = experiment.host
    if cpus.shared:
        return not isinstance(host.pinning, Pinning)
    if isinstance(host.cpus, int):
        return cpus.server < host.cpus
    return host.deals_freely and cpus.server < DEALT_LEAST * cpus.machine


def runtime_limits(experiment: Experiment, results: Sequence[TrialResult]) -> Iterator[str]:
    """Yields a warning for each runtime that uses fewer CPUs than the server has, and fewer than a level of a factor
    that counts threads or processes, which then take turns. The CPUs of several processes add up."""
    counting = [name for name in experiment.factors if counts_cpus(name)]
    limited: dict[str, list[Setting]] = {}
    for result in results:
        if not result.valid or result.cpus is None or not result.runtimes:
            continue
        most = sum(view.runs_at_once for view in result.runtimes)
        levels = [level for name, level in result.setting.levels if name in counting]
        if most >= result.cpus.server or not any(isinstance(level, int) and level > most for level in levels):
            continue
        has = f"{result.cpus.server:.3g} {'CPU' if result.cpus.server == 1 else 'CPUs'}"
        settings = limited.setdefault(f"{_limit(result.runtimes)}, of the {has} that the server has", [])
        if result.setting not in settings:
            settings.append(result.setting)
    for why, settings in limited.items():
        yield f"{names(settings)} {verb(settings, 'counts', 'count')} more than can run at once: {why}"


def _limit(views: Sequence[RuntimeView]) -> str:
    """The reason why the runtimes use no more CPUs: their own number, or what the kernel allows their processes."""
    return joined(
        [
            f"{view.runtime} may use {view.usable:.3g} by its CPU affinity or quota"
            if view.cpus is None or view.usable < view.cpus
            else f"{view.runtime} has {view.says}"
            for view in views
        ]
    )


def _seen(results: Sequence[TrialResult]) -> str:
    """` (JVM has availableProcessors 1 and the Serial collector)`, without what differs between trials, since a
    parameter sets that; empty where no runtime is known."""
    seen = [[f"{view.runtime} has {view.says}" for view in result.runtimes] for result in results if result.runtimes]
    everywhere = [text for text in seen[0] if all(text in each for each in seen)] if seen else []
    return f" ({joined(everywhere)})" if everywhere else ""


def _machines(cpus: CpuUse) -> str:
    return "this machine's only CPU" if cpus.machine == 1 else f"this machine's {cpus.machine} CPUs"


def counts_cpus(factor: str) -> bool:
    """True if a factor's name says that it counts threads, loops, workers or processes: `threads`, `http.workers`,
    `poolSize`, `GOMAXPROCS`. `load.engine_threads` counts those of the load engine, so it does not."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", factor)
    return not factor.startswith(("load.", "host.")) and any(_COUNTS_CPUS.fullmatch(word.lower()) for word in words)
