from __future__ import annotations

from collections.abc import Callable

import pytest

from powerband.processes.workers_up import Processes, await_workers

SECONDS = 30.0


def waited_s(state: Callable[[float], Processes], ends_s: float = SECONDS, cores: float = 1.0) -> float:
    """How long the wait lasts on a server that is in `state` after so many seconds, and ends after `ends_s`."""
    now_s = 0.0

    def pause(seconds: float) -> bool:
        nonlocal now_s
        now_s += seconds
        return now_s >= ends_s

    await_workers(lambda: state(now_s), pause, SECONDS, cores, lambda: now_s)
    return now_s


def server(processes: int, busy_s: float = 0.0, grown_pages: float = 0.0) -> Processes:
    """A server that has used a CPU for so long."""
    return Processes(frozenset(range(processes)), int(100 * busy_s), int(grown_pages))


def test_a_server_of_one_process_is_not_waited_for_however_busy() -> None:
    assert waited_s(lambda s: server(1, busy_s=s, grown_pages=1000 * s)) < 0.06


def test_a_server_at_rest_is_waited_for_a_tenth_of_a_second() -> None:
    assert waited_s(lambda s: server(3, busy_s=0.1 * s)) == pytest.approx(0.12, abs=0.021)


def test_workers_that_are_forked_late_and_load_for_a_while_are_waited_for() -> None:
    """Three workers come 0.1 s apart, then all load for 4 s in turns."""
    assert waited_s(lambda s: server(min(4, 1 + int((s + 0.08) / 0.1)))) == pytest.approx(0.22 + 0.12, abs=0.041)
    assert waited_s(lambda s: server(4, min(s, 4), 500 * min(s, 4))) == pytest.approx(4.12, abs=0.05)


def test_with_a_small_quota_less_is_busy() -> None:
    assert waited_s(lambda s: server(4, 0.2 * min(s, 4), 500 * min(s, 4)), cores=0.2) == pytest.approx(4.12, abs=0.05)
    assert waited_s(lambda s: server(1 + (s > 0.08)), cores=0.2) == pytest.approx(0.09 + 0.12, abs=0.03)


def test_what_spins_is_given_up_and_what_grows_for_ever_at_the_timeout() -> None:
    assert waited_s(lambda s: server(2, busy_s=s)) == pytest.approx(2.0, abs=0.05)
    assert waited_s(lambda s: server(2, busy_s=s, grown_pages=1000 * s)) == pytest.approx(SECONDS, abs=0.05)
    assert waited_s(lambda s: server(2, busy_s=s, grown_pages=1000 * s), ends_s=0.5) == pytest.approx(0.5, abs=0.03)
