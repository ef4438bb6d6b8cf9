"""Widens the interval of a rate, or of a share of requests, to its counting error: few requests say little, however
alike the trials are.

In: an estimate, and the metrics of the trials that it is of. Out: the estimate with an interval that their number of
requests allows. Verdicts on conditions, claims, tables and the answer's figure all take it from here, so that they
agree. Method: docs/methods/estimates.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from powerband.analyze.stats.counts import no_narrower_than_counted, share_no_narrower_than_counted
from powerband.model.experiment import Experiment
from powerband.model.results import Estimate

_RATES = ("goodput_per_s", "achieved_rate_per_s")
_SHARES = ("error_rate", "run_error_rate", "dropped_rate")  # of requests
_SHARES_OF_JOINS = ("join_error_rate", "drop_rate")
_SHARE_OF_BURST = "burst_error_rate"


def counted(experiment: Experiment, metric: str, found: Estimate, trials: Sequence[Mapping[str, float]]) -> Estimate:
    """The estimate with an interval no narrower than the counting error, for a rate of requests or a share of them;
    other metrics as they are, and an estimate without an interval. `trials`: metrics of trials like those that the
    estimate is of, at least one, each with the experiment's measured time."""
    if metric in _RATES and found.value > 0 and experiment.load.requests_per_user is None:
        requests = found.n * float(np.mean([_of_rate(experiment, metric, trial) for trial in trials]))
        return no_narrower_than_counted(found, requests, requests / found.value)
    return counted_share(experiment, metric, found, trials)


def counted_share(
    experiment: Experiment, metric: str, found: Estimate, trials: Sequence[Mapping[str, float]]
) -> Estimate:
    """Like `counted`, for shares of requests or joins alone. Conditions and claims leave rates as they are: an even
    load has less of an error than a Poisson count."""
    if metric not in (*_SHARES, *_SHARES_OF_JOINS, _SHARE_OF_BURST):
        return found
    requests = found.n * float(np.mean([_of_share(experiment, metric, trial) for trial in trials]))
    return share_no_narrower_than_counted(found, requests)


def _of_rate(experiment: Experiment, metric: str, trial: Mapping[str, float]) -> float:
    """The number of requests that a trial's rate is of; in a disturbed trial, those of its quiet seconds."""
    return trial.get(metric, 0.0) * trial.get("quiet_s", experiment.load.duration_ns / 1e9)


def _of_share(experiment: Experiment, metric: str, trial: Mapping[str, float]) -> float:
    """The number of requests or joins that a trial's share is of, or fewer: of all requests since the start those of
    the window, of a burst those answered rightly, of all joins the users who hold a WebSocket. 0 if not known."""
    load = experiment.load
    if metric in _SHARES_OF_JOINS:
        return trial.get("joined_users", 0.0)
    if metric == _SHARE_OF_BURST:
        return trial.get("burst_goodput_per_s", 0.0) * experiment.measure.burst_ns / 1e9
    if load.requests_per_user is not None:
        return float((load.users or 0) * load.requests_per_user)
    per_s = trial.get("window_achieved_rate_per_s", trial.get("achieved_rate_per_s", 0.0))
    return per_s * load.duration_ns / 1e9
