"""Decides once a run whether the server gets all CPUs, or sets of its own beside the load generator's.

In: the experiment, and trials one by one. Out: the experiment that trials run with, and whether a trial is to be
measured again because the CPUs were dealt anew after it. All valid trials of a run have the same CPUs, so a resumed run
reads the decision from the records it has. Method and figures: docs/methods/cpus.md. Not here: which CPUs a set is made
of (`processes/cpus.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from powerband.loads import kind_of
from powerband.model.cpu_use import shares_well
from powerband.model.experiment import Experiment, HostUse
from powerband.model.results import TrialResult

TOO_LATE = "generator_"
"""Begins the codes of trials whose generator was the limit."""


class CpuChoice:
    """`experiment`: the one to run the next trial with. `results`: what a resumed run has.

    The first valid trial has disjoint sets. If its server `shares_well`, it is measured again on all CPUs, and so are
    all later ones, unless the generator then came too late: then sets stay disjoint, and it is measured once more."""

    def __init__(self, experiment: Experiment, results: Iterable[TrialResult] = ()) -> None:
        self._asked = experiment
        self.shared = False
        open_to_choice = experiment.host == HostUse() and kind_of(experiment).may_share_cpus(experiment)
        valid = [result for result in results if result.valid]
        self._decided = bool(valid) or not open_to_choice
        if valid and open_to_choice:
            self.shared = valid[0].cpus is not None and valid[0].cpus.machine > 1 and valid[0].cpus.shared

    @property
    def experiment(self) -> Experiment:
        if not self.shared:
            return self._asked
        return self._asked.model_copy(update={"host": HostUse(cpus="all")})

    def again(self, result: TrialResult) -> bool:
        """Takes in a finished trial; True: it does not count, and must be measured again with `experiment`."""
        if self._decided or result.status != "measured":
            return False
        if self.shared and any(problem.fatal and problem.code.startswith(TOO_LATE) for problem in result.problems):
            self.shared, self._decided = False, True
            return True
        if not result.valid:
            return False
        if self.shared:
            self._decided = True
            return False
        use = result.cpus
        if use is None or use.shared:  # one CPU, or a record without CPUs: there is nothing to choose
            self._decided = True
            return False
        metrics = result.metrics
        self.shared = shares_well(metrics.get("subject_cpu_cores"), metrics.get("engine_cpu_cores"))
        self._decided = not self.shared
        return self.shared
