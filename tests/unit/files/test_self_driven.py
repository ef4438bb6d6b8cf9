"""Experiments with a self-driven subject: their keys, the substitute for the load, and one factor at a time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fakes.tuned import tune_experiment
from powerband.base.errors import ExperimentError, UsageError
from powerband.base.logs import final_figures
from powerband.files.experiment_file import parse_experiment
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment
from powerband.model.own_expression import Series, parse_own, parse_series
from powerband.model.plan import Setting

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "self-driven.md").read_text()
GOOD = """\
name: demo
subject:
  command: ./actors {threads} {statsd_port}
  counts: {series: "n_total{kind=\\"a\\"}", noun: message}
  last_words: "^final: "
factors: {threads: [1, 2]}
load: {duration: 3s}
"""


def parse(text: str = GOOD, profile: str | None = None) -> Experiment:
    return parse_experiment(text, "x.yaml", profile)


def errors_of(text: str) -> str:
    with pytest.raises(ExperimentError) as caught:
        parse(text)
    return str(caught.value)


def test_a_subject_that_counts_needs_no_load_and_no_url() -> None:
    made = parse()
    assert made.subject.counts and made.noun == "message"
    assert made.load.duration_ns == 3 * 10**9
    assert made.scraped == ("n_total",)
    short = parse(re.sub(r"load:.*\n", "", GOOD).replace('{series: "n_total{kind=\\"a\\"}", noun: message}', "n_total"))
    assert (short.load.duration_ns, short.noun) == (10 * 10**9, "operation")


def test_it_reads_back_from_what_a_run_keeps() -> None:
    made = parse()
    kept = resolved_yaml(made)
    assert "users" not in kept
    assert parse(kept) == made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("duration: 3s", "duration: 3s, users: 5"), "is not loaded, so its load has a duration only: leave users out"),
        (("duration: 3s", "rate: 5/s, scenario: [{get: /}]"), "leave rate out"),
        (("{threads: [1, 2]}", "{threads: [1, 2], load.users: [1]}"), "load.users cannot vary"),
        (("{statsd_port}", ""), "nothing says where this counter can be read"),
        (('"n_total{kind=\\"a\\"}"', "1x"), "is no series"),
        (('"^final: "', '"("'), "is no regular expression"),
        (("load: {duration: 3s}", "objective: capacity"), "has no capacity"),
        (("load: {duration: 3s}", "objective: {minimise: p99}"), "only a load has response_time_ns_p99"),
        (("load: {duration: 3s}", "objective: {subject_to: [errors < 1%]}"), "only a load has error_rate"),
        (("load: {duration: 3s}", "measure: {invariants: [app_lost == 0]}"), "measure.metrics defines no app_lost"),
        (("load: {duration: 3s}", "measure: {invariants: [lost == 0]}"), "there is no metric lost"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(change: tuple[str, str], message: str) -> None:
    assert message in errors_of(GOOD.replace(*change))


def test_last_words_are_asked_for_where_a_metric_is_made_of_them() -> None:
    metrics = "measure: {metrics: {app_lost: final(lost)}, invariants: app_lost == 0}\n"
    made = parse(GOOD + metrics)
    assert made.measure.invariants[0].text == "app_lost == 0"
    assert made.scraped == ("n_total",)
    assert parse(resolved_yaml(made)) == made
    without = (GOOD + metrics).replace('  last_words: "^final: "\n', "")
    assert "set subject.last_words" in errors_of(without)


def test_metrics_may_be_of_what_a_server_sends() -> None:
    text = """
subject: {command: "./s {port} {statsd_socket}", url: "http://127.0.0.1:{port}/"}
load: {users: 1}
measure: {metrics: {app_sent_per_s: rate(sent_total)}}
"""
    assert parse(text).scraped == ("sent_total",)
    assert "has no metrics page" in errors_of(text.replace("{statsd_socket}", ""))


def test_a_page_of_another_machine_is_refused() -> None:
    text = GOOD.replace("{statsd_port}", "").replace("counts:", "metrics_url: http://192.0.2.1:9/m\n  counts:")
    assert "192.0.2.1" in errors_of(text)


def test_one_factor_at_a_time() -> None:
    made = parse(
        GOOD.replace("{threads}", "{threads} {mode}").replace("[1, 2]", "[1, 2, 4], mode: [a, b]")
        + "design: {vary: one-at-a-time}\n"
    )
    assert [setting.id for setting in made.settings()] == [
        "threads=1,mode=a",
        "threads=2,mode=a",
        "threads=4,mode=a",
        "threads=1,mode=b",
    ]
    many = ", ".join(f"f{number}: [1, 2]" for number in range(40))
    names = " ".join(f"{{f{number}}}" for number in range(40))
    wide = GOOD.replace("{threads}", names).replace("threads: [1, 2]", many)
    assert "settings are more than" in errors_of(wide)
    made = parse(wide.replace("[1, 2]", "[1, 2, 3]") + "design: {vary: one-at-a-time, order: race}\n")
    assert len(made.settings()) == 81 and not made.explores
    alone = "name: x\nsubject: {command: ./s, counts: n, metrics_url: http://127.0.0.1/}\n"
    assert parse(alone + "design: {vary: one-at-a-time}\n").settings() == [Setting(())]


def test_claims_are_on_settings_that_there_are() -> None:
    base = GOOD.replace("{threads}", "{threads} {mode}").replace("[1, 2]", "[1, 2], mode: [a, b]")
    base += 'design: {vary: one-at-a-time}\nclaims:\n  - {id: c, says: s, holds: "%s"}\n'
    parse(base % "goodput[threads=1] > goodput[threads=2]")
    parse(base % "goodput[threads=2,mode=a] > 3")
    assert "no setting has all these values" in errors_of(base % "goodput[threads=2,mode=b] > 3")


def test_series_and_final_figures() -> None:
    assert parse_series('n{b="2",a="1"}') == Series("n", (("a", "1"), ("b", "2")))
    assert str(parse_series('n{b="2",a="1"}')) == 'n{a="1",b="2"}'
    assert parse_series("n").covers('n{a="1"}') and not parse_series("n").covers("n_total")
    assert parse_own("final(sent - received)").is_final
    for bad in ('final(n{a="1"})', "n n", "1", ""):
        with pytest.raises(ValueError):
            parse_own(bad) if bad.startswith("final") else parse_series(bad)


def test_the_last_line_that_matches_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "subject.log"
    log.write_text("final: a=1\nfinal: a=2 b=-3.5e1 c=x d=4, e=5.\nbye a=9\n")
    assert final_figures(log, "^final: ") == {"a": 2, "b": -35, "d": 4}
    assert final_figures(log, "^nothing") == final_figures(log, None) == final_figures(tmp_path / "none", "x") == {}


@pytest.mark.parametrize("number", ["1,000", "1,000,000", "1'000", "1\u2019000", "1\u202f000", "1\u00a0000.5", "0,5"])
def test_no_part_of_a_number_is_taken_for_the_whole(number: str, tmp_path: Path) -> None:
    log = tmp_path / "subject.log"
    log.write_text(f"final: sent={number} received=1000,lost=0, late=3\n")
    assert final_figures(log, "^final: ") == {"received": 1000, "lost": 0, "late": 3}


def test_tune_of_a_program_that_drives_itself() -> None:
    made = tune_experiment(("./w", "{threads}", "{statsd_port}"), ["threads=1,2"], counts="n_total")
    assert made.subject.counts and not made.objective.constraints
    assert made.subject.metrics_url is None
    paged = tune_experiment(
        ("./w", "{threads}", "{metrics_port}"), ["threads=1,2"], counts="n_total", options={"--duration": "4s"}
    )
    assert paged.subject.metrics_url == "http://127.0.0.1:{metrics_port}/metrics"
    assert paged.load.duration_ns == 4 * 10**9
    named = tune_experiment(("./w", "{threads}"), ["threads=1,2"], counts="n", metrics_url="http://127.0.0.1:9/m")
    assert named.subject.metrics_url == "http://127.0.0.1:9/m"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": {"--users": "5"}}, "--users 5: a program without requests is not loaded"),
        ({"options": {"--rate": "5/s", "--think": "1s"}}, "--rate 5/s: a program without requests is not loaded"),
        ({"url": "http://127.0.0.1:{port}/x"}, "--url: with --counts the program drives itself"),
        ({"request": {"body": "x"}, "expect": ["y"], "headers": ["A: b"]}, "--expect, --header, --body: with --counts"),
        ({"slo": ["p99<1ms"]}, "only a load has response_time_ns_p99"),
    ],
)
def test_tune_refuses_what_is_of_requests(given: dict[str, object], message: str) -> None:
    with pytest.raises((ExperimentError, UsageError)) as refused:
        tune_experiment(("./w", "{threads}", "{statsd_port}"), ["threads=1,2"], counts="n_total", **given)  # type: ignore[arg-type]
    assert message in str(refused.value)


EXAMPLES = [text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.S) if "counts:" in text]


@pytest.mark.parametrize("text", EXAMPLES)
def test_each_example_of_the_page_is_valid(text: str) -> None:
    assert len(EXAMPLES) == 1
    assert parse(text).subject.counts


def test_the_sample_of_the_page_is_there() -> None:
    for path in re.findall(r"examples/[\w./-]+\.py", PAGE):
        assert (ROOT / path).is_file(), path


def test_pekkos_pinned_dispatcher_reads_no_throughput() -> None:
    file = "name: x\nsubject: {use: pekko, set: {dispatcher: pinned, throughput: 5}}\nload: {duration: 1s}\n"
    said = "pekko reads throughput only with dispatcher=fork-join or thread-pool or affinity or virtual"
    assert said in errors_of(file)
