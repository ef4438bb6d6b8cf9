"""Ladders, plans and resolved experiments, for any content."""

import itertools
import math
import string
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from powerband.base.errors import ExperimentError, PowerbandError
from powerband.base.units import duration_text, parse_duration_ns
from powerband.files.experiment_file import parse_experiment
from powerband.files.levels import parse_levels, parse_range
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment, Measure, Subject
from powerband.model.load import Load
from powerband.model.plan import format_level
from powerband.model.subjects import BUILT_IN
from powerband.search.planners import dry_run

NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=8).filter(lambda name: name not in BUILT_IN)
NS = st.integers(0, 10**13)
TEXT = st.text(st.characters(blacklist_categories=["Cs", "Cc"]) | st.sampled_from("\t\n\x85"), max_size=30)
LEVELS = st.one_of(
    st.integers(-(10**6), 10**6), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), TEXT.filter(bool)
)


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_ladder_rises_from_end_to_end_by_at_most_a_factor_of_two_and_a_bit(low: int, span: int) -> None:
    rungs: Any = parse_range(f"{low}..{low + span}")
    assert (rungs[0], rungs[-1]) == (low, low + span)
    for lower, higher in itertools.pairwise(rungs):
        assert lower < higher
        assert higher <= 2.5 * lower or lower == 0
    assert len(rungs) <= math.log2(low + span) + 3


@given(st.integers(0, 1000), st.integers(1, 500), st.integers(1, 50))
def test_a_linear_range_keeps_its_step_and_both_ends(low: int, span: int, step: int) -> None:
    levels: Any = parse_range(f"{low}..{low + span} step {step}")
    assert (levels[0], levels[-1]) == (low, low + span)
    assert all(b - a == step for a, b in itertools.pairwise(levels[:-1]))
    assert 0 < levels[-1] - levels[-2] <= step


@given(NS)
def test_durations_survive_writing(ns: int) -> None:
    assert parse_duration_ns(duration_text(ns)) == ns


@given(st.text(max_size=40))
def test_levels_never_crash(text: str) -> None:
    try:
        assert parse_levels(text)
    except ValueError as error:
        assert str(error)


@given(
    st.dictionaries(
        NAMES, st.lists(LEVELS, min_size=1, max_size=4, unique_by=(format_level, lambda level: level)), max_size=3
    ),
    st.integers(1, 6),
    st.integers(0, 2**32),
)
def test_every_plan_holds_every_setting_in_every_block(factors: dict[str, list[Any]], blocks: int, seed: int) -> None:
    experiment = Experiment(
        name="x",
        subject=Subject(name="s", command=("s",)),
        factors={name: tuple(levels) for name, levels in factors.items()},
        load=Load(users=1),
        measure=Measure(repeats=blocks),
    )
    settings = experiment.settings()
    trials = dry_run(experiment, seed)
    assert [trial.number for trial in trials] == list(range(1, len(settings) * blocks + 1))
    assert [trial.block for trial in trials] == [block for block in range(blocks) for _ in settings]
    for block in range(blocks):
        of_block = [trial for trial in trials if trial.block == block]
        assert Counter(trial.setting.id for trial in of_block) == Counter(setting.id for setting in settings)
        assert len({trial.seed for trial in of_block}) == 1
    assert trials == dry_run(experiment, seed)


THINK = st.one_of(
    NS.map(duration_text),
    st.tuples(NS, NS).map(lambda pair: {"uniform": [duration_text(ns) for ns in sorted(pair)]}),
    NS.map(lambda ns: {"exponential": duration_text(ns)}),
)


def _printable(text: str) -> str:
    """The text without control characters, as a header may contain it."""
    return "".join(character for character in text if character >= " " and character != "\x7f")


STEP = st.fixed_dictionaries(
    {"path": st.text(string.ascii_letters + "?&=/%", max_size=10).map(lambda path: "/" + path)},
    optional={
        "method": st.sampled_from(["GET", "POST"]),
        "name": TEXT,
        "body": TEXT,
        "headers": st.dictionaries(NAMES, TEXT.map(_printable), max_size=2),
        "check": st.fixed_dictionaries({}, optional={"status": st.lists(st.integers(200, 999)), "contains": TEXT}),
        "think": THINK,
    },
)
MODEL = st.one_of(
    st.fixed_dictionaries({"users": st.integers(1, 10**6)}, optional={"think": THINK}),
    st.fixed_dictionaries(
        {"rate": st.floats(0.001, 1e6)}, optional={"arrivals": st.sampled_from(["constant", "poisson"])}
    ),
)
REST = st.fixed_dictionaries(
    {},
    optional={
        "ramp": NS.map(duration_text),
        "duration": st.integers(1, 10**13).map(duration_text),
        "scenario": st.lists(STEP, min_size=1, max_size=3),
        "keep_alive": st.booleans(),
    },
)
OBJECTIVES = st.fixed_dictionaries(
    {},
    optional={
        "minimise": st.sampled_from(["p99", "memory"]),
        "subject_to": st.lists(st.sampled_from(["p99 < 50ms", "errors<=1%", "memory < 1.5GiB", "rate > 100/s"])),
        "margin": st.floats(0, 1),
    },
)


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    factors = draw(
        st.dictionaries(
            NAMES, st.lists(LEVELS, min_size=1, max_size=3, unique_by=(format_level, lambda level: level)), max_size=2
        )
    )
    document: dict[str, Any] = {
        "question": draw(TEXT),
        "subject": {
            "command": ["./server", "{port}", *(f"{{{name}}}" for name in factors)],
            "env": draw(st.dictionaries(NAMES, TEXT.map(lambda text: text.replace("{", "")), max_size=2)),
        },
        "factors": factors,
        "load": {**draw(MODEL), **draw(REST)},
        "measure": draw(st.fixed_dictionaries({}, optional={"warmup": st.just("auto") | NS.map(duration_text)})),
        "objective": draw(OBJECTIVES),
    }
    return parse_experiment(_as_yaml(document), "made.yaml")


def _as_yaml(document: dict[str, Any]) -> str:
    import io

    from ruamel.yaml import YAML

    text = io.StringIO()
    YAML(typ="rt", pure=True).dump(document, text)
    return text.getvalue()


@given(
    experiments(),
    st.sampled_from(["?0", "~", "a: b", "- a", "# a", "a #b", "'", '"', "&a", "*a", "%a", "0x1", "[", " "]),
)
def test_text_that_yaml_would_take_for_something_else(experiment: Experiment, text: str) -> None:
    subject = Subject(name="s", command=("s", "{port}", text))
    odd = experiment.model_copy(update={"question": text, "subject": subject, "factors": {"aa": (text, "x")}})
    assert parse_experiment(resolved_yaml(odd), "resolved.yaml") == odd


@given(experiments())
def test_a_resolved_experiment_loads_back_to_the_same(experiment: Experiment) -> None:
    assert parse_experiment(resolved_yaml(experiment), "resolved.yaml") == experiment


SNIPPETS = st.sampled_from(
    [
        "subject: reference\n", "subject: {command: ./x}\n", "load: {users: 3}\n", "load: 5\n", "factors: {a: [1]}\n",
        "factors: [1]\n", "claims: {}\n", "claims: [1]\n", "profiles: 3\n", "subject: [1]\n", "subject: {use: [1]}\n",
        "load: {scenario: [1, {get: {}}]}\n", "factors: {a: {b: c}}\n", "subject: {parameters: {a: 1}}\n",
        "objective: x\n",
        "subject: {parameters: {a: {type: int}}, command: 1}\n", "subject: {set: 4, use: reference}\n", "measure: []\n",
        "subject: {cwd: [1], command: [[]]}\n", "load: {users: {a: 1}, rate: [1]}\n", "objective: {maximise: [1]}\n",
        "claims: [{id: [1], holds: [2]}]\n", "subject: {use: reference, parameters: {threads: {default: x}}}\n",
    ]
)  # fmt: skip


@given(st.lists(SNIPPETS | st.text(max_size=20), max_size=5))
def test_whatever_is_written_is_an_experiment_or_a_clear_error(parts: list[str]) -> None:
    try:
        parse_experiment("".join(parts), "x.yaml", None)
    except ExperimentError as error:
        assert all(problem.message for problem in error.problems)
    except PowerbandError as error:
        assert str(error)
