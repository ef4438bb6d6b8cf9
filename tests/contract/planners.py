"""The contract of every planner, whatever the outcomes of its trials are: subclass `PlannerContract` for each kind.

Results are made up from a law of the settings, noise, and outcomes that Hypothesis chooses; no trial is run."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.trials import experiment as fake_experiment
from powerband.base.machine import Noise
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage, TrialSpec
from powerband.model.results import NODE_LOST, Problem, TrialResult
from powerband.search.planner import Planner

SEED_BITS = 48
GOOD, DISTURBED, NOT_READY, SILENT, INTERRUPTED = "good", "host_steal", "not_ready", "no_request_ok", "interrupted"
LOST = NODE_LOST
OUTCOMES = st.lists(st.sampled_from([GOOD, GOOD, DISTURBED, NOT_READY, SILENT, INTERRUPTED]), max_size=40)
SEEDS = st.integers(0, 2**32 - 1)
# The methods are inherited, so Hypothesis meets them on several classes; each of these is a test of its own.
few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.differing_executors])

Outcome = Callable[[TrialSpec], str]


@dataclass(frozen=True)
class Call:
    """One call of the planner: an `ask`, in a block or in none, with its answer; or a `tell`."""

    block: int | None = None
    spec: TrialSpec | None = None
    result: TrialResult | None = None


class PlannerContract:
    """The tests of the contract. A subclass overrides `planner`, and whatever else differs for its kind."""

    def planner(self, experiment: Experiment) -> Planner:
        raise NotImplementedError

    def experiment(self, seed: int = 7) -> Experiment:
        return fake_experiment({"threads": (1, 2, 4, 8)}, seed=seed, measure={"repeats": 4, "retries": 2})

    def most_trials(self, experiment: Experiment) -> int:
        """The largest number of trials that the planner may plan, apart from repeats of interrupted ones."""
        planned = len(experiment.settings()) * experiment.measure.repeats
        return planned + math.ceil(experiment.measure.retry_budget * planned)

    def metrics(self, spec: TrialSpec) -> Mapping[str, float]:
        """The metrics of a valid trial: the rate grows with the threads, up to 4, with 2 % noise."""
        threads = spec.setting.as_dict()["threads"]
        assert isinstance(threads, int)
        noise = random.Random(f"{spec.number}").gauss(0, 0.02)
        return {"goodput_per_s": 1000 * min(threads, 4) * math.exp(noise), "error_rate": 0.0}

    # The methods below need no override.

    def result(self, spec: TrialSpec, outcome: str) -> TrialResult:
        problems = () if outcome in (GOOD, INTERRUPTED) else (Problem(outcome, f"because of {outcome}"),)
        status = {GOOD: "measured", DISTURBED: "measured", SILENT: "measured"}
        status |= {INTERRUPTED: "interrupted", LOST: "interrupted"}
        return TrialResult(
            number=spec.number,
            block=spec.block,
            attempt=spec.attempt,
            setting=spec.setting,
            status=status.get(outcome, "failed"),
            problems=problems,
            metrics=self.metrics(spec) if outcome in (GOOD, DISTURBED) else {},
            stage=spec.stage,
            rate_per_s=spec.rate_per_s,
            took_s=10.0,
        )

    def run(self, planner: Planner, outcome: Outcome, most: int) -> tuple[list[TrialSpec], list[TrialResult]]:
        """Runs the planner to its end, and returns trials and results. Fails the test if it plans more than `most`
        trials, or numbers them with gaps."""
        specs: list[TrialSpec] = []
        results: list[TrialResult] = []
        while (spec := planner.ask()) is not None:
            assert spec.number == len(specs) + 1, "numbers count from 1 without a gap"
            assert planner.planned_total >= spec.number, "a trial in flight is a planned one"
            assert 0 <= spec.seed < 2**SEED_BITS
            assert spec.attempt >= 1 and spec.block >= 0
            result = self.result(spec, outcome(spec))
            planner.tell(result)
            specs.append(spec)
            results.append(result)
            assert planner.planned_total >= len(specs), "what was told was planned"
            assert len(specs) <= most, "it goes on for ever"
        assert planner.planned_total == len(specs)
        assert planner.ask() is None, "the end is the end"
        return specs, results

    def run_outcomes(
        self, experiment: Experiment, outcomes: Sequence[str]
    ) -> tuple[list[TrialSpec], list[TrialResult]]:
        return self.run(self.planner(experiment), _by_number(outcomes), self.most_with(experiment, outcomes))

    def most_with(self, experiment: Experiment, outcomes: Sequence[str]) -> int:
        """The largest number of trials that the planner may plan with these outcomes."""
        return self.most_trials(experiment) + outcomes.count(INTERRUPTED)

    @settings(few, max_examples=4)
    @given(SEEDS, OUTCOMES)
    def test_whatever_happens_the_time_left_is_one_or_unknown(self, seed: int, outcomes: list[str]) -> None:
        made = self.experiment(seed)
        planner, outcome = self.planner(made), _by_number(outcomes)
        while (spec := planner.ask()) is not None:
            assert spec.number <= self.most_with(made, outcomes), "it goes on for ever"
            planner.tell(self.result(spec, outcome(spec)))
            left_s = planner.left_s(Noise(0.02))
            assert left_s is None or 0 <= left_s < math.inf
        assert not planner.left_s(Noise(0.02)), "nothing is left at the end"

    @few
    @given(SEEDS, OUTCOMES, st.integers(1, 8), st.randoms(use_true_random=False))
    def test_with_blocks_in_flight_it_ends_and_its_calls_repeated_give_the_same_trials(
        self, seed: int, outcomes: list[str], nodes: int, dice: random.Random
    ) -> None:
        """Nodes end their trials in any order. Some are lost with the block that they run, and are back at once."""
        made = self.experiment(seed)
        lost = {number for number in range(1, 40) if dice.random() < 0.05}
        by_number = _by_number(outcomes)

        def outcome(spec: TrialSpec) -> str:
            return LOST if spec.number in lost else by_number(spec)

        planner, calls = self.planner(made), list[Call]()
        in_flight: list[tuple[str, TrialSpec]] = []  # one for each node
        idle = [f"n{number}" for number in range(nodes)]
        most = self.most_with(made, outcomes) + (len(lost) + nodes) * (1 + made.measure.retries) * len(made.settings())

        def ask(block: int | None = None) -> bool:
            confirming = planner.confirming if block is None else None
            spec = planner.ask(block)
            assert confirming is None or (spec is not None and spec.stage is Stage.CONFIRM)
            if spec is None:
                return False
            assert confirming is None or spec.block >= confirming.from_block
            assert spec.number == 1 + sum(call.spec is not None for call in calls), "numbers count without a gap"
            assert block in (None, spec.block)
            assert spec.block not in {each.block for _, each in in_flight}
            assert len(calls) <= 2 * most, "it goes on for ever"
            calls.append(Call(block, spec))
            in_flight.append((idle.pop(0), spec))
            return True

        while True:
            while len(in_flight) < nodes and ask():
                pass
            if not in_flight:
                break
            node, spec = in_flight.pop(dice.randrange(len(in_flight)))
            idle.insert(0, node)
            result = replace(self.result(spec, outcome(spec)), node=node)
            planner.tell(result)
            calls.append(Call(result=result))
            ask(spec.block)
        assert planner.planned_total == sum(call.spec is not None for call in calls)
        again = self.planner(made)
        for call in calls:
            if call.result is not None:
                again.tell(call.result)
            else:
                assert again.ask(call.block) == call.spec
        assert (again.ask(), again.progress) == (None, planner.progress)
        if nodes == 1 and not lost:
            assert [call.spec for call in calls if call.spec] == self.run_outcomes(made, outcomes)[0]

    @few
    @given(SEEDS, OUTCOMES)
    def test_an_older_block_is_not_asked_for_a_trial_of_another(self, seed: int, outcomes: list[str]) -> None:
        """A run that is resumed asks for the next trial of each block that it ever began."""
        made = self.experiment(seed)
        planner, outcome = self.planner(made), _by_number(outcomes)
        blocks = set[int]()
        while (spec := planner.ask()) is not None:
            assert spec.number <= self.most_with(made, outcomes), "it goes on for ever"
            blocks.add(spec.block)
            older = sorted(blocks - {spec.block})
            assert not any(planner.ask(block) for block in older), "while the trial is in flight"
            planner.tell(self.result(spec, outcome(spec)))
            assert not any(planner.ask(block) for block in older), "once it has ended, or was interrupted"

    def test_another_seed_gives_another_order(self) -> None:
        orders = {
            tuple((spec.setting, spec.rate_per_s) for spec in self.run_outcomes(self.experiment(seed), [])[0])
            for seed in range(5)
        }
        assert len(orders) > 1

    @few
    @given(SEEDS, OUTCOMES)
    def test_the_same_seed_and_results_give_the_same_trials(self, seed: int, outcomes: list[str]) -> None:
        """A run that is resumed tells a new planner what its trials gave."""
        made = self.experiment(seed)
        specs, results = self.run_outcomes(made, outcomes)
        assert specs
        again = self.planner(made)
        for spec, result in zip(specs, results, strict=True):
            assert again.ask() == spec
            again.tell(result)
        assert again.ask() is None

    @few
    @given(SEEDS, OUTCOMES)
    def test_a_disturbed_trial_is_repeated_within_its_rules_and_an_interrupted_one_always(
        self, seed: int, outcomes: list[str]
    ) -> None:
        made = self.experiment(seed)
        specs, results = self.run_outcomes(made, outcomes)
        cells = Counter(_cell(s) for s, r in zip(specs, results, strict=True) if r.status != "interrupted")
        assert max(cells.values()) <= 1 + made.measure.retries
        for spec, result in zip(specs, results, strict=True):
            if result.status == "interrupted":
                after = specs[spec.number]  # there is a next trial: no run ends with an unfinished one
                assert (_cell(after), after.attempt) == (_cell(spec), spec.attempt), "repeated, and at no cost"
        for cell in cells:
            attempts = [s.attempt for s, r in zip(specs, results, strict=True)
                        if _cell(s) == cell and r.status != "interrupted"]  # fmt: skip
            assert attempts == list(range(1, len(attempts) + 1))

    def test_a_disturbed_trial_is_repeated(self) -> None:
        made = self.experiment()
        specs, _ = self.run_outcomes(made, [DISTURBED])
        again = [spec for spec in specs[1:] if _cell(spec) == _cell(specs[0])]
        assert [spec.attempt for spec in again] == [2]

    def test_with_every_trial_disturbed_it_ends_too(self) -> None:
        made = self.experiment()
        specs, _ = self.run(self.planner(made), lambda spec: DISTURBED, self.most_trials(made))
        assert specs

    def test_with_every_setting_failing_all_leave_and_it_ends(self) -> None:
        made = self.experiment()
        planner = self.planner(made)
        specs, _ = self.run(planner, lambda spec: NOT_READY, self.most_trials(made))
        assert all("because of not_ready" in reason for reason in planner.progress.left.values())
        self.check_given_up(planner, specs, {spec.setting for spec in specs})

    def test_a_setting_that_always_fails_leaves_with_a_reason(self) -> None:
        made = self.experiment()
        planner = self.planner(made)
        bad = made.settings()[1]
        specs, _ = self.run(planner, lambda spec: NOT_READY if spec.setting == bad else GOOD, self.most_trials(made))
        self.check_given_up(planner, specs, {bad} & {spec.setting for spec in specs})
        assert any(spec.setting != bad and spec.number > _last(specs, bad) for spec in specs)

    def check_given_up(self, planner: Planner, specs: Sequence[TrialSpec], failing: set[Setting]) -> None:
        """Checks that settings which only ever failed were tried a limited number of times, and that the planner says
        why."""
        for setting in failing:
            assert "because of not_ready" in planner.progress.left[setting]
            assert sum(1 for spec in specs if spec.setting == setting) <= 2 * (1 + 2)

    @few
    @given(SEEDS)
    def test_stages_and_rates_fit_each_other(self, seed: int) -> None:
        specs, _ = self.run_outcomes(self.experiment(seed), [])
        for spec in specs:
            assert (spec.rate_per_s is not None) == (spec.stage is Stage.CAPACITY)


def _cell(spec: TrialSpec) -> tuple[Stage, int, Setting, float | None]:
    return spec.stage, spec.block, spec.setting, spec.rate_per_s


def _last(specs: Sequence[TrialSpec], setting: Setting) -> int:
    return max((spec.number for spec in specs if spec.setting == setting), default=0)


def _by_number(outcomes: Sequence[str]) -> Outcome:
    """A function that gives the outcome of each trial by its number. Trials beyond the last outcome are good."""
    return lambda spec: outcomes[spec.number - 1] if spec.number <= len(outcomes) else GOOD
