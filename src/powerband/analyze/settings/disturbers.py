"""Names what disturbed a run, and what that cost, in one sentence for all its trials.

In: trial results. Out: words for the warnings. Nothing is judged here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from powerband.analyze.trial.disturbance import of_own_service
from powerband.analyze.trial.faults import fatal_codes
from powerband.analyze.trial.honesty import MACHINE_CODES
from powerband.base.units import joined, plural
from powerband.model.experiment import Experiment
from powerband.model.results import TrialResult

NAMED = 3  # programs in a sentence
LEAST_CORES = 0.02  # of a program that is named: less is what any daemon uses
LEAST_STEAL = 0.005  # of the CPUs' time: less is seen on hosts that nobody calls busy


def disturbers(experiment: Experiment, results: Sequence[TrialResult]) -> Iterator[str]:
    """Yields one sentence, or none if no trial was disturbed."""
    done = [result for result in results if result.status == "measured"]
    refused = [result for result in done if fatal_codes(result) & MACHINE_CODES]
    valid = [result for result in done if result.valid]
    quiet = [result for result in valid if result.by_quiet_time]
    widened = [result for result in valid if result.held_up]
    hit = {result.number for result in (*refused, *quiet, *widened)}
    disturbed = [result for result in done if result.number in hit]
    if not disturbed:
        return
    costs = []
    if quiet:
        lasted = sorted(result.metrics["quiet_s"] for result in quiet)
        span = " to ".join(dict.fromkeys(f"{each:.1f}" for each in (lasted[0], lasted[-1])))
        costs.append(f"of {plural(len(quiet), 'trial')} only the quiet {span} s count")
    if widened:
        shares = [result.held_up for result in widened]
        most = math.ceil(100 * max(shares))
        half = f" (half of them under {math.ceil(100 * median(shares))} %)" if len(widened) > 1 else ""
        lost = f"{plural(len(widened), 'trial')} may have lost up to {most} % by it{half}"
        costs.append(f"{lost}, and the intervals allow for that")
    if refused:
        costs.append(f"{plural(len(refused), 'trial')} {'is' if len(refused) == 1 else 'are'} excluded")
    cores = _cores_of_others(disturbed)
    own = of_own_service(cores, experiment)
    of = f"{len(disturbed)} of {plural(len(done), 'trial')}"
    yield f"{_who(disturbed, cores)} disturbed {of}: {joined(costs)}; on a quiet machine fewer trials are needed{own}"


def _cores_of_others(disturbed: Sequence[TrialResult]) -> Mapping[str, float]:
    """The CPUs that other programs used, by name: means over these trials. Where the CPU use of others is not known,
    any of the names may be the server's, so none is given."""
    cores = defaultdict[str, float](float)
    for result in disturbed:
        for name, used in result.neighbours.items():
            if "host_foreign_cores" in result.metrics:
                cores[name] += used / len(disturbed)
    return cores


def _who(disturbed: Sequence[TrialResult], cores: Mapping[str, float]) -> str:
    """`other programs (java 0.52 CPUs, cc1 0.20) and the hypervisor (3 % of the CPU time)`: means over these
    trials."""
    most = sorted(cores.items(), key=lambda item: -item[1])[:NAMED]
    named = [(name, used) for name, used in most if used >= LEAST_CORES]
    stolen = sum(result.metrics.get("host_steal_share", 0.0) for result in disturbed) / len(disturbed)
    who = []
    if named:
        listed = ", ".join(f"{name} {used:.2f}{' CPUs' if at == 0 else ''}" for at, (name, used) in enumerate(named))
        who.append(f"other programs ({listed})")
    elif stolen < LEAST_STEAL:
        who.append("other programs")
    if stolen >= LEAST_STEAL:
        who.append(f"the hypervisor ({100 * stolen:.1f} % of the CPU time)")
    return joined(who)
