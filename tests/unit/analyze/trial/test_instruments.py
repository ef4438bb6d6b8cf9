"""The instruments of a trial: acknowledged writes, the link, a browser's visits, and class histograms of JVMs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import Figures, experiment, record_of, spec, write_trial
from powerband.analyze.trial.instruments import (
    TYPES_KEPT,
    acknowledged_metrics,
    acknowledged_problems,
    heap_growth,
    link_metrics,
    link_problems,
    parse_histogram,
    snapshot_problems,
    type_name,
    visitor_metrics,
    visitor_problems,
)
from powerband.analyze.trial.measure import measure
from powerband.model.results import TypeGrowth
from powerband.store import TrialDir, snapshot_file
from powerband.trials.instruments.acknowledged_writes import Round, count_in

MS = 1_000_000
# The first and last lines that JVMs of three versions printed.
JDK_8 = """
 num     #instances         #bytes  class name
----------------------------------------------
   1:          5012         467144  [C
   2:           443         231888  [B
   3:            20            320  [[I
Total          5475         699352
"""
JDK_17 = """ num     #instances         #bytes  class name (module)
-------------------------------------------------------
   1:         11316         590544  [B (java.base@17.0.15)
   2:           911         101784  java.lang.Class (java.base@17.0.15)
   3:          1270          88080  [Ljava.lang.Object; (java.base@17.0.15)
   4:             7            112  ThreadsServer$$Lambda$14/0x0000000800c8e000
   5:             3             48  ThreadsServer$$Lambda$14/0x0000000800c91218
Total         13507         780568
"""
JDK_25 = """ num     #instances         #bytes  class name (module)
-------------------------------------------------------
   1:         11400         600000  [B (java.base@25)
   2:           920         102000  java.lang.Class (java.base@25)
   3:          1270          88000  [Ljava.lang.Object; (java.base@25)
   4:             9            144  ThreadsServer$$Lambda/0x00007f2d3c003200
   5:           500          12000  Ticket
   6:           733         922224  [Ljdk.internal.vm.FillerElement; (java.base@25.0.3)
Total         14832        1724368
"""


def test_rows_of_every_version_are_read_and_nothing_else() -> None:
    instances, sizes = parse_histogram(JDK_8)
    assert dict(instances) == {"char[]": 5012, "byte[]": 443, "int[][]": 20}
    assert sizes.total() == 699352
    instances, sizes = parse_histogram(JDK_17)
    assert instances["ThreadsServer$$Lambda$14"] == 10 and sizes["ThreadsServer$$Lambda$14"] == 160
    assert sizes["java.lang.Object[]"] == 88080
    assert sizes.total() == 780568 and instances.total() == 13507
    assert parse_histogram(JDK_25)[1].total() == 802144
    assert parse_histogram("nothing of the kind\n12: 3\n")[0] == {}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("[B", "byte[]"),
        ("[[Z", "boolean[][]"),
        ("[[Ljava.lang.String;", "java.lang.String[][]"),
        ("java.util.HashMap$Node", "java.util.HashMap$Node"),
        ("Long", "Long"),
        ("L", "L"),
        ("A$$Lambda+0x00007f2d3c003200", "A$$Lambda"),
        ("[LA$$Lambda$1/0x0000000800c8e000;", "A$$Lambda$1[]"),
    ],
)
def test_types_are_called_as_in_a_program(name: str, said: str) -> None:
    assert type_name(name) == said


def test_what_grew_comes_first_by_bytes_and_what_shrank_not_at_all() -> None:
    grown = heap_growth({("before", 7): JDK_17, ("after", 7): JDK_25})
    assert grown is not None
    assert (grown.jvms, grown.bytes_before, grown.bytes_after, grown.types_grown) == (1, 780568, 802144, 4)
    ticket, text = TypeGrowth("Ticket", 0, 500, 0, 12000), TypeGrowth("byte[]", 11316, 11400, 590544, 600000)
    assert grown.types[:2] == (ticket, text)
    assert "java.lang.Object[]" not in {each.type for each in grown.types}


def test_several_jvms_are_added_up_and_one_that_told_once_is_left_out() -> None:
    first, second = {("before", 1): JDK_8, ("after", 1): JDK_8}, {("before", 2): JDK_17, ("after", 2): JDK_25}
    grown = heap_growth({**first, **second, ("after", 3): JDK_8})
    assert grown is not None
    assert (grown.jvms, grown.bytes_before) == (2, 699352 + 780568)
    (bytes_,) = [each for each in grown.types if each.type == "byte[]"]
    assert (bytes_.instances_before, bytes_.instances_after) == (443 + 11316, 443 + 11400)
    assert heap_growth({}) is None
    assert heap_growth({("before", 1): JDK_8, ("after", 2): JDK_8}) is None
    assert heap_growth({("before", 1): JDK_8, ("after", 1): "cut off"}) is None


def test_only_the_types_that_grew_most_are_kept() -> None:
    before, after = ("".join(f" {n}: {n} {16 * n * more} T{n}\n" for n in range(1, 50)) for more in (1, 2))
    grown = heap_growth({("before", 1): before, ("after", 1): after})
    assert grown is not None
    assert grown.types_grown == 49
    assert [each.type for each in grown.types] == [f"T{n}" for n in range(49, 49 - TYPES_KEPT, -1)]


def taken(when: str, pid: int | None, failed: str = "") -> dict[str, object]:
    return {"when": when, "pid": pid, "at_ns": 1, "took_ns": 1, "failed": failed}


def test_what_is_missing_is_said_and_is_not_fatal() -> None:
    assert list(snapshot_problems([])) == []
    assert list(snapshot_problems([taken("before", 1), taken("after", 1)])) == []
    (problem,) = snapshot_problems([taken("before", 1, "the JVM refuses"), taken("after", 1, "the JVM refuses")])
    assert (problem.code, problem.fatal) == ("no_snapshot", False)
    assert problem.message == (
        "no memory snapshot of process 1 before the measured window: the JVM refuses (and 1 more)"
    )
    (problem,) = snapshot_problems([taken("before", None, "no JVM was found")])
    assert problem.message == "no memory snapshot before the measured window: no JVM was found"
    (problem,) = snapshot_problems([taken("before", 1), taken("after", 1), taken("after", 2)])
    assert "process 2" in problem.message and not problem.fatal


def test_a_trial_tells_what_grew(tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    record = replace(record_of(spec(), figures), snapshots=(taken("before", 7), taken("after", 7)))
    write_trial(directory, record, figures)
    directory.snapshots.mkdir()
    for when, text in (("before", JDK_17), ("after", JDK_25)):
        snapshot_file(directory.snapshots, when, 7).write_text(text)
    read = directory.read_record()
    assert [dict(row) for row in read.snapshots] == [taken("before", 7), taken("after", 7)]
    result = measure(directory, read, experiment())
    assert result.valid and result.problems == ()
    assert result.metrics["jvm_live_bytes"] == 802144
    assert result.metrics["jvm_live_growth_bytes"] == 802144 - 780568
    assert result.heap_growth is not None and result.heap_growth.types[0].type == "Ticket"
    old = json.loads(directory.record.read_text())
    del old["snapshots"]  # as in records from before there were snapshots
    directory.record.write_text(json.dumps(old))
    assert directory.read_record().snapshots == ()


def rounds(*visible: int | None, seen: int = 60) -> list[dict[str, Any]]:
    return [asdict(Round(5_000, seen, delay, 1_000)) for delay in visible]


def test_missing_ones_are_of_all_writes_that_were_read() -> None:
    found = acknowledged_metrics([*rounds(10, 30, 20), *rounds(None, seen=20)], 100)
    assert found["missing_at_acknowledgement_mean"] == (3 * 40 + 80) / 4
    assert found["missing_at_acknowledgement_max"] == 80 and found["acknowledge_ns_p50"] == 5_000


@pytest.mark.parametrize(
    ("never", "failed", "expected"),
    [
        (0, 0, {"p50": 30, "p90": 60, "max": 60}),
        (0, 9, {"p50": 30, "p90": 60, "max": 60}),
        (1, 0, {"p50": 40}),
        (4, 0, {"p50": 50}),
        (7, 0, {}),
    ],
)
def test_writes_that_were_never_seen_rank_last_among_the_delays(
    never: int, failed: int, expected: dict[str, float]
) -> None:
    broken = [asdict(Round(failed="status 500"))] * failed
    found = acknowledged_metrics([*rounds(*[None] * never), *rounds(10, 60, 20, 50, 30, 40), *broken], 100)
    stem = "visible_delay_ns_"
    assert {name.removeprefix(stem): each for name, each in found.items() if name.startswith(stem)} == expected


def test_more_than_expected_is_not_less_than_none_missing() -> None:
    assert acknowledged_metrics(rounds(1, seen=500), 100)["missing_at_acknowledgement_max"] == 0


def test_nothing_read_is_no_metric_and_is_said() -> None:
    failed = [asdict(Round(failed="POST /: status 500"))] * 2
    assert acknowledged_metrics(failed, 10) == {}
    (problem,) = acknowledged_problems(failed, 10)
    assert problem.code == "acknowledged_failed" and not problem.fatal
    assert problem.message == "2 of 2 writes were not acknowledged, or could not be read: POST /: status 500"


def test_what_was_never_seen_is_said() -> None:
    (problem,) = acknowledged_problems(rounds(5, None), 10)
    assert (
        problem.code == "acknowledged_never_seen" and "after 1 of 2 writes a read never saw all 10" in problem.message
    )


@pytest.mark.parametrize(
    ("body", "count", "found"),
    [
        (b"[1, 2, 3]", "json", 3),
        (b"17", "json", 17),
        (b'{"a": 1}', "json", 1),
        (b"true", "json", 0),
        (b"not json", "json", 0),
        (b"\xff\xfe", "json", 0),
        (b"a\n\nb\n", "lines", 2),
        (b"<li>x</li><li>y</li>", "<li>", 2),
    ],
)
def test_how_much_an_answer_holds(body: bytes, count: str, found: int) -> None:
    assert count_in(body, count) == found


def link(late_ns: int | None = 50_000, missed: int = 0, delay_ns: int = 5_000_000) -> dict[str, Any]:
    way = {"packets": 10, "bytes": 1000, "dropped": 2, "missed": missed}
    return {"delay_ns": delay_ns, "a_to_b": way, "b_to_a": {**way, "dropped": 1}, "late_ns_p99": late_ns}


def test_both_ways_count() -> None:
    assert link_metrics(link(missed=2)) == {"link_dropped": 3.0, "link_missed": 4.0, "link_late_ns_p99": 50_000.0}


def test_what_is_not_known_is_absent() -> None:
    assert "link_late_ns_p99" not in link_metrics(link(late_ns=None))
    assert link_metrics({}) == {} and link_metrics({"delay_ns": 5}) == {}
    assert not list(link_problems({})) and not list(link_problems({"delay_ns": 5}))


@pytest.mark.parametrize(
    ("told", "codes"),
    [
        (link(), []),
        (link(late_ns=1_000_000), []),
        (link(late_ns=1_000_001), ["link_late"]),
        (link(late_ns=200_001, delay_ns=0), ["link_late"]),
        (link(late_ns=200_000, delay_ns=0), []),
        (link(missed=1), ["link_missed"]),
        (link(late_ns=10**9, missed=1), ["link_late", "link_missed"]),
    ],
)
def test_lateness_is_told_by_the_delay_and_any_loss_but_that_of_a_full_queue(
    told: dict[str, Any], codes: list[str]
) -> None:
    found = list(link_problems(told))
    assert [problem.code for problem in found] == codes
    assert not any(problem.fatal for problem in found)


def visit(at_ms: int, took_ms: int | None, error: str = "") -> dict[str, Any]:
    return {"at_ns": at_ms * MS, "took_ns": None if took_ms is None else took_ms * MS, "error": error}


def test_visits_of_the_window_count() -> None:
    early, late = visit(5, 900), visit(20, None, "closed")
    visits = [early, visit(10, 3), visit(11, 1), visit(12, None, "no answer"), visit(13, 2), late]
    found = visitor_metrics(visits, 10 * MS, 20 * MS)
    assert found == {
        "visits": 4.0,
        "visits_failed": 1.0,
        "visit_time_ns_p50": 2.0 * MS,
        "visit_time_ns_p90": 3.0 * MS,
        "visit_time_ns_max": 3.0 * MS,
    }
    (problem,) = visitor_problems(visits, 10 * MS, 20 * MS, "")
    assert problem.message == "1 of the browser's 4 visits failed: no answer" and not problem.fatal
    (problem,) = visitor_problems([visit(12, None)], 10 * MS, 20 * MS, "")
    assert problem.message == "1 of the browser's 1 visits failed: no reason given"


def test_nobody_came() -> None:
    assert visitor_metrics([visit(5, 1)], 10 * MS, 20 * MS) == {}
    assert [problem.code for problem in visitor_problems([], 0, 20 * MS, "there is no Chromium")] == ["no_visitor"]
    (problem,) = visitor_problems([visit(5, 1)], 10 * MS, 20 * MS, "")
    assert problem.code == "no_visit" and "none within the measured window" in problem.message
    assert list(visitor_problems([visit(5, 1)], 0, 20 * MS, "")) == []
