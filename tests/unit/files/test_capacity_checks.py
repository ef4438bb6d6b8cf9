"""The objective `capacity` in an experiment file and in `tune`: its forms, and what is refused."""

from __future__ import annotations

import pytest

from fakes.tuned import tune_experiment
from powerband.base.errors import ExperimentError
from powerband.files.experiment_file import parse_experiment
from powerband.files.resolved import resolved_yaml
from powerband.loads.driver import WarmUp
from powerband.loads.engine_specs import fleet_specs
from powerband.model.experiment import CAPACITY_IN_FLIGHT_MAX, Experiment
from powerband.model.plan import Setting, Stage
from powerband.wire.specs import Open

SUBJECT = "subject: {command: ./server --port {port} --threads {threads}}\nfactors: {threads: [1, 2]}\n"
SLO = "objective: {maximise: capacity, subject_to: [p99 < 50ms, errors < 0.1%]}\n"


def parsed(objective: str = SLO, load: str = "load: {duration: 2s}\n", rest: str = "") -> Experiment:
    subject = SUBJECT.replace("./server --port {port} --threads {threads}", "'./server {port} {threads}'")
    return parse_experiment(subject + load + objective + rest, "x.yaml")


def tuned(*slo: str, objective: tuple[str, str] = ("maximise", "capacity"), **options: str) -> Experiment:
    given = {f"--{name}": text for name, text in options.items()}
    return tune_experiment(
        ["server", "{port}", "{threads}"], ["threads=1,2"], slo=slo, objective=objective, options=given
    )


def test_the_first_look_needs_no_users_named() -> None:
    made = parsed()
    assert made.objective.is_capacity and made.load.users == 64
    assert parse_experiment(resolved_yaml(made), "again.yaml") == made
    assert parsed(load="load: {users: 8, duration: 2s}\n").load.users == 8


def test_without_a_load_the_path_of_the_url_is_asked_for() -> None:
    server = "{command: './server {port} {threads}', url: 'http://127.0.0.1:{port}/work'}"
    made = parse_experiment(f"subject: {server}\nfactors: {{threads: [1, 2]}}\n{SLO}", "x.yaml", to_run=True)
    assert (made.load.users, made.load.scenario[0].path) == (64, "/work")


@pytest.mark.parametrize(
    ("objective", "load", "rest", "said"),
    [
        ("objective: capacity\n", "", "", r"an SLO holds, and none is given: write .*subject_to"),
        ("objective: {maximise: capacity}\n", "", "", "none is given"),
        ("objective: {minimise: capacity, subject_to: [p99 < 50ms]}\n", "", "", "capacity is maximised"),
        (SLO, "load: {rate: 100, duration: 2s}\n", "", r"load.rate in x.yaml:3:8: .*the rate is searched for"),
        (SLO, "load: {arrivals: constant, duration: 2s}\n", "", "arrivals are Poisson"),
        (SLO.replace("errors < 0.1%", "goodput > 100"), "", "", "goodput_per_s cannot be a condition of capacity"),
        (SLO.replace("errors < 0.1%", "capacity > 100"), "", "", "cannot be one"),
        (SLO, "", "claims: [{id: a, says: b, holds: 'p99[threads=1] < 1s'}]\n", "each trial has a rate of its own"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_stands(objective: str, load: str, rest: str, said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        parsed(objective, load or "load: {duration: 2s}\n", rest)


@pytest.mark.parametrize("name", ["load.users", "load.arrivals"])
def test_the_searched_load_cannot_vary(name: str) -> None:
    text = f"subject: {{command: './server {{port}}'}}\nfactors: {{{name}: [1, 2]}}\nload: {{duration: 2s}}\n{SLO}"
    with pytest.raises(ExperimentError, match="cannot vary with the objective capacity"):
        parse_experiment(text, "x.yaml")


def test_a_search_may_bound_what_is_in_flight() -> None:
    made = parsed(load="load: {users: 8, max_in_flight: 500, duration: 2s}\n")
    assert made.load_for(Setting((("threads", 1),)), 100.0).max_in_flight == 500


@pytest.mark.parametrize(
    ("metric", "direction"),
    [("goodput", "maximise"), ("p99", "minimise"), ("errors", "minimise"), ("memory", "minimise"), ("cpu", "minimise"),
     ("threads", "minimise"), ("finish_s", "minimise")],
)  # fmt: skip
def test_a_metric_alone_has_the_direction_in_which_it_gets_better(metric: str, direction: str) -> None:
    for objective in (f"objective: {metric}\n", f"objective: {{metric: {metric}}}\n"):
        assert parsed(objective, "load: {users: 4}\n").objective.direction == direction
    assert tuned(objective=("objective", metric)).objective.direction == direction


@pytest.mark.parametrize("metric", ["app_wait_s", "users_mean", "cpu_quota_cores"])
def test_a_metric_that_may_be_better_either_way_needs_a_direction(metric: str) -> None:
    said = rf"say whether more or less is better: --minimise {metric} or .*\{{maximise: {metric}\}} in a file"
    with pytest.raises(ExperimentError, match=f"--objective {metric}: {said}"):
        tuned(objective=("objective", metric))
    text = "subject: {command: './server {port} {n}', metrics_url: 'http://127.0.0.1:{port}/metrics'}\n"
    text += "factors: {n: [1, 2]}\nload: {users: 2}\nmeasure: {metrics: {app_wait_s: mean(wait_seconds)}}\n"
    for objective in (metric, f"{{metric: {metric}}}", f"{{metric: {metric}, margin: 5%}}"):
        with pytest.raises(ExperimentError, match=said):
            parse_experiment(f"{text}objective: {objective}\n", "x.yaml", to_run=True)
        old = parse_experiment(f"{text}objective: {objective}\n", "x.yaml").objective
        assert old.direction == "maximise", "an old run is read"
    for direction in ("maximise", "minimise"):
        for objective in (f"{{{direction}: {metric}}}", f"{{metric: {metric}, direction: {direction}}}"):
            made = parse_experiment(f"{text}objective: {objective}\n", "x.yaml", to_run=True)
            assert made.objective.direction == direction
            assert parse_experiment(resolved_yaml(made), "again.yaml", to_run=True).objective == made.objective


@pytest.mark.parametrize(
    ("asked", "metric", "said"),
    [
        ("maximise", "p99", "of response time p99 less is better: write --minimise p99, or {minimise: p99} in a file"),
        ("maximise", "memory", "of memory less is better: write --minimise memory, or {minimise: memory} in a file"),
        ("minimise", "goodput", "of goodput more is better: write --maximise goodput, or {maximise: goodput} in a"),
    ],
)
def test_the_worst_setting_is_no_objective(asked: str, metric: str, said: str) -> None:
    with pytest.raises(ExperimentError, match=f"--{asked} {metric}: {said}"):
        tuned(objective=(asked, metric))
    text = "subject: {command: './server {port} {n}'}\nfactors: {n: [1, 2]}\nload: {users: 2}\n"
    text += f"objective: {{{asked}: {metric}}}\n"
    with pytest.raises(ExperimentError, match=said):
        parse_experiment(text, "x.yaml", to_run=True)
    assert parse_experiment(text, "x.yaml").objective.direction == asked, "an old run is read"


@pytest.mark.parametrize(
    ("load", "refused"),
    [("{users: 2}", True), ("{users: 2, think: 1s}", False), ("{users: 2, requests_per_user: 9}", False),
     ("{rate: 5}", False)],
)  # fmt: skip
def test_users_who_never_pause_have_no_longest_response_in_the_first_moments(load: str, refused: bool) -> None:
    metric = "burst_response_time_ns_max"
    text = "subject: {command: './server {port} {n}'}\nfactors: {n: [1, 2]}\nmeasure: {burst: 1s}\n"
    for objective in (f"{{minimise: {metric}}}", f"{{maximise: goodput, subject_to: [{metric} < 1s]}}"):
        asked = f"{text}load: {load}\nobjective: {objective}\n"
        if refused:
            with pytest.raises(ExperimentError, match=f"no trial has {metric}; ask for a percentile"):
                parse_experiment(asked, "x.yaml", to_run=True)
        made = parse_experiment(asked, "x.yaml", to_run=not refused)
        assert metric in made.objective.needed_metrics, "also an old run is read"


def test_commas_divide_conditions() -> None:
    made = tuned("p99<50ms,errors<0.1%", "p50<10ms")
    assert [constraint.text for constraint in made.objective.constraints] == ["p99<50ms", "errors<0.1%", "p50<10ms"]


def test_tune_adds_its_condition_on_errors_but_no_slo_at_all() -> None:
    assert [constraint.metric for constraint in tuned("p99<50ms").objective.constraints][-1] == "error_rate"
    with pytest.raises(ExperimentError, match=r"--slo 'p99<50ms,errors<0\.1%'"):
        tuned()
    with pytest.raises(ExperimentError, match="--rate 100: with the objective capacity the rate is searched for"):
        tuned("p99<50ms", rate="100")
    assert tuned(objective=("maximise", "goodput")).objective.constraints[0].metric == "error_rate"


def test_a_capacity_trial_has_poisson_arrivals_and_does_not_wait_for_what_piled_up() -> None:
    load = "load: {users: 8, think: 1s, ramp: 1s, duration: 2s, drain: 10s, scenario: [{get: /, think: 3s}]}\n"
    made = parsed(load=load)
    setting = Setting((("threads", 1),))
    trial = made.load_for(setting, 100.0)
    assert (trial.users, trial.rate_per_s, trial.arrivals, trial.ramp_ns) == (None, 100.0, "poisson", 0)
    assert trial.drain_ns == 2 * 10**9
    assert trial.max_in_flight == 256
    assert made.load_for(setting, 400.0).max_in_flight == 800 < CAPACITY_IN_FLIGHT_MAX
    assert made.load_for(setting, 40_000.0).max_in_flight is None
    look = made.load_for(setting)
    assert look.users == 8 and look.never_pauses


def test_a_scenario_is_in_flight_for_all_its_steps_and_pauses() -> None:
    made = parsed(load="load: {think: 1s, duration: 2s, scenario: [{get: /a}, {get: /b, think: 9s}]}\n")
    setting, slower = (Setting((("threads", 1), ("load.think", think))) for think in ("1s", "2s"))
    assert made.load_for(setting, 100.0).max_in_flight == 100 * (2 * 2 + 2 * 1)
    assert made.load_for(slower, 100.0).max_in_flight == 100 * (2 * 2 + 2 * 2)
    assert made.warmup_ns_of(Stage.CAPACITY) == 3 * 10**9
    warmup = WarmUp.of(made, Stage.CAPACITY, made.load_for(slower, 100.0), joining_ns=0, pause_ns=0)
    assert warmup.fixed_ns == 4 * 10**9


def test_pauses_and_slow_answers_that_the_slo_allows_have_room_at_high_rates() -> None:
    setting = Setting((("threads", 1),))
    load = "load: {think: 5s, duration: 2s, scenario: [{get: /a}, {get: /b}, {get: /c}, {get: /d}, {get: /e}]}\n"
    made = parsed(load=load)
    trial = made.load_for(setting, 1000.0)
    assert made.in_flight_allowed(trial) == 1000 * (4 * 5 + 5 * 0.05)
    (spec,) = fleet_specs(
        trial,
        url="http://127.0.0.1:1/",
        seed=1,
        descriptor_limit=30_000,
        under_way=made.in_flight_allowed(trial),
    )
    assert isinstance(spec.model, Open) and spec.model.max_in_flight > 20_250
    slow = parsed(SLO.replace("50ms", "3s"))
    assert slow.in_flight_allowed(slow.load_for(setting, 8000.0)) == 24_000
    assert slow.in_flight_allowed(slow.load_for(setting)) == 0


def test_a_slow_slo_is_waited_for_longer() -> None:
    made = parsed(SLO.replace("50ms", "1s"))
    setting = Setting((("threads", 1),))
    assert made.load_for(setting, 100.0).drain_ns == 4 * 10**9 and made.warmup_ns_of(Stage.CAPACITY) == 2 * 10**9
    slower = parsed(SLO.replace("50ms", "40s"))
    assert slower.load_for(setting, 100.0).drain_ns == 40 * 10**9 == slower.warmup_ns_of(Stage.CAPACITY)


def test_the_warm_up_of_a_capacity_trial_is_fixed() -> None:
    made = parsed()
    assert made.warmup_ns_of(Stage.SATURATE) is None
    assert made.warmup_ns_of(Stage.CAPACITY) == 2 * 10**9
    assert parsed(rest="measure: {warmup: 300ms}\n").warmup_ns_of(Stage.CAPACITY) == 300 * 10**6
    assert parsed(rest="measure: {warmup_min: 4s}\n").warmup_ns_of(Stage.CAPACITY) == 4 * 10**9
