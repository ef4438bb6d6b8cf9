"""Class histograms as JVMs print them, and what grew between two of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.trials import Figures, experiment, record_of, spec, write_trial
from powerband.analyze.trial.heap_growth import TYPES_KEPT, heap_growth, parse_histogram, snapshot_problems, type_name
from powerband.analyze.trial.measure import measure
from powerband.model.results import TypeGrowth
from powerband.store import TrialDir, snapshot_file

# Beginnings and ends of what JVMs of three versions printed.
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
    del old["snapshots"]  # written before there were any
    directory.record.write_text(json.dumps(old))
    assert directory.read_record().snapshots == ()
