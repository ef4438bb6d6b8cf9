"""An Analysis as a real sweep might give it, made without running one: nine pool sizes, a failed and an invalid
trial.

The numbers follow a simple law (throughput saturates, response time grows with waiting) plus seeded noise, so that the
shapes on a page are those of a real run. Used to test renderers; nothing here is a measurement."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from powerband.analyze.trial.timeline import LimitSpan
from powerband.model.bottlenecks import BottleneckName
from powerband.model.plan import Level, Setting
from powerband.model.results import (
    Analysis,
    Answer,
    AnswerKind,
    Bottleneck,
    ClaimPart,
    ClaimResult,
    ClaimVerdict,
    Estimate,
    Problem,
    SettingResult,
    TrialResult,
    Verdict,
)
from powerband.report.html.page import Distribution, Facts, Quantiles, ReportPage, Track, TrialView

LADDER: tuple[Level, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def setting(**levels: Level) -> Setting:
    return Setting(tuple(levels.items()))


def metrics_of(threads: int, noise: float = 1.0, *, errors: float = 0.0) -> dict[str, float]:
    """The metrics of a server on one CPU with `threads` threads, whose requests wait 20 ms and compute 0.3 ms, under
    128 users."""
    capacity = min(threads, 128) / 0.0203
    goodput = min(capacity, 1480.0) * (1 - 0.0006 * max(0, threads - 64)) * noise
    response = 128 / goodput * 1e9
    return {
        "goodput_per_s": goodput * (1 - errors),
        "achieved_rate_per_s": goodput,
        "error_rate": errors,
        "response_time_ns_mean": response,
        "response_time_ns_p50": response * 0.96,
        "response_time_ns_p90": response * 1.2,
        "response_time_ns_p99": response * (1.35 + threads / 200),
        "response_time_ns_max": response * 3,
        "service_time_ns_p50": response * 0.95,
        "service_time_ns_p99": response * (1.34 + threads / 200),
        "send_lag_ns_p99": 42_000.0,
        "subject_cpu_cores": goodput * 0.0003,
        "subject_cpu_system_share": 0.31,
        "rss_bytes_max": 4.2e6 + threads * 68_000,
        "threads_max": threads + 2.0,
        "threads_mean": threads + 2.0,
        "context_switches_per_request": 2.02 + threads / 180,
        "context_switches_per_s": goodput * (2.02 + threads / 180),
        "involuntary_switch_share": 0.01 + threads / 3000,
        "run_wait_cores": 0.004 * threads,
        "engine_cpu_cores": goodput * 0.000012,
        "host_steal_share": 0.0005,
    }


def trials(levels: Sequence[Level] = LADDER, blocks: int = 5, seed: int = 7) -> tuple[TrialResult, ...]:
    generator = random.Random(seed)
    results: list[TrialResult] = []
    for block in range(blocks):
        order = list(levels)
        generator.shuffle(order)
        for level in order:
            number = len(results) + 1
            noise = math.exp(generator.gauss(0, 0.018))
            errors = 0.023 if float(level) == 1 else 0.0
            problems: tuple[Problem, ...] = ()
            status = "measured"
            values: Mapping[str, float] = metrics_of(round(float(level)), noise, errors=errors)
            if number == 12:
                problems = (Problem("foreign_cpu", "another process used 0.61 cores during the window (limit 0.10)"),)
            if number == 30:
                status, values = "failed", {}
                problems = (
                    Problem("died", "the server exited with code 137 after 4.2 s; see trials/0030/subject.log"),
                )
            results.append(
                TrialResult(number, block, 1, setting(threads=level), status, problems, values, 3.2, "steady")
            )
    return tuple(results)


def analysis(levels: Sequence[Level] = LADDER, blocks: int = 5, **changes: object) -> Analysis:
    """A finished sweep over `threads`; `changes` replace fields of the Analysis."""
    all_trials = trials(levels, blocks)
    best = max((r for r in all_trials if r.valid), key=lambda r: r.metrics["goodput_per_s"]).setting
    answer_setting = setting(threads=32) if 32 in levels else best
    rows = tuple(_row(setting(threads=level), all_trials, best) for level in levels)
    equivalent = tuple(row.setting for row in rows if row.verdict is Verdict.EQUIVALENT)
    answer = Answer(
        kind=AnswerKind.EQUIVALENT_SET,
        setting=answer_setting,
        leader=best,
        equivalent=equivalent,
        undecided=tuple(row.setting for row in rows if row.verdict is Verdict.INCONCLUSIVE),
        sentences=(
            f"Use {answer_setting.id}.",
            "It is equivalent to the best within 3 %, shown with 95 % confidence over 5 starts of each setting; "
            f"{best.id} measured highest.",
            "Fewer threads leave users waiting for a free one; more only add memory and context switches.",
        ),
    )
    values: dict[str, object] = {
        "name": "pool-size",
        "question": "Which pool size serves an I/O-bound request best here?",
        "objective": "goodput_per_s",
        "direction": "maximise",
        "constraints": ("error_rate < 1%",),
        "confidence": 0.95,
        "margin": 0.03,
        "answer": answer,
        "settings": rows,
        "trials": all_trials,
        "warnings": ("this machine has 2 CPUs: server and load generator could not be kept apart",),
        "claims": claims(),
    }
    return Analysis(**{**values, **changes})  # type: ignore[arg-type]


def claims() -> tuple[ClaimResult, ...]:
    """Claims with each verdict; the last makes two comparisons."""
    held, refuted, undecided = ClaimVerdict.HELD, ClaimVerdict.REFUTED, ClaimVerdict.UNDECIDED
    grows = "goodput[threads=4] > 3 * goodput[threads=1]"
    twice, same = "goodput[threads=64] > 2 * goodput[threads=32]", "p99[threads=64] == p99[threads=32]"
    four = Estimate(1.332, 1.309, 1.356, 0.95, 5)
    half = Estimate(0.501, 0.492, 0.511, 0.975, 5)
    near = Estimate(1.09, 1.018, 1.167, 0.975, 5)
    said = "197/s is 1.332 times 148/s (95 % interval 1.309 to 1.356, over 5 rounds)."
    less = "1,479/s is 0.501 times 2,951/s (97.5 % interval 0.492 to 0.511, over 5 rounds)."
    open_ended = (
        "144 ms is 1.09 times 132 ms (97.5 % interval 1.018 to 1.167, over 5 rounds). "
        "The interval includes both: more rounds would decide."
    )
    no_errors = "error_rate[threads=512] == 0"
    of_none = "No trial of threads=512 was valid."
    parts = (
        ClaimPart(twice, "", refuted, 1479.0, 2951.0, "per_s", "ratio", half, 5, less),
        ClaimPart(same, "", undecided, 144e6, 132e6, "ns", "ratio", near, 5, open_ended),
    )
    return (
        ClaimResult(
            "grows", "Four threads serve over three times what one serves", grows, "about four times", held, said,
            (ClaimPart(grows, "", held, 197.0, 147.9, "per_s", "ratio", four, 5, said),),
        ),
        ClaimResult(
            "goes-on", "Doubling 32 threads doubles what is served, as fast", f"{twice} and {same}", None, refuted,
            f"1 of 2 comparisons is refuted; {twice}: {less}", parts,
        ),
        ClaimResult(
            "no-limit", "512 threads fail no request", no_errors, None, undecided, of_none,
            (ClaimPart(no_errors, "", undecided, None, None, "ratio", "difference", None, 0, of_none),),
        ),
    )  # fmt: skip


def _row(of: Setting, all_trials: Sequence[TrialResult], leader: Setting) -> SettingResult:
    mine = [trial for trial in all_trials if trial.setting == of]
    valid = [trial for trial in mine if trial.valid]
    base = [trial.metrics["goodput_per_s"] for trial in all_trials if trial.setting == leader and trial.valid]
    names = valid[0].metrics if valid else {}
    estimates = {name: _estimate([trial.metrics[name] for trial in valid]) for name in names}
    if not valid:
        return SettingResult(of, 0, len(mine), {}, None, Verdict.INCONCLUSIVE, True)
    ratio = estimates["goodput_per_s"].value / (sum(base) / len(base))
    effect = Estimate(ratio, ratio * 0.982, ratio * 1.018, 0.95, len(valid))
    feasible = estimates["error_rate"].value < 0.01
    verdict = Verdict.EQUIVALENT if ratio > 0.985 else Verdict.INCONCLUSIVE if ratio > 0.955 else Verdict.WORSE
    because = () if feasible else ("error_rate < 1%",)
    return SettingResult(of, len(valid), len(mine) - len(valid), estimates, effect, verdict, feasible, because)


def _estimate(values: Sequence[float]) -> Estimate:
    mean = sum(values) / len(values)
    if len(values) < 2:
        return Estimate(mean, None, None, 0.95, len(values))
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    half = 2.3 * deviation / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half, 0.95, len(values))


def page(of: Analysis | None = None, **changes: object) -> ReportPage:
    """The page of an analysis: distributions, time series, facts."""
    of = of or analysis()
    settings = [row.setting for row in of.settings if "response_time_ns_p50" in row.estimates]
    values: dict[str, object] = {
        "analysis": of,
        "run": "runs/20261120-213500-pool-size",
        "command": "powerband run experiments/pool-size.yaml --seed 7",
        "experiment_yaml": "name: pool-size\nfactors:\n  threads: [1, 2, 4, 8, 16, 32, 64, 128, 256]\n",
        "when": "20 November 2026, 21:35 UTC",
        "facts": (
            Facts(
                "Host", (("CPU", "Example CPU 2.4 GHz"), ("CPUs", "2"), ("Memory", "7.7 GiB"), ("Kernel", "Linux 6.18"))
            ),
            Facts("CPUs used", (("server", "0"), ("load generator", "1"), ("monitor", "1"))),
            Facts("Versions", (("powerband", "0.1.0"), ("engine", "0.1.0"))),
        ),
        "distributions": tuple(_distribution(row, of) for row in settings),
        "trials": tuple(_trial_view(trial) for trial in of.trials),
    }
    return ReportPage(**{**values, **changes})  # type: ignore[arg-type]


def _distribution(of: Setting, within: Analysis) -> Distribution:
    estimates = next(row.estimates for row in within.settings if row.setting == of)
    median, tail = estimates["response_time_ns_p50"].value, estimates["response_time_ns_p99"].value

    def quantiles(scale: float) -> Quantiles:
        def at(q: float) -> float:
            return (
                scale * median * (tail / median) ** (-math.log10(max(1e-9, 1 - q)) / 2) * (0.55 + 0.45 * min(1, 2 * q))
            )

        points, rest = [(0.0, at(0.0))], 1.0
        while rest > 1e-5:
            points += [(q, at(q)) for step in range(1, 11) if (q := 1 - rest * (1 - step / 20)) < 1]
            rest /= 2
        named = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999, "maximum": 0.99999}
        return Quantiles(74_213, tuple(points), tuple((name, at(q)) for name, q in named.items()))

    return Distribution(of.id, quantiles(1.0), quantiles(0.97))


def _trial_view(trial: TrialResult) -> TrialView:
    if not trial.metrics:
        return TrialView(trial.number)
    generator = random.Random(trial.number)
    metrics, seconds = trial.metrics, range(1, 15)

    def wave(level: float, noise: float = 0.02) -> tuple[tuple[float, float | None], ...]:
        return tuple(
            (float(s), level * (1 - 0.5 * math.exp(-s)) * math.exp(generator.gauss(0, noise))) for s in seconds
        )

    cores = metrics["subject_cpu_cores"]
    tracks = (
        Track("Rate", "ok", "/s", wave(metrics["goodput_per_s"])),
        Track("Response time", "p50", "ms", wave(metrics["response_time_ns_p50"] / 1e6)),
        Track("Response time", "p99", "ms", wave(metrics["response_time_ns_p99"] / 1e6, 0.08)),
        Track("CPU", "user", "cores", wave(cores * 0.69)),
        Track("CPU", "kernel", "cores", wave(cores * 0.31)),
        Track("Memory", "resident", "MiB", wave(metrics["rss_bytes_max"] / 2**20, 0.001)),
        Track("Threads", "alive", "", tuple((float(s), metrics["threads_max"]) for s in seconds)),
        Track("Context switches", "all", "/s", wave(metrics["context_switches_per_s"])),
    )
    working = 128 * metrics["response_time_ns_p50"] / metrics["response_time_ns_mean"]
    states = (
        ("on a CPU", cores),
        ("waiting for a CPU", metrics["run_wait_cores"]),
        ("asleep", working),
        ("blocked", 2.0),
    )
    bands = tuple(Track("Thread states", label, "", wave(threads), band=True) for label, threads in states)
    limits = (
        LimitSpan(0.0, 1.6, None),
        LimitSpan(
            1.6, 9.2, Bottleneck(BottleneckName.POOL_TOO_SMALL, ("all threads busy", "40 requests queue"), "more")
        ),
        LimitSpan(9.2, 13.2, Bottleneck(BottleneckName.SUBJECT_CPU, ("the server uses 97 % of its 2 CPUs",), "less")),
    )
    return TrialView(trial.number, (*tracks, *bands), (3.2, 13.2), limits)


def two_factor_analysis() -> Analysis:
    """An analysis of two factors, threads and queue length; every setting is measured twice."""
    rows, all_trials = [], []
    for queue in (10, 100, 1000):
        for threads in (4, 8, 16):
            of = setting(threads=threads, queue=queue)
            both = [metrics_of(threads, (1 - 4 / queue) * noise) for noise in (0.99, 1.01)]
            for block, values in enumerate(both):
                number = len(all_trials) + 1
                all_trials.append(TrialResult(number, block, 1, of, "measured", (), values, 3.0, "steady"))
            estimates = {name: _estimate([values[name] for values in both]) for name in both[0]}
            effect = Estimate(threads / 16, threads / 17, threads / 15, 0.95, 2)
            verdict = Verdict.EQUIVALENT if threads == 16 else Verdict.WORSE
            rows.append(SettingResult(of, 2, 0, estimates, effect, verdict, True))
    leader = setting(threads=16, queue=1000)
    answer = Answer(AnswerKind.BEST, leader, leader, (leader,), (), (f"Use {leader.id}.",))
    return analysis(name="two", answer=answer, settings=tuple(rows), trials=tuple(all_trials), warnings=(), claims=())


def many_factor_analysis() -> Analysis:
    """An analysis of four factors, threads, queue, cache and one that never varies; every setting is measured twice."""
    base = two_factor_analysis()
    rows, all_trials = [], []
    for cache in ("none", "local", "<b>shared</b>"):
        slower = {"none": 0.8, "local": 1.0}.get(cache, 0.9)
        for row in base.settings:
            of = setting(**row.setting.as_dict(), cache=cache, clock="utc")
            for trial in (trial for trial in base.trials if trial.setting == row.setting):
                values = {**trial.metrics, "goodput_per_s": trial.metrics["goodput_per_s"] * slower}
                number = len(all_trials) + 1
                all_trials.append(TrialResult(number, trial.block, 1, of, "measured", (), values, 3.0, "steady"))
            mine = [trial.metrics for trial in all_trials if trial.setting == of]
            estimates = {name: _estimate([values[name] for values in mine]) for name in mine[0]}
            rows.append(SettingResult(of, 2, 0, estimates, row.effect, row.verdict, cache != "none"))
    leader = setting(threads=16, queue=1000, cache="local", clock="utc")
    near = setting(threads=16, queue=100, cache="local", clock="utc")
    answer = Answer(AnswerKind.EQUIVALENT_SET, leader, leader, (leader, near), (), (f"Use {leader.id}.",))
    return analysis(name="many", answer=answer, settings=tuple(rows), trials=tuple(all_trials), warnings=(), claims=())
