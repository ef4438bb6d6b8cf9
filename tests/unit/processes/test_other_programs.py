"""The CPU time of other programs by name, between two readings of a planted /proc."""

from __future__ import annotations

import os
from pathlib import Path

from powerband.processes.other_programs import processes, used_by_others

HERTZ = os.sysconf("SC_CLK_TCK")


def plant(root: Path, *rows: tuple[int, int, str, int, int]) -> Path:
    """Plants a /proc. `rows`: pid, parent, name, own ticks, ticks of children that were waited for."""
    for pid, parent, name, own, reaped in rows:
        folder = root / "proc" / str(pid)
        folder.mkdir(parents=True)
        numbers = f"0 0 0 0 0 0 0 0 0 {own} 0 {reaped} 0 20 0 1 0 {pid * 10} 0 0"
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} {numbers}\n")
    (root / "proc" / "self").mkdir()
    return root


def test_others_are_named_by_what_they_used_and_the_bench_with_its_children_is_not(tmp_path: Path) -> None:
    before = processes(plant(tmp_path / "a", (1, 0, "init", 5, 0), (7, 1, "powerband", 10, 0), (8, 7, "probe", 1, 0),
                             (9, 8, "server", 50, 0), (20, 1, "a (b) c", 100, 0), (21, 1, "java", 10, 0)))  # fmt: skip
    after = processes(plant(tmp_path / "b", (1, 0, "init", 5, 0), (7, 1, "powerband", 90, 0), (8, 7, "probe", 2, 0),
                            (9, 8, "server", 850, 0), (20, 1, "a (b) c", 130, 0), (21, 1, "java", 50, 0),
                            (22, 1, "java", 30, 0)))  # fmt: skip
    assert used_by_others(before, after, 7) == [("java", 70 / HERTZ), ("a (b) c", 30 / HERTZ)]
    assert used_by_others(before, after, 7, 20) == [("java", 70 / HERTZ)], "a container is no child of the bench"


def test_children_that_ended_count_for_who_waited_for_them_and_once(tmp_path: Path) -> None:
    """A compiler with 30 ticks at the first reading ends with 50; another one starts and ends in between, with 40."""
    before = processes(plant(tmp_path / "a", (20, 1, "make", 5, 100), (21, 20, "cc1", 30, 0)))
    after = processes(plant(tmp_path / "b", (20, 1, "make", 6, 190)))
    assert used_by_others(before, after, 7) == [("make", 61 / HERTZ)]


def test_what_ended_with_its_parent_counts_for_who_is_left_without_what_it_used_before(tmp_path: Path) -> None:
    """The shell waited for make, which had waited for a compiler; both had used CPU before the first reading."""
    before = processes(plant(tmp_path / "a", (19, 1, "sh", 1, 0), (20, 19, "make", 5, 100), (21, 20, "cc1", 300, 0)))
    after = processes(plant(tmp_path / "b", (19, 1, "sh", 1, 425)))
    assert used_by_others(before, after, 7) == [("sh", 20 / HERTZ)]


def test_a_pid_that_is_another_process_now_counts_whole(tmp_path: Path) -> None:
    before = processes(plant(tmp_path / "a", (20, 1, "old", 500, 0)))
    after = processes(plant(tmp_path / "b", (20, 1, "new", 30, 0)))
    (tmp_path / "c").mkdir()
    stat = tmp_path / "b" / "proc" / "20" / "stat"
    stat.write_text(stat.read_text().replace(" 200 0 0\n", " 999 0 0\n"))
    after = processes(tmp_path / "b")
    assert used_by_others(before, after, 7) == [("new", 30 / HERTZ)]


def test_this_machine_can_be_read() -> None:
    found = processes()
    assert found[os.getpid()].parent == os.getppid() and found[os.getpid()].cpu_ticks >= 0
