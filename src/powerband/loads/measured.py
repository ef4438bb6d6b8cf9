"""Measures every load of requests: its rates, errors and times, its users, and whether its generator may be believed.

In: a trial's evidence. Out: two sources, for the load and for its users, and the parts that a kind of load may replace.
docs/reference/validity.md describes each code, its threshold and the reason for it. Not here: what the machine did
meanwhile (`analyze/trial/honesty.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from powerband.base.units import format_duration, with_article
from powerband.loads.failed_requests import BY_THE_SUBJECT, cause_of
from powerband.loads.far_clocks import clock_problems
from powerband.model.clocks import most_starved
from powerband.model.cpu_use import shares_well
from powerband.model.load import Load
from powerband.model.metrics import metric_words
from powerband.model.plan import Stage
from powerband.model.results import Problem
from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import QUANTILES, SECOND_NS, MergedFleet, MergedTimes, Unserved

LITTLE_TOLERANCE = 0.02  # the law is an identity, but for the engine's time between answer and request: 2 % is a defect
STOPPED_SHARE = 0.02  # of the window: as much work as Little's law and the schedule may miss
STOPPED_MIN_NS = 100_000_000  # an engine's interval: a shorter stop may fall between two edges
LAG_FLOOR_NS = 1_000_000  # the machine's timers are no more precise
LAG_SHARE = 0.10  # more would be a visible part of the response time
THREAD_SHARE_MAX = 0.90  # beyond it requests wait for the engine
STARVED_WINDOW_SHARE = 0.05  # a quiet engine with 3,000 wake-ups a second waits for a CPU in 2 % of the window
DEALS_BY_THREADS = 4  # CPUs: of fewer the engine gets one, however many threads it has
WAKE_UP_NS = 100_000  # a wake-up takes 6 to 18 us on a quiet virtual machine, 110 to 620 on a busy one
THROTTLED = 0.5  # of the periods of a CPU quota, those in which it was used up
STARVED_RESPONSE_SHARE = 0.10  # more would be a visible part of the response time
LONG_RESPONSE = 0.2  # of the window: of exponential times with that median one in thirty covers it
STANDARD_ERRORS = 3.0  # a Poisson count lies further off by chance in 0.3 % of the cases
SCHEDULE_SHARE = 0.02  # below the margin of verdicts, 3 %
FEW_REQUESTS = 100  # the mean of so many exponential times is known to 10 % (1 / sqrt(100))
RESPONSE = "response_time_ns"
REDIRECTS_NOTE = 0.90  # of the right answers: a login or a moved page, not one step of a scenario
BEYOND_LEAST = 10  # requests beyond a percentile: with fewer it is little more than the largest few
MEAN_WITHOUT = 0.03  # of the requests: the default margin of verdicts; a mean of the answered ones hides so many
Z_95 = 1.96  # of the normal distribution, two-sided

Check = Callable[[Evidence, Mapping[str, float]], Iterator[Problem]]


def load_metrics(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yields the rates, error rates and times of a load in its measured window, and the CPU of its generator. A metric
    without a request to rest on is left out."""
    fleet = evidence.fleet
    yield from _rates(fleet)
    yield "engine_cpu_share_max", fleet.cpu_share_max
    if fleet.cohort.scheduled:
        yield "error_rate", unanswered_share(fleet, evidence.load)
        yield "dropped_rate", fleet.cohort.dropped / fleet.cohort.scheduled
    if fleet.total.scheduled:
        yield "run_error_rate", 1 - fleet.total.ok / fleet.total.scheduled
    if fleet.achieved_per_s > 0:
        yield "engine_cpu_ns_per_request", fleet.cpu_cores * SECOND_NS / fleet.achieved_per_s
    yield from _response_metrics(evidence)
    yield from _time_metrics("service_time_ns", fleet.times("service_time_ns"))
    for name, times in (("send_lag_ns_p99", evidence.send_lag), ("connect_time_ns_p99", fleet.connect_times())):
        if times.count:
            yield name, times.quantile(0.99)


def _rates(fleet: MergedFleet) -> Iterator[tuple[str, float]]:
    yield "goodput_per_s", fleet.goodput_per_s
    yield "achieved_rate_per_s", fleet.achieved_per_s
    yield "offered_rate_per_s", fleet.offered_per_s
    yield "engine_cpu_cores", fleet.cpu_cores


def _time_metrics(name: str, times: MergedTimes) -> Iterator[tuple[str, float]]:
    """Yields the statistics of a time. One of 0 is below the resolution of the clock (JMeter), so it counts as not
    measured."""
    if times.count:
        quantiles = {key: times.quantile(q) for key, q in QUANTILES.items()}
        found = {"mean": times.moment(1), "max": times.maximum, **quantiles}
        yield from ((f"{name}_{key}", value) for key, value in found.items() if value > 0)


def _error_rate(fleet: MergedFleet, load: Load) -> float:
    """Returns the share of requests that did not end ok. If users were left out, it is at least the share that would be
    theirs if each had as many requests as a served user: 1 - (1 - u) ok / scheduled, where u is the share of unserved
    users and the requests are those of served users."""
    cohort, left_out = fleet.cohort, _unserved(fleet, load)
    by_requests = 1 - cohort.ok / cohort.scheduled
    if left_out is None or not left_out.users:
        return by_requests
    if load.pace is not None:  # what was due to unserved users who have a connection is scheduled, and dropped
        return 1 - (1 - _absent_share(fleet, load)) * (1 - by_requests)
    of_served = max(cohort.ok, cohort.scheduled - left_out.requests, 1)
    return max(by_requests, 1 - (1 - unserved_share(fleet, load)) * cohort.ok / of_served)


def _unserved(fleet: MergedFleet, load: Load) -> Unserved | None:
    """Returns the users of a closed load who were due and got no `ok` answer in the whole window; a user who paused
    within it is not among them, nor are slow ones. None in an open load, which has no users, and if the generator does
    not tell."""
    if load.users is None or fleet.unserved is None:
        return None
    return Unserved(users=0, requests=0) if _are_only_slow(fleet.unserved, fleet, load) else fleet.unserved


def _are_only_slow(left_out: Unserved, fleet: MergedFleet, load: Load) -> bool:
    """True if users without an answer within the window of length T only waited for long responses: each request of the
    whole run was answered rightly in the end, and half of the responses take a good part of T; or those that take
    longer than T explain as many users.

    A request of length R covers the window if it begins at most R - T before it: with X sent per second these are
    X E[max(R - T, 0)] (Little's law, of the parts of requests beyond T). Three standard errors of a Poisson count are
    allowed beside. Users without a pace have `pipeline` requests in flight; with a pace each may have a single one, so
    that as many users are an upper bound, and what a full pipeline kept from being sent was dropped. Without a
    connection they have none."""
    in_the_end = fleet.total.ok == fleet.total.scheduled
    if not left_out.users or not in_the_end or left_out.absent:
        return False
    times, window_ns = fleet.times("response_time_ns"), fleet.window_s * SECOND_NS
    expected = times.beyond(window_ns) / window_ns / (load.pipeline if load.pace is None else 1)
    as_expected = expected >= 1 and left_out.users <= expected + STANDARD_ERRORS * math.sqrt(expected)
    return times.quantile(0.5) >= LONG_RESPONSE * window_ns or as_expected


def unserved_share(fleet: MergedFleet, load: Load) -> float:
    """Returns unserved users as a share of those present, 0 to 1; 0 if they are not known."""
    left_out, present = _unserved(fleet, load), _present(fleet, load)
    return 0.0 if left_out is None or present <= 0 else min(1.0, left_out.users / present)


def _absent_share(fleet: MergedFleet, load: Load) -> float:
    left_out = _unserved(fleet, load)
    return 0.0 if left_out is None else min(1.0, left_out.absent / max(1.0, _present(fleet, load)))


def _present(fleet: MergedFleet, load: Load) -> float:
    """Returns the users present, on average over the window; users who have sent all their requests, and those who
    could not join, are counted."""
    leave = load.requests_per_user is not None or load.websocket is not None
    return max(fleet.users_mean, load.users or 0) if leave else fleet.users_mean


def _response_metrics(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yields the metrics of response times.

    The percentiles are of all requests that were due: those without a right answer rank last, with the length of the
    window, or the longest time seen, as their time. A percentile needs ten requests beyond it. Its interval is that of
    order statistics, by the normal approximation of the binomial (H. A. David, H. N. Nagaraja, Order Statistics, 3rd
    edition, section 7.1), as if requests were independent. The maximum beside requests without a right answer is their
    time, too; the mean is of the requests that were answered, as Little's law needs it."""
    fleet, times = evidence.fleet, evidence.response
    due, share = due_requests(fleet, evidence.load, times), unanswered_share(fleet, evidence.load)
    if not times.count or times.maximum <= 0:
        return
    yield f"{RESPONSE}_mean", times.moment(1)
    left_out = _unserved(fleet, evidence.load)
    nothing = left_out is not None and left_out.users >= 1
    yield f"{RESPONSE}_max", _standing_in(fleet, times) if nothing or share > 0 else times.maximum
    found: dict[str, float] = {}
    for key, q in QUANTILES.items():
        if due >= requests_for(name := f"{RESPONSE}_{key}"):
            half = Z_95 * math.sqrt(q * (1 - q) / due)
            for end, at in (("", q), ("_low", q - half), ("_high", min(1.0, q + half))):
                found[f"{name}{end}"] = response_quantile(fleet, times, share, at)
    yield from ((name, value) for name, value in found.items() if value > 0)  # 0: below the clock's resolution


def response_quantile(fleet: MergedFleet, times: MergedTimes, share: float, q: float) -> float:
    """Returns a quantile of the response times of all requests that were due, in ns. `times`: those of the ones that
    ended ok; `share`: the others, which rank last."""
    return _standing_in(fleet, times) if q > 1 - share else times.quantile(q / (1 - share))


def requests_at(q: float) -> int:
    """Returns how many requests a quantile below 1 needs."""
    return math.ceil(BEYOND_LEAST / (1 - q) - 1e-9)


def enough_s(due: int, needed: int, window_s: float) -> int:
    """Returns how many seconds a window lasts in which as many requests are due as are needed, if `due` ones were in
    one of `window_s` seconds."""
    return math.ceil(window_s * needed / max(due, 1))


def few_requests(due: int, needed: int, what: str, window_s: float) -> str:
    """Says that only `due` requests were due in a window of `window_s` seconds, and how long one with as many as are
    needed lasts. `what`: what needs how many, in words."""
    longer = enough_s(due, needed, window_s)
    return (
        f"only {due:,} requests were due in the window, and {what}: a load.duration of {longer} s "
        f"(--duration {longer}s) would do at this rate"
    )


def in_flight_chance_per_s(offered_per_s: float, response_s: float, window_s: float) -> float:
    """The rate per second by which what is served may fall short of what is offered by chance: the number of requests
    in flight, whose mean is rate times response time (Little 1961), differs between the window's two ends, each with
    its Poisson spread. Three standard deviations of that difference."""
    return STANDARD_ERRORS * math.sqrt(2 * offered_per_s * response_s) / window_s


def least_served(kept_up: float, steps: int) -> float:
    """The least share of the offered requests that a server answers if it keeps up with the share `kept_up` of the rate
    at which scenarios of so many steps begin. A step is offered once the one before it was answered, so that of k
    steps, of which the share e is more than the server can bear, only 2 e / (k + 1) is missing."""
    return 1 - 2 * (1 - kept_up) / (steps + 1)


def requests_for(metric: str) -> int:
    """Returns how many requests must be due in a trial for this percentile of its response times, or an end of its
    interval; 0 for every other metric."""
    stem, _, key = metric.removesuffix("_low").removesuffix("_high").rpartition("_")
    return requests_at(QUANTILES[key]) if stem == RESPONSE and key in QUANTILES else 0


def least_of(metric: str, metrics: Mapping[str, float]) -> float | None:
    """A lower bound for a percentile of response times that a trial had too few requests for: the highest lower
    percentile that was measured. None if there is none, and for every other metric."""
    lower = [f"{RESPONSE}_{key}" for key in QUANTILES]
    lower = lower[: lower.index(metric)] if metric in lower else []
    return next((metrics[name] for name in reversed(lower) if name in metrics), None)


def is_lower_bound(metric: str, metrics: Mapping[str, float]) -> bool:
    """True if a trial's response time is only a lower bound, since requests without a right answer took longer: a
    percentile, or an end of its interval, that falls on these, the maximum beside any of them, the mean beside more
    than `MEAN_WITHOUT`."""
    stem, _, key = metric.rpartition("_")
    if key in ("low", "high") and requests_for(metric) and metrics.get("error_rate", 0.0) > 0:
        return metrics.get(metric, 0.0) >= metrics.get(f"{RESPONSE}_max", math.inf)  # then their time, too
    if stem != RESPONSE or key not in (*QUANTILES, "max", "mean"):
        return False
    allowed = 1 - QUANTILES[key] if key in QUANTILES else MEAN_WITHOUT if key == "mean" else 0.0
    return metrics.get("error_rate", 0.0) > allowed


def as_judged(metric: str, metrics: Mapping[str, float]) -> float | None:
    """A trial's metric as conditions judge it: infinite if it is a lower bound, None if it was not measured."""
    return math.inf if is_lower_bound(metric, metrics) else metrics.get(metric)


def due_requests(fleet: MergedFleet, load: Load, response: MergedTimes) -> int:
    """Returns how many requests were due in the window; unserved users would have had as many as served ones.
    `response`: the fleet's response times."""
    left_out = _absent_share(fleet, load) if load.pace is not None else unserved_share(fleet, load)
    served = max(1 - left_out, 1 / max(1.0, _present(fleet, load)))
    return round(max(fleet.cohort.scheduled, response.count) / served)


def _standing_in(fleet: MergedFleet, times: MergedTimes) -> float:
    """Returns the time that stands for requests without a right answer, which took at least so long."""
    return max(fleet.window_s * SECOND_NS, times.maximum)


def unanswered_share(fleet: MergedFleet, load: Load) -> float:
    """Returns the requests without a right answer as a share of those that were due: failed, dropped or unfinished
    ones, and those of unserved users, with as many as a served one had."""
    return _error_rate(fleet, load) if fleet.cohort.scheduled else unserved_share(fleet, load)


def users_metrics(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yields the users present, and how well Little's law holds for them. The law says nothing of users with a pace,
    who send whether or not they were answered; nor of users near the end of their requests, who have fewer in flight
    than they may."""
    fleet, load = evidence.fleet, evidence.load
    if load.users is None or fleet.users_mean <= 0:
        return
    yield "users_mean", fleet.users_mean
    if (left_out := _unserved(fleet, load)) is not None:
        yield "users_unserved", left_out.users
        yield "users_unserved_share", unserved_share(fleet, load)
    if load.pace is None and (load.pipeline == 1 or load.requests_per_user is None):
        slots = fleet.users_mean * load.pipeline
        yield "littles_law_deviation", abs(slots - _present_by_times(fleet)) / slots


def edgeless_goodput(fleet: MergedFleet, load: Load) -> float | None:
    """Returns N / R per second: by Little's law (1961) the goodput of users who never pause and always get right
    answers. N: the requests that they keep in flight; R: the mean response time.

    Where many answers come at once, a window counts all of them or none at its ends; their mean time R hardly depends
    on where it ends. None where the law cannot stand for the count: some requests failed, users paused, joined one
    after the other or got nothing, messages are counted, the warm-up was shorter than R, so that the first answers,
    from before the queue filled, are among these, or the two differ by more than one answer a user, which is the most
    that the ends can do."""
    answered_only = fleet.ended > 0 and fleet.window_outcomes.get("ok", 0) == fleet.ended and fleet.cohort.dropped == 0
    left_out = _unserved(fleet, load)
    unserved = left_out is not None and left_out.users > 0
    plain = load.never_pauses and load.websocket is None and not load.joining_ns
    if not (plain and answered_only) or unserved or fleet.busy_users_mean <= 0:
        return None
    warmup_ns = min(summary["measure_start_ns"] - summary["go_ns"] for summary in fleet.summaries)
    if fleet.busy_users_mean / fleet.goodput_per_s * SECOND_NS > warmup_ns:
        return None
    rate = fleet.goodput_per_s * fleet.users_mean / fleet.busy_users_mean
    return rate if abs(rate - fleet.goodput_per_s) * fleet.window_s <= fleet.users_mean else None


def in_flight_metrics(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yields `in_flight_mean`: the mean of each engine's samples in the window, added over the fleet."""
    start, end = evidence.window
    levels: dict[int, list[int]] = {}
    for event in evidence.intervals:
        if start < event["end_ns"] <= end:
            levels.setdefault(event.get("engine", 0), []).append(event["in_flight_now"])
    if levels:
        yield "in_flight_mean", sum(sum(values) / len(values) for values in levels.values())


def stretch_metrics(evidence: Evidence) -> dict[str, float]:
    """Returns the metrics that intervals alone give: rates, the share of failed requests, requests in flight."""
    fleet = evidence.fleet
    failed_share = 1 - fleet.goodput_per_s / fleet.achieved_per_s if fleet.achieved_per_s else 0.0
    return dict([*_rates(fleet), ("error_rate", failed_share), *in_flight_metrics(evidence)])


def checks(*generator: Check) -> Check:
    """Combines all checks of a load. `generator`: those that depend on what sends the requests."""

    def check_all(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
        for check in (_conservation, _ended, _stopped, _littles_law, _starved_users, _ran_out, *generator, _schedule):
            yield from check(evidence, metrics)

    return check_all


def _conservation(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    for name, counts in (("the whole run", evidence.fleet.total), ("the measured window", evidence.fleet.cohort)):
        if counts.scheduled != counts.sent + counts.dropped:
            yield Problem(
                "lost_work",
                f"over {name} {counts.scheduled} requests were scheduled but {counts.sent} sent and {counts.dropped} "
                "dropped: the load generator lost count; please report this as a defect with the trial's directory",
            )
        if counts.sent != counts.ended:
            yield Problem(
                "lost_outcomes",
                f"over {name} {counts.sent} requests were sent but {counts.ended} have an outcome: "
                "the load generator lost count; please report this as a defect with the trial's directory",
            )


def _ended(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    fleet, in_time = evidence.fleet, evidence.fleet.total.ok == evidence.fleet.total.ended
    if fleet.ended == 0 and in_time and evidence.load.rate_per_s is not None and not fleet.cohort.scheduled:
        yield Problem(
            "short_window",
            f"no request was due within the measured {fleet.window_s:.1f} s at this rate: lengthen load.duration "
            "(--duration)",
        )
    elif fleet.ended == 0 and in_time and fleet.total.ok:
        yield Problem(
            "short_window",
            f"no request ended within the measured {fleet.window_s:.1f} s, though all were answered in time: responses "
            "take longer; lengthen load.duration (--duration)",
        )
    elif fleet.ended == 0:
        yield Problem(
            "no_request_ended",
            f"no request ended within the measured {fleet.window_s:.1f} s: the server does not answer at this "
            "setting, or the window is shorter than one response; lengthen load.duration or look at the server's log",
        )
    elif fleet.window_outcomes.get("ok", 0) == 0:
        worst = max(fleet.window_outcomes, key=lambda outcome: fleet.window_outcomes[outcome])
        if worst == "status_rejected" and fleet.rejected_statuses:
            status = f"status {fleet.rejected_statuses.most_common(1)[0][0]}"
            worst = f"{status}: {cause_of(status, 0, '')}"
        before = f"; before the window {fleet.total.ok:,} did" if fleet.total.ok else ""
        yield Problem(
            "no_request_ok",
            f"none of {fleet.ended} requests succeeded (most: {worst}){before}: look at the server's log and the "
            "step's checks",
        )
    else:
        yield from _percentiles(evidence)
        yield from _redirects(fleet)


def _percentiles(evidence: Evidence) -> Iterator[Problem]:
    """Reports percentiles of the objective and its constraints that rest on too few requests, and those that fall on
    requests without a right answer."""
    asked = evidence.experiment.objective.needed_metrics
    due = due_requests(evidence.fleet, evidence.load, evidence.response)
    needed, metric = max((requests_for(metric), metric) for metric in asked)
    if due < max(needed, FEW_REQUESTS):
        named = with_article(metric_words(metric))
        what = f"{named} needs {needed:,}" if needed else f"at least {FEW_REQUESTS} are needed"
        told = few_requests(due, max(needed, FEW_REQUESTS), what, evidence.fleet.window_s)
        yield Problem("few_requests", told, fatal=False)
    share = unanswered_share(evidence.fleet, evidence.load)
    shown = {key: q for key, q in QUANTILES.items() if key != "p999" or f"{RESPONSE}_p999" in asked}
    open_from = next((key for key, q in shown.items() if q > 1 - share), None)
    if open_from is not None:
        yield Problem(
            "unanswered_percentiles",
            f"{100 * share:.1f} % of the requests that were due got no correct response: percentiles from {open_from} "
            f"on are only known to be at least {format_duration(_standing_in(evidence.fleet, evidence.response))}",
            fatal=False,
        )


def _redirects(fleet: MergedFleet) -> Iterator[Problem]:
    if fleet.redirects >= REDIRECTS_NOTE * fleet.total.outcomes.get("ok", 0):
        yield Problem(
            "redirects",
            f"{fleet.redirects:,} answers were redirects, which count as right and are not followed: the figures are "
            "not those of the page behind them; load its own address, or say what an answer must contain (--expect)",
            fatal=False,
        )


def _is_stopped(fleet: MergedFleet, metrics: Mapping[str, float]) -> bool:
    """True if an engine did not run for a part of the window that matters, or across one of its edges, and its threads
    did not wait for a CPU for so long: that is judged by itself (`starved`)."""
    window_ns = fleet.window_s * SECOND_NS
    waited_ns = metrics.get("engine_run_wait_cores", 0.0) * window_ns
    return fleet.late_ns - waited_ns > max(STOPPED_MIN_NS, STOPPED_SHARE * window_ns)


def _stopped(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Reports an engine that did not run: in a closed load nothing is sent meanwhile, and no lag shows it."""
    if _is_stopped(evidence.fleet, metrics):
        yield Problem(
            "engine_stopped",
            f"the load generator did not run for {format_duration(evidence.fleet.late_ns)} in the measured window or "
            "across its start or end: it was stopped (SIGSTOP, a debugger), or the machine was suspended; the trial "
            "says nothing of the server",
        )


def _littles_law(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    fleet, deviation = evidence.fleet, metrics.get("littles_law_deviation", 0.0)
    if deviation > LITTLE_TOLERANCE and fleet.ended and not _is_stopped(fleet, metrics):
        slots = fleet.users_mean * evidence.load.pipeline
        yield Problem(
            "littles_law",
            f"Little's law does not hold: {slots:.1f} were present, but X (R + Z) and what the window's edges cut "
            f"make {_present_by_times(fleet):.1f}, {100 * deviation:.1f} % apart ({100 * LITTLE_TOLERANCE:.0f} % "
            "allowed): times or counts of this trial are wrong; please report this as a defect with the trial's "
            "directory",
        )


def _present_by_times(fleet: MergedFleet) -> float:
    """Returns the right-hand side of Little's law over a window, N = X (R + Z): the cycles that ended within it, minus
    their parts before it, plus the parts within it of those that had not ended (Little 2011, "Little's Law as viewed on
    its 50th anniversary": with the edges counted the law is an identity on every finite window)."""
    return fleet.busy_users_mean + fleet.thinking_users_mean + fleet.carried_users_mean


def _starved_users(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Reports users without an answer: a request that waits all through the window has no outcome and no response time,
    and one that fails has no response time. Says so where responses are longer than the window."""
    fleet, left_out = evidence.fleet, _unserved(evidence.fleet, evidence.load)
    if left_out is not None and fleet.unserved is not None and fleet.unserved.users > left_out.users:
        longest_ns = _standing_in(fleet, evidence.response)
        yield Problem(
            "short_window",
            f"{fleet.unserved.users:,.9g} of {_present(fleet, evidence.load):.0f} users were not answered once within "
            f"the measured window: responses take up to {format_duration(longest_ns)}; lengthen load.duration "
            f"(--duration {math.ceil(2 * longest_ns / SECOND_NS)}s)",
            fatal=False,
        )
        return
    if left_out is not None and left_out.users >= 1:
        absent = " had no connection, on average, or" if left_out.absent else ""
        whose, shown = f"{left_out.users:,.9g} of {_present(fleet, evidence.load):.0f} users{absent} were", ""
    elif left_out is None and fleet.unanswered:
        whose, shown = f"{fleet.unanswered} requests were", ", which error_rate and the response times do not show"
    else:
        return
    if fleet.window_outcomes.get("ok", 0):
        yield Problem(
            "starved_users",
            f"{whose} not answered once within the measured window{shown}: the server serves fewer connections than "
            "it was given (keep-alive may bind each to a thread), refuses some, or the window is shorter than one "
            "response",
            fatal=False,
        )


def _ran_out(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    fleet = evidence.fleet
    for outcome, remedy in (
        ("no_descriptors", "raise the limit (ulimit -n) or lower the load"),
        ("no_ports", "use keep_alive, or a wider net.ipv4.ip_local_port_range"),
    ):
        if count := fleet.total.outcomes.get(outcome, 0):
            yield Problem(
                f"generator_{outcome}", f"this machine ran out of {outcome[3:]} for {count} requests: {remedy}"
            )


def _engine(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    fleet, load = evidence.fleet, evidence.load
    # An engine that must be exact to the nanosecond spins before each send, so its CPU says nothing.
    spins = load.rate_per_s is not None and load.precision_ns == 0
    most = full_share(evidence, metrics.get("host_foreign_cores"))
    if fleet.cpu_share_max > most and not spins:
        used = f"the load generator's busiest thread used {100 * fleet.cpu_share_max:.0f} % of a CPU"
        if _fails_too_many(evidence):
            message = f"{used}: the server failed requests, and their users sent the next ones at once"
            yield Problem("generator_cpu", message, fatal=False)
        else:
            cure = (
                "raise load.engine_threads or lower the load"
                if _has_cpu_for_a_thread(evidence)
                else "it has no CPU for another thread: leave it more (--cpus, host.pinning), load from other nodes, "
                "or lower the load"
            )
            why = "" if most > THREAD_SHARE_MAX - 0.005 else ", as interrupts leave no more"
            limit = f"(limit {100 * most:.0f} %{why})"
            yield Problem("generator_cpu", f"{used} {limit}: it was the limit, not the server; {cure}")
    lag_ns, limit_ns = evidence.send_lag.quantile(0.99), _lag_limit_ns(load, evidence.response)
    if evidence.send_lag.count and lag_ns > limit_ns:
        yield Problem(
            "generator_lag",
            f"requests were sent {format_duration(lag_ns)} late at p99 ({format_duration(limit_ns)} allowed): the "
            "response times include the load generator's own delay; give it more threads or CPUs, or lower the load",
        )


def full_share(evidence: Evidence, foreign: float | None) -> float:
    """Returns the share of a CPU beyond which requests wait for an engine thread: `THREAD_SHARE_MAX` of what interrupts
    that the kernel counts apart leave of it, since the thread's clock stands still in them (in stolen time only on some
    kernels). `foreign`: CPUs that other programs used, None if not known."""
    return THREAD_SHARE_MAX * (1 - evidence.interrupted_share("engine", evidence.fleet.cpu_cores, foreign))


def _has_cpu_for_a_thread(evidence: Evidence) -> bool:
    """True if a further thread of the engine on this machine has a CPU to run on, or would get one: of four cores or
    more it gets as many as it has threads, up to half of them (`processes/cpus.py`). True if that is not known, as
    beside a container."""
    machine, engine = (evidence.record.cpus.get(name, []) for name in ("machine", "engine"))
    cpus = len(engine or machine)
    gets_more = evidence.experiment.host.deals_freely and len(machine) >= DEALS_BY_THREADS and cpus < len(machine) // 2
    return bool(evidence.generators) or not machine or evidence.fleet.threads < cpus or gets_more


def _fails_too_many(evidence: Evidence) -> bool:
    """True if the server by itself failed more requests than the objective allows, however fast it was asked."""
    counts = evidence.fleet.cohort
    failed = sum(counts.outcomes.get(outcome, 0) for outcome in BY_THE_SUBJECT)
    return any(
        limit.metric == "error_rate" and not limit.holds(failed / max(1, counts.scheduled))
        for limit in evidence.experiment.objective.constraints
    )


def starved(evidence: Evidence, metrics: Mapping[str, float], *, whose: str, remedy: str) -> Iterator[Problem]:
    """Reports a generator that lacked a CPU: it sends and reads late, which the times of a closed load do not show."""
    fleet, waited = evidence.fleet, metrics.get("engine_run_wait_cores")
    server, generator = metrics.get("subject_cpu_cores"), metrics.get("engine_cpu_cores")
    # If powerband itself chose to share the CPUs, it did so because the server takes nearly all of them.
    meant = evidence.experiment.host.pinning == "auto" and shares_well(server, generator)
    decided = evidence.experiment.subject.is_own_process
    if evidence.served_by:
        cure = (
            ", and it shares CPUs with the load generator; start the server itself (docker run in place of docker "
            "compose, a build tool without its daemon)"
        )
        yield Problem(
            "served_by_another",
            f"not the command's own processes serve, but {evidence.served_by}, which another program started: the "
            f"server's CPU, memory and threads are not known{cure if evidence.is_here and decided else ''}",
            fatal=False,
        )
    elif (own := evidence.own_affinity) is not None and not evidence.pinned:
        given = len(evidence.record.cpus["subject"])
        yield Problem(
            "own_affinity",
            f"the server sets its own CPU affinity: it was given {given} CPUs, but may run on "
            f"{own if own > given else f'{own} others'}, so that it and the load generator took time from each other; "
            "start it without taskset, worker_cpu_affinity and the like, or give it all CPUs (--cpus all)",
            fatal=False,
        )
    elif evidence.is_here and not evidence.pinned and not meant:
        known = server is not None and generator is not None
        used = f" (the server used {server:.2f}, the load generator {generator:.2f})" if known else ""
        kept = "keep some from the server (--cpus, host.cpus)"
        pinned = kept if evidence.experiment.host.pinning == "auto" else f"leave host.pinning on, or {kept}"
        yield Problem(
            "not_pinned",
            f"server and load generator {'shared' if decided else 'may have shared'} CPUs{used}: each took time from "
            f"the other; with two CPUs or more, {pinned if decided else f'keep them apart ({evidence.apart})'}",
            fatal=False,
        )
    if not waited or not fleet.threads or not evidence.response.count:
        return
    # Each wake-up takes some us, which the kernel counts as waiting: only longer waits are a lack of CPU.
    turn_ns = metrics.get("engine_run_wait_ns_mean", 0.0)
    waited_share, wanted_share = min(1.0, waited / fleet.threads), (waited + fleet.cpu_cores) / fleet.threads
    slowed = turn_ns > STARVED_RESPONSE_SHARE * evidence.response.moment(1)
    there = "" if (worst := most_starved(evidence.generators)) is None else f" of {worst.node}"
    if turn_ns > WAKE_UP_NS and waited_share > STARVED_WINDOW_SHARE and (slowed or wanted_share > THREAD_SHARE_MAX):
        yield Problem(
            "generator_starved",
            f"{whose} threads{there} waited {format_duration(turn_ns)} for a CPU each time they were ready to run, "
            f"{100 * waited_share:.0f} % of the window: the response times include that wait; "
            + _cure_of_starved(evidence, metrics, remedy),
        )


def _cure_of_starved(evidence: Evidence, metrics: Mapping[str, float], remedy: str) -> str:
    """Says what helps a generator that lacked a CPU, and names a CPU quota first if that is the cause. `remedy`: what
    helps if the generator itself is the cause."""
    throttled, quota = metrics.get("cpu_throttled_share", 0.0), metrics.get("cpu_quota_cores", 0.0)
    if evidence.shares_quota and not evidence.generators and throttled >= THROTTLED:
        return (
            f"the CPU quota of {quota:g} CPUs that server and load generator have together was used up in "
            f"{100 * throttled:.0f} % of its periods, and stopped both for the rest of each; give whole CPUs in its "
            "place (docker's --cpuset-cpus, cpuset.cpus of a cgroup)"
        )
    together = evidence.is_here and not evidence.generators
    apart = f", keep server and load generator apart ({evidence.apart})," if together else ""
    return f"stop other programs{apart} or {remedy}"


def _clocks(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    return clock_problems(evidence.generators, evidence.fleet.summaries, round(evidence.fleet.window_s * SECOND_NS))


def _lag_limit_ns(load: Load, response: MergedTimes) -> float:
    """Returns the largest believable p99 of the send lag: 1 ms, a tenth of the p99 response time, or twice the
    precision asked for, whichever is largest."""
    return max(LAG_FLOOR_NS, LAG_SHARE * response.quantile(0.99), 2.0 * load.precision_ns)


def _schedule(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Reports an engine that did not schedule an open load in full; a Poisson count may miss three standard errors
    more."""
    load, fleet = evidence.load, evidence.fleet
    if load.rate_per_s is None or load.ramp_ns > 0 or len(load.scenario) > 1 or fleet.cohort.dropped:
        return  # with several steps, the later are scheduled by the answers to the earlier
    wanted = load.rate_per_s * fleet.window_s
    sampling = STANDARD_ERRORS * math.sqrt(wanted) if load.arrivals == "poisson" else 1
    if wanted - fleet.cohort.scheduled > SCHEDULE_SHARE * wanted + sampling:
        yield Problem(
            "generator_schedule",
            f"{fleet.cohort.scheduled} requests were scheduled where the rate asks for {wanted:.0f}: "
            "the load generator did not keep its schedule; give it more threads or CPUs, or lower the rate",
        )


def _in_flight(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Reports a capacity trial that dropped arrivals with fewer under way than the conditions allow, if they hold for
    what was sent: the bound on what is under way was the limit."""
    dropped = evidence.fleet.cohort.dropped
    if evidence.record.spec.stage is not Stage.CAPACITY or not dropped:
        return
    start, end = evidence.window
    most: Counter[int] = Counter()  # by engine
    for event in evidence.intervals:
        if start < event["end_ns"] <= end:
            most[event.get("engine", 0)] = max(most[event.get("engine", 0)], event["users_now"])
    allowed = evidence.experiment.in_flight_allowed(evidence.load)
    if most.total() < allowed and _sent_met(evidence, metrics):
        yield Problem(
            "generator_in_flight",
            f"{dropped:,} arrivals were dropped with at most {most.total():,} under way, though the SLO allows "
            f"{allowed:,.0f} at this rate: the load generator had no room for more, which says nothing of the server; "
            "raise load.max_in_flight and the limit of descriptors (ulimit -n), or lower the load",
        )


def _sent_met(evidence: Evidence, metrics: Mapping[str, float]) -> bool:
    """True if what was sent meets the conditions, whatever was dropped."""
    fleet, times = evidence.fleet, evidence.response
    failed, in_run = (1 - each.ok / max(1, each.scheduled - each.dropped) for each in (fleet.cohort, fleet.total))
    values = {**metrics, "error_rate": failed, "run_error_rate": in_run, f"{RESPONSE}_max": times.maximum}
    values |= {f"{RESPONSE}_{key}": response_quantile(fleet, times, failed, q) for key, q in QUANTILES.items()}
    return all(each.holds(values.get(each.metric, 0.0)) for each in evidence.experiment.objective.constraints)


_OUR_ENGINE = partial(starved, whose="load generator", remedy="use no more load.engine_threads than it has CPUs")
LOAD = Source("load", load_metrics, checks(_engine, _in_flight, _OUR_ENGINE, _clocks))
USERS = Source("users", lambda evidence: [*users_metrics(evidence), *in_flight_metrics(evidence)])
