from __future__ import annotations

import pytest

from powerband.base.errors import UsageError
from powerband.model.load import Load, Step
from powerband.trials.loadgen import _with_path, check_url


def test_another_machine_must_be_named() -> None:
    with pytest.raises(UsageError, match=r"--allow-host example\.org"):
        check_url("http://example.org/", ())
    assert check_url("http://example.org/", ("example.org",)) == "example.org"
    assert check_url("http://[::1]:80/", ()) == "::1"


@pytest.mark.parametrize(
    "url", ["localhost:8080", "ftp://localhost/", "http://", "http://localhost:port/", "http://[::1"]
)
def test_what_is_no_url_is_said_so(url: str) -> None:
    with pytest.raises(UsageError, match="is no URL"):
        check_url(url, ())


def test_the_path_of_the_url_is_requested_where_there_is_no_scenario() -> None:
    load = Load(users=1)
    assert _with_path(load, "http://localhost/").scenario == load.scenario
    assert _with_path(load, "http://localhost").scenario == load.scenario
    (step,) = _with_path(load, "http://localhost/a?b=c").scenario
    assert step.path == "/a?b=c"
    own = Load(users=1, scenario=(Step(name="x", path="/x"),))
    assert _with_path(own, "http://localhost/a").scenario == own.scenario
