from __future__ import annotations

from collections.abc import Callable

import pytest

from powerband.processes.workers_up import Processes, await_workers

SECONDS = 30.0


def waited_s(state: Callable[[float], Processes], ends_s: float = SECONDS) -> float:
    """How long the wait lasts on a server that is in `state` after so many seconds, and ends after `ends_s`."""
    now_s = 0.0

    def pause(seconds: float) -> bool:
        nonlocal now_s
        now_s += seconds
        return now_s >= ends_s

    await_workers(lambda: state(now_s), pause, SECONDS, lambda: now_s)
    return now_s


def server(processes: int, *, running: bool = False, grown_pages: float = 0.0) -> Processes:
    return Processes(frozenset(range(processes)), running, int(grown_pages))


def test_a_server_at_rest_is_waited_for_a_moment() -> None:
    assert waited_s(lambda s: server(1)) == pytest.approx(0.03, abs=0.011)
    assert waited_s(lambda s: server(3)) == pytest.approx(0.12, abs=0.021)


def test_workers_that_are_forked_late_and_load_for_a_while_are_waited_for() -> None:
    """The first process needs 0.2 s to fork; three workers come 0.1 s apart; then they load for 4 s in turns."""
    assert waited_s(lambda s: server(1 if s < 0.2 else 2, running=s < 0.2)) == pytest.approx(0.32, abs=0.031)
    assert waited_s(lambda s: server(min(4, 1 + int((s + 0.09) / 0.1)))) == pytest.approx(0.21 + 0.12, abs=0.041)
    assert waited_s(lambda s: server(4, running=s < 4, grown_pages=500 * min(s, 4))) == pytest.approx(4.12, abs=0.05)


@pytest.mark.parametrize("processes", [1, 3])
def test_a_machine_that_stands_still_between_two_looks_shows_no_rest(processes: int) -> None:
    """It stands still for a second after the third look, between two bursts of a server that loads for a second."""
    looks = 0

    def clock() -> float:
        return 0.01 * looks + (looks > 2)

    def look() -> Processes:
        nonlocal looks
        looks += 1
        return server(processes, running=looks % 3 != 0 and clock() < 2, grown_pages=100 * looks)

    await_workers(look, lambda _: False, SECONDS, clock)
    assert clock() >= 2


@pytest.mark.parametrize("processes", [1, 3])
def test_what_spins_is_given_up_and_what_grows_for_ever_at_the_timeout(processes: int) -> None:
    def grows(s: float) -> Processes:
        return server(processes, running=True, grown_pages=1000 * s)

    assert waited_s(lambda s: server(processes, running=True)) == pytest.approx(2.0, abs=0.05)
    assert waited_s(grows) == pytest.approx(SECONDS, abs=0.05)
    assert waited_s(grows, ends_s=0.5) == pytest.approx(0.5, abs=0.03)
