"""The amount by which the same server's figures differ from one session of measuring to the next on one machine.

In: what earlier runs found of the same settings. Out: a standard deviation on the log scale and its degrees of freedom.
Two runs cannot tell a changed server from another day, so a comparison of two allows for that. Pure; which runs are
earlier ones of the same server is decided in `search/earlier.py`. Method: docs/methods/comparing-runs.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from powerband.analyze.stats.special import student_t
from powerband.model.plan import Setting

ASSUMED_SD, ASSUMED_FREEDOM = 0.03, 3.0  # weighs as much as four earlier runs


@dataclass(frozen=True)
class SessionSpread:
    """The spread between sessions. `sd`: the standard deviation of a session's effect on the logarithm of a figure;
    `freedom`: its degrees of freedom. `runs`: the number of runs that it was found from; 0: it is assumed."""

    sd: float
    freedom: float
    runs: int = 0

    def half_width(self, confidence: float) -> float:
        """The half-width of the interval of the difference of two sessions, on the log scale (Student's t)."""
        return student_t(confidence, self.freedom) * math.sqrt(2) * self.sd if self.sd else 0.0

    def sentence(self, confidence: float) -> str:
        """Says by how much the intervals are widened since separate runs differ, and how to avoid that."""
        width = f"{100 * math.expm1(self.half_width(confidence)):.0f} %"
        whence = f"as {self.runs} runs show" if self.runs else "until more runs of this experiment show more"
        return (
            f"Separate runs differ too: each interval allows for up to {width}, {whence}. Revisions measured in one "
            "run (`powerband compare OLD NEW -- COMMAND`) need no such allowance."
        )


ASSUMED = SessionSpread(ASSUMED_SD, ASSUMED_FREEDOM)
SAME_SESSION = SessionSpread(0.0, math.inf)


def spread_of_sessions(runs: Sequence[Mapping[Setting, float]]) -> SessionSpread:
    """Estimates the spread of sessions. `runs`: a figure of each setting, above zero, in each earlier run of the same
    server.

    A run's effect is the mean of the logarithms over the settings that all runs have. The variance of these effects is
    pooled with the assumed one as with a conjugate prior, a scaled inverse chi-squared (Gelman and others, Bayesian
    Data Analysis, 3rd edition, section 2.6). It includes the noise within a run: too wide rather than too narrow."""
    common = set.intersection(*(set(run) for run in runs)) if runs else set()
    if len(runs) < 2 or not common:
        return ASSUMED
    effects = [math.fsum(math.log(run[setting]) for setting in common) / len(common) for run in runs]
    mean = math.fsum(effects) / len(effects)
    freedom = ASSUMED_FREEDOM + len(effects) - 1
    squares = ASSUMED_FREEDOM * ASSUMED_SD**2 + math.fsum((effect - mean) ** 2 for effect in effects)
    return SessionSpread(math.sqrt(squares / freedom), freedom, len(runs))
