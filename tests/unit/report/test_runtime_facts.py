"""The number of CPUs that the server's runtimes count, among the facts of the report."""

from __future__ import annotations

from dataclasses import replace

from fakes.synthetic import analysis
from powerband.model.runtime import RuntimeView
from powerband.report.html.gather import runtime_facts

JVM = RuntimeView("JVM", 1, "availableProcessors", 2, "asked", 2, {"collector": "G1"})
NODE = RuntimeView("Node.js", 3, "os.availableParallelism()", None, "derived", 1.5, {"UV_THREADPOOL_SIZE": "4"})


def test_a_view_of_all_settings_is_one_row() -> None:
    made = analysis((1, 2), blocks=2)
    made = replace(made, trials=tuple(replace(trial, runtimes=(JVM,)) for trial in made.trials))
    words = "availableProcessors 2 and the G1 collector (as it says); may use 2"
    assert runtime_facts(made).rows == (("JVM", words),)


def test_a_view_that_differs_names_its_settings() -> None:
    made = analysis((1, 2), blocks=2)
    first = made.trials[0].setting
    views = {True: (JVM,), False: (NODE,)}
    made = replace(made, trials=tuple(replace(trial, runtimes=views[trial.setting == first]) for trial in made.trials))
    rows = dict(runtime_facts(made).rows)
    assert rows["JVM"].endswith(f": {first.id}")
    assert rows["Node.js"].startswith(
        "os.availableParallelism() unknown, UV_THREADPOOL_SIZE 4 (as documented); may use 1.5: "
    )


def test_without_any_there_are_no_facts() -> None:
    assert runtime_facts(analysis((1, 2), blocks=2)).rows == ()
