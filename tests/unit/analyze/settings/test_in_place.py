"""The answer on a server that already ran speaks of trials instead of starts, and says what it cannot know."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import synthetic, synthetic_verdicts
from powerband.analyze.settings.in_place import (
    FROM_OUTSIDE,
    NO_DIFFERENCE,
    NOT_FOUND,
    NOT_RESTARTED,
    _of_trials,
    in_words_of_trials,
    with_unseen,
)
from powerband.analyze.settings.why import P99
from powerband.model.experiment import Experiment
from powerband.model.results import Analysis, Capacity, Estimate, Problem, Verdict

EXPERIMENT = Experiment.model_validate(
    {
        "name": "x",
        "subject": {"name": "s", "url": "http://there/", "deployed": True, "apply": [{"name": "k", "path": "/{n}"}]},
        "factors": {"n": (1, 2)},
        "load": {"users": 1, "duration": "1s"},
    }
)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("3 fresh starts confirm it", "3 further trials confirm it"),
        ("it failed 5 of 8 starts.", "it failed 5 of 8 trials."),
        ("Use start=4: 90 % of starts hold", "Use start=4: 90 % of trials hold"),
        ("mode=start, it was started", "mode=start, it was started"),
        ("warm-start=1 and start-up", "warm-start=1 and start-up"),
        ("`start` in start.sh or /opt/start/it fails starts.", "`start` in start.sh or /opt/start/it fails trials."),
    ],
)
def test_starts_are_trials_and_names_stay(said: str, told: str) -> None:
    assert _of_trials(said) == told


def test_a_quoted_command_stays_as_it_was_run() -> None:
    failed = "the command that changes the setting (systemctl start app@4) failed: Failed to start app@4.service"
    analysis = synthetic.analysis()
    problem = Problem("apply_failed", f"{failed}\nno start\n")
    trials = [replace(analysis.trials[0], status="failed", problems=(problem,)), *analysis.trials[1:]]
    answer = replace(analysis.answer, sentences=(f"T{failed[1:]}. It failed 1 of 8 starts.",))
    (said, *_) = with_unseen(EXPERIMENT, answer, analysis.settings, trials).sentences
    assert said == f"T{failed[1:]}. It failed 1 of 8 trials."


def test_warnings_and_what_is_told_of_settings_speak_of_trials_too() -> None:
    analysis = synthetic_verdicts.race_analysis()
    advice = "the server sets its own CPU affinity: start it without taskset"
    first = replace(analysis.trials[0], problems=(Problem("own_affinity", advice, fatal=False),))
    named = "other programs (start.sh 0.52 CPUs, /opt/start 0.20) disturbed 2 of 8 trials"
    claim, *others = synthetic.claims()
    failed = "threads=4 failed 2 of 8 starts"
    claim = replace(claim, says="More threads start later", sentence=failed, parts=())
    (row, *rows), race = analysis.settings, analysis.race
    assert race is not None
    row = replace(row, capacity=Capacity(None, (), "3 of 8 starts met the SLO"), uncertain_because=("2 of 8 starts",))
    told = in_words_of_trials(
        replace(
            analysis,
            deployed=True,
            trials=(first, *analysis.trials[1:]),
            settings=(row, *rows),
            race=replace(race, departures=(replace(race.departures[0], reason="broken in 2 of 8 starts"),)),
            warnings=("it may miss p99 < 50ms: broken in 2 of 8 starts", f"trial 1 (threads=1): {advice}", named),
            claims=(claim, *others),
            found=(f"Refuted: {claim.says}; {failed}.",),
        )
    )
    assert told.warnings == ("it may miss p99 < 50ms: broken in 2 of 8 trials", f"trial 1 (threads=1): {advice}", named)
    assert told.settings[0].capacity is not None and told.race is not None
    assert told.settings[0].capacity.note == "3 of 8 trials met the SLO"
    assert told.race.departures[0].reason == "broken in 2 of 8 trials"
    assert told.claims[0].sentence == "threads=4 failed 2 of 8 trials"
    assert told.found == ("Refuted: More threads start later; threads=4 failed 2 of 8 trials.",)


def sentences(analysis: Analysis) -> str:
    return " ".join(with_unseen(EXPERIMENT, analysis.answer, analysis.settings, analysis.trials).sentences)


def test_what_is_seen_inside_is_not_denied() -> None:
    told = sentences(synthetic.analysis())
    assert NOT_RESTARTED in told and FROM_OUTSIDE not in told and NO_DIFFERENCE not in told


def blind(analysis: Analysis) -> Analysis:
    """The analysis of trials whose server was not seen."""
    trials = [
        replace(trial, metrics={name: value for name, value in trial.metrics.items() if "cpu" not in name})
        for trial in analysis.trials
    ]
    return replace(analysis, trials=tuple(trials))


def test_from_outside_nothing_inside_is_known() -> None:
    assert FROM_OUTSIDE in sentences(blind(synthetic.analysis()))


def test_a_container_that_was_not_found_is_told_of() -> None:
    update = {"deployed": None, "command": ("docker", "run", "image")}
    started = EXPERIMENT.model_copy(update={"subject": EXPERIMENT.subject.model_copy(update=update)})
    seen = synthetic.analysis()
    for analysis, told in ((seen, False), (blind(seen), True)):
        answer = with_unseen(started, analysis.answer, analysis.settings, analysis.trials)
        assert (NOT_FOUND in answer.sentences) is told and NOT_RESTARTED not in " ".join(answer.sentences)


def test_a_knob_that_makes_no_difference_is_asked_about() -> None:
    analysis = synthetic.analysis()
    alike = [
        replace(row, verdict=Verdict.EQUIVALENT, feasible=True, trials=5, estimates={}) for row in analysis.settings
    ]
    assert NO_DIFFERENCE in sentences(replace(analysis, settings=tuple(alike)))
    assert NO_DIFFERENCE not in sentences(replace(analysis, settings=(replace(alike[0], trials=1), *alike[1:])))


def test_a_knob_that_changes_the_p99_is_not_asked_about() -> None:
    """A rate that all settings serve leaves the goodput alike."""
    analysis = synthetic.analysis()
    for tail_ns, asked in ((16e6, False), (60e6, True)):
        alike = [replace(row, verdict=Verdict.EQUIVALENT, feasible=True, trials=5, estimates={
                     **row.estimates, P99: Estimate(tail_ns if at else 60e6, None, None, 0.95, 5)})
                 for at, row in enumerate(analysis.settings)]  # fmt: skip
        assert (NO_DIFFERENCE in sentences(replace(analysis, settings=tuple(alike)))) is asked


def test_a_server_that_is_started_is_told_of_as_ever() -> None:
    analysis = synthetic.analysis()
    started = EXPERIMENT.model_copy(
        update={"subject": EXPERIMENT.subject.model_copy(update={"deployed": None, "command": ("s",)})}
    )
    assert with_unseen(started, analysis.answer, analysis.settings, analysis.trials) == analysis.answer
    assert in_words_of_trials(analysis) is analysis
