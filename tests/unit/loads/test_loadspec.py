from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from powerband.loads.engine_specs import CONNECTIONS_PER_TUPLE, HELD_MOST, MAX_ENGINES, fleet_shape, fleet_specs
from powerband.loads.http.driver import at_url
from powerband.model.load import Exponential, Load, Step, Uniform
from powerband.processes.failures import Code, TrialFailed
from powerband.wire import specs as wire

URL = "http://127.0.0.1:8080/ignored"
FAR = "http://10.0.0.1:80/"
MS = 1_000_000
THREE_STEPS = [{"name": "first"}, {"name": "second"}, {"name": "third"}]
THREE_MESSAGES = {"websocket": {}, "scenario": [{"name": name, "message": name} for name in ("join", "say", "leave")]}


@given(st.integers(1, 200_000), st.integers(100, 100_000))
def test_the_users_of_a_fleet_add_up_and_are_disjoint(users: int, limit: int) -> None:
    try:
        specs = fleet_specs(Load(users=users), url=URL, seed=1, descriptor_limit=limit)
    except TrialFailed as failed:
        assert failed.failure.code == Code.DESCRIPTOR_LIMIT
        assert users > MAX_ENGINES * (limit - 48)
        return
    seen = 0
    sources: list[str] = []
    for spec in specs:
        assert isinstance(spec.model, wire.Closed)
        assert spec.first_user == seen
        assert 1 <= spec.model.users <= limit - 48
        seen += spec.model.users
        if spec.target.source_addresses:
            assert spec.model.users <= CONNECTIONS_PER_TUPLE * len(spec.target.source_addresses)
        else:
            assert users <= CONNECTIONS_PER_TUPLE
        sources.extend(spec.target.source_addresses)
    assert seen == users
    assert len(sources) == len(set(sources))


@given(st.floats(1, 1e6), st.integers(1, 200_000))
def test_the_rate_of_a_fleet_adds_up(rate: float, bound: int) -> None:
    load = Load(rate_per_s=rate, max_in_flight=bound, ramp_ns=1000, ramp_from_per_s=rate / 2)
    specs = fleet_specs(load, url=URL, seed=1, descriptor_limit=20_000)
    models = [spec.model for spec in specs]
    assert all(isinstance(model, wire.Open) for model in models)
    assert sum(model.rate_per_s for model in models if isinstance(model, wire.Open)) == pytest.approx(rate)
    assert sum(model.max_in_flight for model in models if isinstance(model, wire.Open)) == bound


@pytest.mark.parametrize(("limit", "in_flight"), [(256, 208), (1024, 976), (20_000, 10_000)])
def test_an_open_load_without_a_bound_of_its_own_needs_one_process(limit: int, in_flight: int) -> None:
    (spec,) = fleet_specs(Load(rate_per_s=100), url=URL, seed=1, descriptor_limit=limit)
    assert isinstance(spec.model, wire.Open)
    assert spec.model.max_in_flight == in_flight
    asked = fleet_specs(Load(rate_per_s=100, max_in_flight=1000), url=URL, seed=1, descriptor_limit=limit)
    assert len(asked) == (5 if limit == 256 else 2 if limit == 1024 else 1)


@pytest.mark.parametrize(
    ("limit", "under_way", "host", "in_flight", "engines"),
    [
        (20_000, 20_000.0, "127.0.0.1", 20_708, 2),
        (20_000, 5_000.0, "127.0.0.1", 10_000, 1),  # the usual bound is enough
        (1024, 1_250.0, "127.0.0.1", 1_427, 2),
        (1024, 1e9, "127.0.0.1", 64 * 976, 64),
        (1_048_576, 1e9, "127.0.0.1", HELD_MOST, 1),
        (1_048_576, 1e9, "10.0.0.1", 25_408, 1),  # one address has so many ports
    ],
)
def test_an_open_load_has_room_for_what_the_conditions_allow_as_far_as_the_fleet_has_it(
    limit: int, under_way: float, host: str, in_flight: int, engines: int
) -> None:
    made: dict[str, Any] = {"url": f"http://{host}:8080/", "seed": 1, "descriptor_limit": limit, "allow_remote": True}
    load = Load(rate_per_s=1000.0)
    models = [spec.model for spec in fleet_specs(load, under_way=under_way, **made)]
    assert len(models) == engines
    assert sum(model.max_in_flight for model in models if isinstance(model, wire.Open)) == in_flight
    own = fleet_specs(load.model_copy(update={"max_in_flight": 500}), under_way=under_way, **made)
    assert sum(spec.model.max_in_flight for spec in own if isinstance(spec.model, wire.Open)) == 500


def test_pipelined_requests_share_connections() -> None:
    load = Load(rate_per_s=1000, max_in_flight=16_000, pipeline=16)
    (spec,) = fleet_specs(load, url=URL, seed=1, descriptor_limit=1100)
    assert spec.connection.pipeline == 16


def test_the_hint_names_a_limit_that_is_enough() -> None:
    with pytest.raises(TrialFailed) as failed:
        fleet_shape(100_000, 256, "127.0.0.1")
    assert (
        "raise the limit to 1611 (`sudo prlimit --pid $$ --nofile=1611` in this shell)" in failed.value.failure.message
    )
    assert len(fleet_shape(100_000, 1611, "127.0.0.1")) == MAX_ENGINES


def test_another_machine_is_driven_from_the_kernels_choice_of_address() -> None:
    assert fleet_shape(20_000, 100_000, "192.0.2.1") == [()]
    assert len(fleet_shape(50_000, 100_000, "localhost")[0]) == 5


def test_a_load_is_translated_field_by_field() -> None:
    load = Load(
        users=3,
        think=Exponential(mean_ns=5),
        requests_per_user=9,
        ramp_ns=4,
        duration_ns=100,
        drain_ns=50,
        scenario=(
            Step(name="a", path="/a?b=1", headers=(("X", "y"),), think=Uniform(min_ns=1, max_ns=2)),
            Step(name="b", method="POST", body="text"),
        ),
        keep_alive=False,
        timeout_ns=7,
        connect_timeout_ns=8,
        engine_threads=2,
        precision_ns=0,
        tls_insecure=True,
    )
    (spec,) = fleet_specs(load, url="https://localhost:1/x", seed=9, descriptor_limit=1000, cpus=(1,), warmup_max_ns=6)
    assert spec.target == wire.Target(url="https://localhost:1", tls=wire.Tls(insecure=True))
    assert spec.model == wire.Closed(users=3, think=wire.ExponentialTime(mean_ns=5), ramp_ns=4, requests_per_user=9)
    assert spec.scenario[0].think == wire.UniformTime(min_ns=1, max_ns=2)
    assert spec.scenario[0].headers == (("X", "y"),)
    assert (spec.scenario[1].method, spec.scenario[1].body) == ("POST", "text")
    assert spec.connection == wire.ConnectionPolicy(keep_alive=False)
    assert spec.timeouts == wire.Timeouts(connect_ns=8, request_ns=7)
    assert (spec.phases.warmup_ns, spec.phases.measure_ns, spec.phases.drain_ns) == (None, 100, 50)
    assert spec.phases.deadline_ns >= 6 + 4 + 100 + 50
    assert (spec.threads, spec.cpus, spec.precision_ns, spec.seed) == (2, (1,), 0, 9)


def test_few_ports_take_more_source_addresses() -> None:
    shape = fleet_shape(42_000, 20_000, "127.0.0.1")
    assert [len(sources) for sources in shape] == [2, 2, 2]
    assert shape[0] == ("127.0.0.2", "127.0.0.3") and shape[2][1] == "127.0.0.7"
    narrow = fleet_shape(42_000, 20_000, "127.0.0.1", local_ports=1000)
    assert [len(sources) for sources in narrow] == [16, 16, 16]
    assert fleet_shape(900, 20_000, "127.0.0.1", local_ports=1000) == [()]


def test_another_machine_has_one_source_address_and_its_ports() -> None:
    assert fleet_shape(25_000, 30_000, "10.0.0.1") == [()]
    with pytest.raises(TrialFailed) as failed:
        fleet_shape(26_000, 30_000, "10.0.0.1")
    assert failed.value.failure.code == Code.PORT_LIMIT
    assert "26000 connections to 10.0.0.1, and this machine has 28232 ports" in failed.value.failure.message


@pytest.mark.parametrize(
    ("load", "more", "starting_ms"),
    [
        ({"users": 4}, {}, 4),
        ({"users": 1000}, {}, 100),
        ({"users": 1000}, {"warmup_ns": 20 * MS}, 10),
        ({"users": 1000, "duration_ns": 3_000 * MS}, {"warmup_ns": 0}, 30),
        ({"users": 1000, "requests_per_user": 9}, {"warmup_ns": 0}, 0),
        ({"users": 1000}, {"at_once": True}, 0),
        ({"users": 4, "think": 2_000 * MS, "scenario": THREE_STEPS}, {}, 6_000),
        ({"users": 4, "think": 2_000 * MS, "scenario": THREE_STEPS}, {"warmup_ns": 4_000 * MS}, 2_000),
        ({"users": 4, "think": 2_000 * MS, "scenario": THREE_STEPS}, {"fixed_ns": 4_000 * MS}, 2_000),
        ({"users": 4, "think": 2_000 * MS, "scenario": THREE_STEPS}, {"warmup_ns": 6_000 * MS}, 6_000),
        ({"users": 4, "think": 2_000 * MS, "scenario": THREE_STEPS}, {"warmup_ns": 20_000 * MS}, 6_000),
        ({"users": 4, "think": 0, "scenario": THREE_STEPS}, {}, 4),
        ({"users": 4, "think": 2_000 * MS, **THREE_MESSAGES}, {}, 6_000),
        ({"users": 4, "pace": 2_000 * MS, **THREE_MESSAGES}, {"warmup_ns": 20_000 * MS}, 6_000),
        ({"users": 4, "pace": 2_000 * MS, "join_per_s": 4, **THREE_MESSAGES}, {}, 1_000),
        ({"users": 4, **THREE_MESSAGES}, {}, 4),
    ],
)
def test_users_without_a_ramp_start_a_little_apart_or_over_one_pass_through_their_steps(
    load: dict[str, Any], more: dict[str, Any], starting_ms: int
) -> None:
    (spec,) = fleet_specs(Load(**load), url=URL, seed=1, descriptor_limit=2000, **more)
    assert isinstance(spec.model, wire.Closed) and spec.model.ramp_ns == starting_ms * MS


@pytest.mark.parametrize(
    ("load", "more", "pause_ms"),
    [
        pytest.param({}, {}, 0, id="they start over one pass"),
        pytest.param({"ramp_ns": 6_000 * MS}, {}, 0, id="so does their ramp"),
        pytest.param({"ramp_ns": 1_000 * MS}, {}, 6_000, id="a shorter ramp"),
        pytest.param({"ramp_ns": 9_000 * MS}, {}, 6_000, id="a pass and a half"),
        pytest.param({}, {"at_once": True}, 0, id="all at once"),
        pytest.param({"ramp_ns": 1_000 * MS}, {"warmup_ns": 7_000 * MS}, 6_000, id="in time for the window"),
        pytest.param({"ramp_ns": 1_000 * MS}, {"warmup_ns": 6_999 * MS}, 0, id="too late for the window"),
        pytest.param({"ramp_ns": 1_000 * MS}, {"fixed_ns": 6_999 * MS}, 0, id="too late for its command"),
        pytest.param({"ramp_ns": 1_000 * MS, "requests_per_user": 9}, {}, 0, id="users who leave"),
        pytest.param({"ramp_ns": 1_000 * MS, "scenario": THREE_STEPS[:1]}, {}, 0, id="one step"),
        pytest.param({"think": 1 * MS, **THREE_MESSAGES}, {}, 0, id="messages"),
    ],
)
def test_users_who_start_together_are_spread_over_their_steps_by_a_first_pause(
    load: dict[str, Any], more: dict[str, Any], pause_ms: int
) -> None:
    given = {"users": 4, "think": 2_000 * MS, "scenario": THREE_STEPS, **load}
    (spec,) = fleet_specs(Load(**given), url=URL, seed=1, descriptor_limit=2000, **more)
    assert isinstance(spec.model, wire.Closed) and spec.model.first_pause_ns == pause_ms * MS


def test_a_join_is_a_ramp_that_every_process_shares() -> None:
    load = Load(users=1000, join_per_s=100)
    specs = fleet_specs(load, url=URL, seed=1, descriptor_limit=600)
    models = [spec.model for spec in specs]
    assert [(m.users, m.ramp_ns) for m in models if isinstance(m, wire.Closed)] == [(500, 10**10), (500, 10**10)]


@given(st.integers(1, 60_000), st.integers(100, 100_000), st.integers(1, 8))
def test_machines_that_take_turns_have_as_many_users_each(users: int, limit: int, machines: int) -> None:
    try:
        specs = fleet_specs(Load(users=users), url=FAR, seed=1, descriptor_limit=limit, machines=machines)
    except TrialFailed as failed:
        assert failed.failure.code in (Code.DESCRIPTOR_LIMIT, Code.PORT_LIMIT)
        return
    shares = [spec.model.users for spec in specs if isinstance(spec.model, wire.Closed)]
    assert sum(shares) == users and min(shares) >= 1 and max(shares) <= limit - 48
    assert len(specs) >= min(users, machines)
    on_each = [sum(shares[at::machines]) for at in range(min(users, machines))]
    assert max(on_each) - min(on_each) <= len(specs) / machines


def test_each_machine_has_ports_of_its_own() -> None:
    asked = {"url": FAR, "seed": 1, "descriptor_limit": 100_000, "local_ports": 28_232}
    with pytest.raises(TrialFailed, match="this machine has 28232 ports"):
        fleet_specs(Load(users=40_000), **asked)
    assert len(fleet_specs(Load(users=40_000), machines=2, **asked)) == 2
    with pytest.raises(TrialFailed, match="each of 2 machines has 28232 ports"):
        fleet_specs(Load(users=60_000), machines=2, **asked)


def test_an_open_load_is_dealt_to_machines_as_far_as_each_thread_gets_a_request() -> None:
    load = Load(rate_per_s=90, max_in_flight=4, engine_threads=2)
    specs = fleet_specs(load, url=FAR, seed=1, descriptor_limit=1024, machines=3)
    assert [spec.model.rate_per_s for spec in specs if isinstance(spec.model, wire.Open)] == [45, 45]


@pytest.mark.parametrize(
    ("template", "url", "path", "sent"),
    [
        ("/work?size={size}", "/work?size=10", "/work?size={size}", "/work?size=10"),
        ("/{port}/x", "/8080/x", "/{port}/x", "/8080/x"),
        ("/find?q={q}", "/find?q=a b&c=%20", "/find?q={q}", "/find?q=a%20b&c=%20"),
        ("/work?size={size}", "/work?size=10", "/other", "/other"),
        ("/work?size={size}", "/", "/{{", "/{{"),
    ],
)
def test_the_path_of_the_url_is_requested_with_its_placeholders_filled(
    template: str, url: str, path: str, sent: str
) -> None:
    load = Load(users=1, scenario=(Step(name="x", path=path),))
    (step,) = at_url(load, f"http://127.0.0.1:{{port}}{template}", f"http://127.0.0.1:8080{url}").scenario
    assert (step.name, step.path) == ("x", sent)


@pytest.mark.parametrize(
    ("given", "drain_s"),
    [
        ({"users": 1}, 30),
        ({"users": 1, "timeout": "60s"}, 60),
        ({"users": 1, "timeout": "5s"}, 10),
        ({"users": 1, "drain": "1s"}, 1),
        ({"rate": 1}, 30),
        ({"jmeter": "plan.jmx"}, 30),
        ({"jmeter": "plan.jmx", "drain": "1s"}, 1),
    ],
)
def test_users_are_waited_for_until_each_request_was_answered_or_timed_out(given: dict[str, Any], drain_s: int) -> None:
    assert Load.model_validate(given).drain_ns == drain_s * 10**9
