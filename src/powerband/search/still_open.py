"""Says which settings of a race are still open: for which more blocks could change the answer.

In: a contest (`analyze/settings/contest.py`) and what is known of the conditions. Out: settings. Not here: what the
race does with them (`race.py`), the same rule for simulated races (`outlook.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from powerband.analyze.settings.constraints import Compliance
from powerband.analyze.settings.contest import Contest, ResponseTable, cheapest_of
from powerband.model.plan import Setting
from powerband.model.results import Verdict


def still_open(
    contest: Contest,
    compliance: Mapping[Setting, Compliance],
    table: ResponseTable,
    live: Sequence[Setting],
) -> list[Setting]:
    """Settings for which more blocks could change the answer, or the verdict against the leader.

    A setting that cannot be better than the leader by more than the margin is not worth more trials just to prove that
    it is equivalent, or worse where another looks equivalent, since then none will be the best; unless it is cheaper
    than the setting that would be named now. One that was never compared with the leader, as its short trials are no
    measure for full ones, is open."""
    found = [setting for setting in live if contest.verdict(setting) is Verdict.EQUIVALENT]
    certain = {setting for setting in found if compliance[setting].certain}
    costs = {setting: table.cost(setting) for setting in live}
    contenders = set(contest.contenders())

    def named(among: Collection[Setting]) -> list[Setting]:
        return cheapest_of({setting: cost for setting, cost in costs.items() if setting in among})[:1]

    def looks_worse(setting: Setting) -> bool:
        return contest.difference.get(setting, -math.inf) < -contest.allowed

    others = (s for s in live if s != contest.leader and contest.verdict(s) is not Verdict.WORSE)
    alike = not all(map(looks_worse, others))

    def is_open(setting: Setting) -> bool:
        if setting == contest.leader or compliance[setting].barred:
            return False
        if setting in table.lacking:  # they can only show it worse
            return contest.verdict(setting) is not Verdict.WORSE and contest.difference.get(setting, 0.0) < 0
        verdict = contest.verdict(setting)
        if verdict is Verdict.WORSE:
            return False
        if setting not in contest.difference:
            return True
        unsure = bool(compliance[setting].open)
        if verdict is Verdict.EQUIVALENT or setting not in contenders:
            decides_best = not alike and looks_worse(setting)
            cheaper = named({*certain, setting}) != named(certain)
            return decides_best or (cheaper and (unsure or verdict is not Verdict.EQUIVALENT))
        return True

    return [setting for setting in live if is_open(setting)]
