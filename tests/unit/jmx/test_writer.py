"""The text of an experiment file: it reads back as the converted plan, and a stranger's names stay names."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from fakes.plans import assertion, converted, element, group, headers, plan, sampler, timer
from powerband.files.experiment_file import parse_experiment
from powerband.jmx.converted import Conversion
from powerband.jmx.writer import experiment_text
from powerband.model.experiment import Experiment
from powerband.model.load import Constant, Uniform

COMMAND = ("./server", "--port", "{port}")
HOSTILE = "a: b\n# c\u2028{d} 'e' \"f\" \x85 --- 주문 😀"
MS = 1_000_000


def text_of(conversion: Conversion, *command: str) -> str:
    return experiment_text(conversion, "shop", "shop.jmx", command)


def read(conversion: Conversion, command: tuple[str, ...] = COMMAND) -> Experiment:
    return parse_experiment(text_of(conversion, *command), "shop.yaml")


def test_a_whole_step() -> None:
    asked = sampler(
        headers(("Accept", "*/*"), ("X-Time", "12:30")), assertion("response_code", 8, "201"),
        assertion("response_data", 16, "yes", '"ok": true'), name="Order", path="/o?a=1", method="POST",
        body='{"a":\n 1}\n',
    )  # fmt: skip
    (step,) = read(converted(plan(group(asked)))).load.scenario
    assert (step.name, step.method, step.path, step.body) == ("Order", "POST", "/o?a=1", '{"a":\n 1}\n')
    assert step.headers == (("Accept", "*/*"), ("X-Time", "12:30"), ("Content-Type", "text/plain; charset=UTF-8"))
    assert (step.checks.status, step.checks.body_contains) == ((201,), ("yes", '"ok": true'))


def test_headers_of_one_name_stay_apart_and_methods_without_a_short_form_are_written_out() -> None:
    asked = sampler(headers(("X-A", "1"), ("X-A", "2")), method="TRACE")
    (step,) = read(converted(plan(group(asked)))).load.scenario
    assert (step.method, step.headers) == ("TRACE", (("X-A", "1"), ("X-A", "2")))


def test_pauses_of_all_steps_or_of_each() -> None:
    alike = read(converted(plan(group(timer("UniformRandomTimer", "1", "2"), sampler(), sampler())))).load
    assert alike.think == Uniform(min=1 * MS, max=3 * MS)
    assert [step.think for step in alike.scenario] == [None, None]
    apart = read(converted(plan(group(sampler(timer("ConstantTimer", "7")), sampler())))).load
    assert [step.think for step in apart.scenario] == [None, Constant(ns=7 * MS)]
    assert apart.think == Constant()


def test_the_window_begins_after_the_ramp() -> None:
    timed = {"ThreadGroup.ramp_time": "45", "ThreadGroup.scheduler": True, "ThreadGroup.duration": "60"}
    made = read(converted(plan(group(sampler(), **timed))))
    assert (made.measure.warmup_min_ns, made.measure.warmup_max_ns) == (45_000 * MS, 75_000 * MS)
    assert made.load.duration_ns == 15_000 * MS
    short = read(converted(plan(group(sampler(), **{**timed, "ThreadGroup.duration": "30"}))))
    assert (short.measure.warmup_ns, short.load.duration_ns) == (0, 30_000 * MS)


def test_an_open_load() -> None:
    held = element("ConstantThroughputTimer", "Rate", throughput=100.0, calcMode=1)
    load = read(converted(plan(group(held, sampler(), users="9")))).load
    assert (load.rate_per_s, load.arrivals, load.max_in_flight, load.users) == (
        pytest.approx(100 / 60),
        "constant",
        9,
        None,
    )


def test_https_trusts_every_certificate_as_jmeter_does() -> None:
    secure = {"HTTPSampler.protocol": "https", "HTTPSampler.port": ""}
    conversion = converted(plan(group(sampler(**secure))))
    made = read(conversion)
    assert (made.subject.url, made.load.tls_insecure) == ("https://127.0.0.1:{port}/", True)
    fixed = read(conversion, ("./server",))
    assert fixed.subject.url == "https://127.0.0.1:443/"


@pytest.mark.parametrize("place", ["plan", "group", "sampler", "body", "value"])
def test_names_of_strangers_stay_names(place: str) -> None:
    text = plan(
        group(
            sampler(
                assertion("response_data", 16, HOSTILE.replace("\n", "") if place == "value" else "x"),
                name=HOSTILE if place == "sampler" else "r",
                body=HOSTILE if place == "body" else "x",
                method="POST",
                **{"HTTPSampler.follow_redirects": True},
            ),
            name=HOSTILE if place == "group" else "g",
        ),
        name=HOSTILE if place == "plan" else "p",
    )
    conversion = converted(text)
    written = text_of(conversion, *COMMAND)
    assert set(YAML(typ="safe", pure=True).load(written)) == {"name", "subject", "load"}
    (step,) = parse_experiment(written, "shop.yaml").load.scenario
    assert step.name == conversion.steps[0].name
    assert step.body == conversion.steps[0].request.body
    assert step.checks.body_contains == conversion.steps[0].check.contains


def test_comments_say_what_differs_and_what_was_left_out() -> None:
    text = text_of(converted(plan(element("CookieManager", "Cookies"), group(sampler(path="/${__P(p,x)}"))), "Cookies"))
    assert "# LEFT OUT, as asked by --partial: Test Plan > Cookies (CookieManager, line " in text
    assert "# Properties that were not given with -J, at their defaults: p=x." in text
    assert "# The plan asks http://127.0.0.1:8080; here it is the server that powerband starts." in text
    assert "# What differs from JMeter:\n# - JMeter also sends its own User-Agent" in text


def test_without_a_command_the_file_says_what_to_fill_in(tmp_path: Path) -> None:
    text = text_of(converted(plan(group(sampler()))))
    assert "  # Fill in how your server is started, for example:\n  # command: ./my-server --port {port}\n" in text
    filled = text.replace("  # command: ./my-server --port {port}", '  command: "./my-server --port {port}"')
    assert parse_experiment(filled, "shop.yaml").subject.command == ("./my-server", "--port", "{port}")
