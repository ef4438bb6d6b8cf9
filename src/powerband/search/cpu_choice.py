"""Decides once a run whether the server gets all CPUs, or sets of its own beside the load generator's.

In: the experiment, and trials one by one. Out: the experiment that trials run with, and whether a trial is to be
measured again because the CPUs were dealt anew after it. All valid trials of a run have the same CPUs, so a resumed run
reads the decision from the records it has. Method and figures: docs/methods/cpus.md. Not here: which CPUs a set is made
of (`processes/cpus.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from powerband.analyze.trial.faults import fatal_codes, machine_disturbed
from powerband.loads import kind_of
from powerband.model.cpu_use import shares_well
from powerband.model.experiment import Experiment
from powerband.model.results import TrialResult

TOO_LATE = "generator_"
"""Begins the codes of trials whose generator was the limit."""


class CpuChoice:
    """`experiment`: the one to run the next trial with. `results`: what a resumed run has.

    Trials begin on disjoint sets. The first valid one decides: if its server `shares_well`, it is measured again on all
    CPUs, and so are all later ones. If the generator then comes too late, and no other program is to blame, sets stay
    disjoint and the trial is measured once more."""

    def __init__(self, experiment: Experiment, results: Iterable[TrialResult] = ()) -> None:
        self._asked = experiment
        measured = [result for result in results if result.status == "measured" and result.cpus is not None]
        counting = [result for result in measured if result.valid]
        # Where a quota limits the server, CPUs of its own take nothing from it.
        is_open = (
            experiment.host_dealt.deals_freely
            and experiment.host_dealt.cpu_quota is None
            and kind_of(experiment).may_share_cpus(experiment)
        )
        self._decided = not is_open or any(result.valid for result in results)
        last = (counting or measured)[-1:]
        self.shared = is_open and any(result.cpus is not None and result.cpus.shared for result in last)

    @property
    def experiment(self) -> Experiment:
        if not self.shared:
            return self._asked
        return self._asked.model_copy(update={"host": self._asked.host.model_copy(update={"cpus": "all"})})

    def again(self, result: TrialResult) -> bool:
        """Takes in a finished trial; True: it does not count, and must be measured again with `experiment`."""
        if self._decided or result.status != "measured" or result.cpus is None:
            return False
        codes = fatal_codes(result)
        if not self.shared:
            self._decided = result.valid
            metrics = result.metrics
            dear = shares_well(metrics.get("subject_cpu_cores"), metrics.get("engine_cpu_cores"))
            if not result.valid or result.cpus.shared or not dear:  # shared already: there is one CPU
                return False
            self.shared, self._decided = True, False
            return True
        if any(code.startswith(TOO_LATE) for code in codes) and not machine_disturbed(result):
            self.shared, self._decided = False, True
            return True
        self._decided = result.valid
        return False
