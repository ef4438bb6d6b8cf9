"""Decides once in a run whether the server shares all CPUs with the load generator, or each gets CPUs of its own.

In: the experiment, and the results of trials one by one. Out: the experiment to run the next trial with, and whether a
trial must be measured again because the decision changed after it. All valid trials of a run have the same CPUs, so a
resumed run reads the decision from its records. Method and figures: docs/methods/cpus.md. Not here: which CPUs belong
to a set (`processes/cpus.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from powerband.analyze.trial.faults import fatal_codes, machine_disturbed
from powerband.loads import kind_of
from powerband.model.cpu_use import shares_well
from powerband.model.experiment import Experiment
from powerband.model.results import TrialResult

TOO_LATE = "generator_"
"""The prefix of the problem codes of trials in which the load generator was the limit."""
OWN_AFFINITY = "own_affinity"
"""The code of the note on a server that left its CPUs, and so shared the load generator's."""


class CpuChoice:
    """Decides if the server shares the CPUs of one place (this machine, or a node). `results`: those that a resumed run
    has.

    At first server and load generator get disjoint sets. The first valid trial decides: if its server `shares_well`, it
    is measured again on all CPUs, and so are all later trials. If the generator then comes too late, and no other
    program is to blame, the sets become disjoint for good, and the trial is measured once more."""

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
        self.shared = is_open and any(
            result.cpus is not None
            and result.cpus.shared
            and all(problem.code != OWN_AFFINITY for problem in result.problems)
            for result in last
        )

    @property
    def experiment(self) -> Experiment:
        """The experiment to run the next trial with."""
        if not self.shared:
            return self._asked
        return self._asked.model_copy(update={"host": self._asked.host.model_copy(update={"cpus": "all"})})

    def again(self, result: TrialResult) -> bool:
        """Takes a finished trial into account. True if it does not count, and must be measured again with
        `experiment`."""
        if self._decided or result.status != "measured" or result.cpus is None:
            return False
        codes = fatal_codes(result)
        if not self.shared:
            self._decided = result.valid
            metrics = result.metrics
            dear = shares_well(metrics.get("subject_cpu_cores"), metrics.get("engine_cpu_cores"))
            if not result.valid or result.cpus.machine == 1 or not dear:
                return False
            self.shared, self._decided = True, False
            return True
        if any(code.startswith(TOO_LATE) for code in codes) and not machine_disturbed(result):
            self.shared, self._decided = False, True
            return True
        self._decided = result.valid
        return False
