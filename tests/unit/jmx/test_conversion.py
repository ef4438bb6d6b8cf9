"""A whole plan: its group, its branches, the parts that are left out, and all refusals at once."""

from __future__ import annotations

import pytest

from fakes.plans import assertion, converted, data, defaults, element, group, headers, plan, sampler, timer
from powerband.base.errors import UsageError
from powerband.jmx.converted import Conversion
from powerband.jmx.plan_findings import ImportRefused

S = 1_000_000_000


def refusal(text: str, *partial: str, **properties: str) -> ImportRefused:
    with pytest.raises(ImportRefused) as error:
        converted(text, *partial, **properties)
    return error.value


def names(conversion: Conversion) -> list[str]:
    return [step.name for step in conversion.steps]


def test_users_ramp_and_duration() -> None:
    timed = {"ThreadGroup.ramp_time": "10", "ThreadGroup.scheduler": True, "ThreadGroup.duration": "70"}
    load = converted(plan(group(sampler(), users="${__P(users,50)}", **timed)), users="20").load
    assert (load.users, load.ramp_ns, load.duration_ns, load.warmup_ns) == (20, 10 * S, 60 * S, None)
    assert load.requests_per_user is None


def test_a_test_that_ends_within_its_ramp_is_measured_from_its_first_request() -> None:
    timed = {"ThreadGroup.ramp_time": "60", "ThreadGroup.scheduler": True, "ThreadGroup.duration": "30"}
    load = converted(plan(group(sampler(), **timed))).load
    assert (load.ramp_ns, load.duration_ns, load.warmup_ns) == (60 * S, 30 * S, 0)


def test_loops_are_requests_of_each_user() -> None:
    load = converted(plan(group(sampler(), sampler(name="b"), loops="5"))).load
    assert (load.requests_per_user, load.duration_ns) == (10, None)


def test_controllers_stand_in_place_and_loops_are_written_out() -> None:
    inner = element("LoopController", "Twice", sampler(name="b"), sampler(name="c"), **{"LoopController.loops": "2"})
    never = element("LoopController", "Never", sampler(name="x"), **{"LoopController.loops": 0})
    simple = element(
        "GenericController", "Part", inner, element("TransactionController", "Buy", sampler(name="d")), never
    )
    made = converted(plan(group(sampler(name="a"), simple, sampler(name="e"))))
    assert names(made) == ["a", "b", "c", "b", "c", "d", "e"]
    assert made.notes["The time of a transaction as a whole is not measured, only its requests'."] == ("Buy",)


def test_loops_around_nothing_take_no_time() -> None:
    inner = element("LoopController", "L", sampler(), **{"LoopController.loops": 0})
    for _ in range(20):
        inner = element("LoopController", "L", inner, **{"LoopController.loops": 1000})
    assert names(converted(plan(group(inner, sampler(name="a"))))) == ["a"]


def test_what_applies_to_one_request_is_bounded() -> None:
    timers = [timer("ConstantTimer", "1", name=f"t{number}") for number in range(301)]
    assert "301 timers, assertions and settings apply to it" in str(refusal(plan(group(*timers, sampler()))))


def test_disabled_elements_are_gone_with_all_below_them() -> None:
    off = element("IfController", "Off", sampler(name="x"), enabled=False)
    shown = element("ResultCollector", "Tree")
    made = converted(plan(group(off, sampler(name="gone", enabled=False), shown, sampler(name="a"))))
    assert names(made) == ["a"]


def test_everything_is_refused_at_once_with_its_place() -> None:
    text = plan(
        element("CookieManager", "Cookies"),
        group(
            element("IfController", "Maybe", sampler(element("JSR223PreProcessor", "Script"), name="Log in")),
            sampler(timer("SyncTimer", name="All at once"), name="Buy", body="${__UUID}"),
        ),
        group(sampler(), name="Admins"),
    )
    error = refusal(text)
    assert error.exit_code == 2
    assert [(each.path, each.what) for each in error.refusals] == [
        ("Test Plan > Cookies", "CookieManager"),
        ("Test Plan > Users > Maybe", "IfController"),
        ("Test Plan > Users > Maybe > Log in > Script", "JSR223PreProcessor"),
        ("Test Plan > Users > Buy", "HTTPSamplerProxy"),
        ("Test Plan > Users > Buy > All at once", "SyncTimer"),
        ("Test Plan > Admins", "ThreadGroup"),
    ]
    lines = text.splitlines()
    assert all(f'testname="{each.path.rpartition(" > ")[2]}"' in lines[each.line - 1] for each in error.refusals)
    assert all(each.why and each.instead for each in error.refusals)
    assert "nothing is written: 6 obstacles" in str(error)


def test_what_is_named_is_left_out() -> None:
    cookies, script = element("CookieManager", "Cookies"), element("JSR223PreProcessor", "Script")
    text = plan(cookies, group(sampler(script, name="a"), sampler(name="b")))
    made = converted(text, "Cookies", "Test Plan > Users > a > Script")
    assert names(made) == ["a", "b"]
    assert [path.rpartition(" (")[0] for path in made.left_out] == [
        "Test Plan > Cookies",
        "Test Plan > Users > a > Script",
    ]
    assert len(refusal(text, "Cookies").refusals) == 1


def test_a_name_that_nothing_has() -> None:
    text = plan(group(sampler()))
    with pytest.raises(UsageError, match=r"--partial Reqest: no enabled element .* did you mean Request"):
        converted(text, "Reqest")
    with pytest.raises(UsageError, match="that is the whole plan"):
        converted(text, "Test Plan")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (plan(), "no thread group that is enabled"),
        (plan(group()), "it sends nothing"),
        (plan(sampler(), group(sampler())), "outside of a thread group"),
        (plan(group(sampler(), users="0")), "0 threads"),
        (plan(group(sampler(), users="many")), "the number of threads is 'many'"),
        (plan(group(sampler(), users="1_0")), "the number of threads is '1_0'"),
        (plan(group(sampler(), loops="0")), "its loop count is 0"),
        (plan(group(sampler(), loops="-2")), "the loop count is '-2'"),
        (plan(group(sampler(), **{"ThreadGroup.scheduler": True})), "says no duration"),
        (plan(group(sampler(), **{"ThreadGroup.on_sample_error": "stoptest"})), "would do 'stoptest'"),
        (plan(group(sampler(), **{"ThreadGroup.same_user_on_next_iteration": False})), "a new user on each"),
        (plan(element("SetupThreadGroup", "Set up"), group(sampler())), "before or after the load"),
        (plan(element("ConfigTestElement", "FTP", gui="FtpConfigGui"), group(sampler())), "ConfigTestElement"),
        (plan(group(sampler(), sampler(name="b", **{"HTTPSampler.port": "81"}))), "an experiment has one"),
        (
            plan(group(sampler(), sampler(name="b", **{"HTTPSampler.use_keepalive": False}))),
            "Use KeepAlive of 'b' differs",
        ),
        (
            plan(group(sampler(), sampler(name="b", **{"HTTPSampler.connect_timeout": "5"}))),
            "the connect timeout of 'b'",
        ),
        (
            plan(group(element("LoopController", "L", sampler(), **{"LoopController.loops": -1}))),
            "it loops without end",
        ),
        (
            plan(group(element("LoopController", "L", sampler(), **{"LoopController.loops": 2000}))),
            "more than 1000 requests",
        ),
        (plan(variables={"a": "${b}"}), "the variable a: ${b} stands for nothing"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    assert why in str(refusal(text))


def test_a_loop_that_contradicts_itself() -> None:
    both = {"ThreadGroup.main_controller": {"LoopController.continue_forever": True, "LoopController.loops": "3"}}
    assert "go on for ever, and 3 loops" in str(refusal(plan(group(sampler(), **both))))


def test_a_loop_that_jmeter_runs_in_the_first_iteration_alone() -> None:
    """JMeter removes a Loop Controller that is done; 5.6.3 sent A, B, B, A, A for this plan of three iterations."""
    once = {"LoopController.continue_forever": False, "LoopController.loops": "2"}
    of = [sampler(name="A"), element("LoopController", "L", sampler(name="B"), **once)]
    assert "in the first iteration alone" in str(refusal(plan(group(*of, loops="3"))))
    assert names(converted(plan(group(*of, loops="1")))) == ["A", "B", "B"]


def test_differences_are_told_once_with_their_elements() -> None:
    goes_on = {"ThreadGroup.on_sample_error": "continue"}
    follows = {"HTTPSampler.follow_redirects": True}
    made = converted(
        plan(group(timer("ConstantTimer", "5"), sampler(name="a", **follows), sampler(name="b", **follows), **goes_on))
    )
    told = {text.split()[0] + " " + text.split()[1]: about for text, about in made.notes.items()}
    assert told["JMeter would"] == ("a", "b")
    assert any(note.startswith("After a failed request") for note in made.notes)
    assert any("each pause stands at the step before it" in note for note in made.notes)
    assert any(note.startswith("The plan runs until somebody stops it") for note in made.notes)
    assert any("powerband for 5 s (load.connect_timeout)" in note for note in made.notes)


@pytest.mark.parametrize(
    ("checks", "told"),
    [
        ((), "counts the 3xx as right"),
        ((assertion("response_code", 2, "200|302"),), "counts the 3xx as right"),
        ((assertion("response_code", 8, "200"),), "so that it fails"),
        ((assertion("response_data", 16, "tea"),), "so that it fails"),
    ],
)
def test_a_redirect_is_judged_by_the_check_of_its_request(checks: tuple[str, ...], told: str) -> None:
    made = converted(plan(group(sampler(*checks, **{"HTTPSampler.follow_redirects": True}))))
    assert [told in note for note in made.notes if "follow a redirect" in note] == [True]


@pytest.mark.parametrize(
    ("encoding", "text", "told"), [("gzip, br", "tea", [("a",)]), ("identity", "tea", []), ("gzip, br", "", [])]
)
def test_a_text_is_not_found_in_a_compressed_answer(encoding: str, text: str, told: list[tuple[str, ...]]) -> None:
    checks = [assertion("response_data", 16, text)] if text else []
    made = converted(plan(group(sampler(headers(("accept-encoding", encoding)), *checks, name="a"))))
    assert [about for note, about in made.notes.items() if note.startswith("JMeter unpacks")] == told


@pytest.mark.parametrize(
    ("protocol", "kept", "told"), [("https", False, True), ("https", True, False), ("http", False, False)]
)
def test_handshakes_of_connections_that_are_not_kept_are_told(protocol: str, *, kept: bool, told: bool) -> None:
    asked = sampler(**{"HTTPSampler.protocol": protocol, "HTTPSampler.use_keepalive": kept})
    notes = converted(plan(group(asked))).notes
    assert any("a full handshake" in note for note in notes) is told


def test_a_plan_without_differences_tells_few() -> None:
    timed = {"ThreadGroup.scheduler": True, "ThreadGroup.duration": "10"}
    timeouts = {"HTTPSampler.response_timeout": "3000", "HTTPSampler.connect_timeout": "1000"}
    made = converted(plan(group(sampler(**timeouts), **timed)))
    assert [note.split()[0] for note in made.notes] == ["JMeter", "JMeter's"]  # what it always sends; its timeout
    assert made.load.timeout_ns == 3 * S


def test_variables_of_the_plan_and_of_elements_in_their_order() -> None:
    first = element("Arguments", "V", **{"Arguments.arguments": [{"Argument.name": "b", "Argument.value": "${a}2"}]})
    made = converted(plan(group(sampler(path="/${a}/${b}"), first), variables={"a": "1", "b": "0"}))
    assert made.steps[0].request.path == "/1/12"


def test_what_stands_at_the_plan_applies_to_all_requests() -> None:
    outer = assertion("response_data", 16, "tea")
    made = converted(plan(outer, defaults(**{"HTTPSampler.path": "/all"}), group(sampler(path=""), sampler(path=""))))
    assert [(step.request.path, step.check.contains) for step in made.steps] == [("/all", ("tea",))] * 2


def test_a_variable_of_data_that_was_left_out_is_refused_where_it_is_used() -> None:
    text = plan(group(data("none.csv", "a"), sampler(path="/${a}")))
    assert [each.path for each in refusal(text, "Data").refusals] == ["Test Plan > Users > Request"]
