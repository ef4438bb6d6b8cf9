"""Advice is followed: planted bottlenecks of real servers and of the reference server run again with the setting that
the advice asks for. The server must then serve more, and its bottleneck must be another one or have another figure."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from fakes.disturbance import undisturbed
from fakes.followed import FOLLOWED, GAIN_LEAST, Followed, outcome
from fakes.needs import need_javac, need_node, without
from fakes.planted_real import RealCase

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

# Advice about a setting of the server and about its clients; that about the load follows from a look that test_slots.py
# takes. test_real_servers.py and test_bottlenecks.py check that the other cases are named rightly.
SOME = ("gunicorn: 4 threads sleep, 64 threads", "accept: slow, connections kept alive")


def marked(followed: Followed) -> Any:
    mark = pytest.mark.long if followed.name in SOME else pytest.mark.table
    return pytest.param(followed, id=followed.name, marks=mark)


def test_the_pairs_that_are_tried_first_are_there() -> None:
    assert set(SOME) <= {followed.name for followed in FOLLOWED}


@pytest.mark.parametrize("followed", [marked(each) for each in FOLLOWED])
def test_more_is_served_where_the_advice_is_followed(followed: Followed) -> None:
    need(followed)
    found = undisturbed(lambda _: outcome(followed), lambda found: found.disturbed_by)
    assert found.before.right, str(found)
    assert found.gain > GAIN_LEAST, str(found)
    assert found.moved, str(found)


def need(followed: Followed) -> None:
    for case in (followed.before, followed.after):
        if not isinstance(case, RealCase):
            continue
        if not case.installed:
            without("no cgroup can be made here: run this as root")
        if case.command[0] == "node":
            need_node()
        if case.command[0] == "java":
            need_javac()
        if "{go}" in case.command and shutil.which("go") is None:
            without("no Go (go) here: install Debian's package golang")
