"""Threads one by one over the window, and labelled series as tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from powerband.analyze.trial.own_metrics import own_series
from powerband.analyze.trial.threads import LINES_MAX, label_tables, labelled_series, thread_uses
from powerband.model.own_expression import parse_own
from powerband.readings.probe_samples import Counters

S = 10**9


def event(at_s: float, *threads: tuple[int, float, float, int]) -> dict[str, Any]:
    return {
        "at_ns": int(at_s * S),
        "threads": [
            {"tid": tid, "name": f"t-{tid}", "pool": "t", "on_cpu_ns": int(cpu * S), "run_wait_ns": int(wait * S),
             "switches": switches}
            for tid, cpu, wait, switches in threads
        ],
    }  # fmt: skip


def test_shares_are_of_the_window_and_the_busiest_come_first() -> None:
    events = [
        event(0, (1, 9.0, 9.0, 999)),
        event(10, (1, 10.0, 10.0, 1000), (2, 0.0, 0.0, 0)),
        event(12, (1, 10.5, 10.1, 1010), (2, 1.5, 0.5, 40), (3, 1.0, 1.0, 5)),
        event(99, (1, 99.0, 99.0, 9999)),
    ]
    second, first = thread_uses(events, {"2": "vert.x-eventloop-thread-2"}, 5 * S, 20 * S)
    assert (second.name, second.on_cpu, second.run_wait, second.switches_per_s) == (
        "vert.x-eventloop-thread-2", 0.75, 0.25, 20,
    )  # fmt: skip
    assert (first.name, first.on_cpu, first.switches_per_s) == ("t-1", 0.25, 5)
    assert first.run_wait == pytest.approx(0.05)


def page() -> Counters:
    fields = {
        'conns{instance="0",thread="a"}': [4.0, 5.0, 6.0],
        'conns{instance="1",thread="b"}': [1.0, 1.0, 2.0],
        'served_total{thread="a",instance="0"}': [0.0, 100.0, 300.0],
        'cpu_total{thread="a"}': [0.0, 1.0, 2.0],
        "alone": [1.0, 2.0, 3.0],
    }
    return Counters(
        at_ns=np.array([10.0 * S, 11.0 * S, 12.0 * S]), fields={name: np.array(row) for name, row in fields.items()}
    )


def test_series_with_the_same_labels_share_a_table() -> None:
    by_instance, by_thread = label_tables(page(), 10 * S, 12 * S)
    assert by_instance.labels == ("instance", "thread")
    assert by_instance.columns == ("conns", "served_total")
    assert by_instance.rows == ((("0", "a"), (6.0, 150.0)), (("1", "b"), (2.0, None)))
    assert (by_thread.labels, by_thread.rows) == (("thread",), ((("a",), (1.0,)),))


def test_a_counter_that_began_again_has_no_rate() -> None:
    at, fallen = np.array([10.0 * S, 11.0 * S, 12.0 * S]), np.array([900.0, 950.0, 20.0])
    both = Counters(at, {'served_total{worker="1"}': fallen, 'conns{worker="1"}': fallen})
    (table,) = label_tables(both, 10 * S, 12 * S)
    assert table.columns == ("conns",)
    served, conns = labelled_series(["served_total", "conns"], both, 0)
    assert (served.lines, conns.lines) == ((("1", (pytest.approx(50.0), None)),), (("1", (950.0, 20.0)),))
    wanted = {"rate": parse_own("rate(served_total)"), "level": parse_own("mean(conns)")}
    assert own_series(wanted, both) == {"rate": (None, 50.0, None), "level": (900.0, 950.0, 20.0)}


def test_own_metrics_over_time() -> None:
    wanted = {
        "app_conns": parse_own("mean(conns)"),
        "app_served_per_s": parse_own("rate(served_total)"),
        "app_each": parse_own("increase(served_total / cpu_total)"),
        "app_none": parse_own("mean(nothing)"),
    }
    assert own_series(wanted, page()) == {
        "app_conns": (5.0, 6.0, 8.0),
        "app_served_per_s": (None, 100.0, 200.0),
        "app_each": (None, 100.0, 200.0),
        "app_none": (None, None, None),
    }


def test_labelled_series_over_time() -> None:
    served, conns, alone = labelled_series(["served_total", "conns", "nothing", "alone"], page(), 10 * S)
    assert (served.name, served.t_s, served.lines) == ("served_total", (1.0, 2.0), (("a 0", (100.0, 200.0)),))
    assert conns.lines == (("a 0", (5.0, 6.0)), ("b 1", (1.0, 2.0)))
    assert alone.lines == (("", (2.0, 3.0)),)


def test_of_many_lines_the_largest_are_kept() -> None:
    rows = {f'conns{{worker="{at}"}}': np.array([0.0, float(at % 20)]) for at in range(20)}
    (found,) = labelled_series(["conns"], Counters(at_ns=np.array([0.0, 1.0 * S]), fields=rows), 0)
    assert [name for name, _ in found.lines] == [str(at) for at in range(20 - LINES_MAX, 20)]
