from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from powerband.base.errors import ExperimentError
from powerband.model.host_use import HostUse, Pinning
from powerband.processes.cpus import CpuSplit, cpu_split, format_cpu_list, parse_cpu_list

AUTO = HostUse()


def singles(count: int) -> list[list[int]]:
    return [[cpu] for cpu in range(count)]


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        (singles(1), CpuSplit()),
        (singles(2), CpuSplit((0,), (1,), (1,))),
        (singles(3), CpuSplit((0, 1), (2,), (2,))),
        (singles(4), CpuSplit((0, 1, 2), (3,), (3,))),
        (singles(8), CpuSplit((0, 1, 2, 3, 4), (5, 6), (7,))),
        ([[0, 4], [1, 5], [2, 6], [3, 7]], CpuSplit((0, 1, 2, 4, 5, 6), (3, 7), (3, 7))),
        ([[0, 1]], CpuSplit((0,), (1,), (1,))),
        ([[2], [5]], CpuSplit((2,), (5,), (5,))),
    ],
)
def test_cpus_are_dealt_by_core(cores: list[list[int]], expected: CpuSplit) -> None:
    assert cpu_split(cores, AUTO) == expected


def test_more_engine_threads_get_more_cores_up_to_half() -> None:
    assert len(cpu_split(singles(8), AUTO, engine_threads=3).engine) == 3
    assert len(cpu_split(singles(8), AUTO, engine_threads=9).engine) == 4


@given(st.integers(4, 64), st.integers(1, 64), st.booleans())
def test_no_core_is_shared_between_subject_and_engine(count: int, threads: int, smt: bool) -> None:
    cores = [[core, core + count] if smt else [core] for core in range(count)]
    split = cpu_split(cores, AUTO, threads)
    driving = set(split.engine) | set(split.probe)
    assert split.subject
    assert split.engine
    assert not set(split.subject) & driving
    for core in cores:
        assert set(core) <= set(split.subject) or set(core) <= driving


def test_pinning_can_be_turned_off() -> None:
    assert cpu_split(singles(8), HostUse(pinning="off")) == CpuSplit()


def test_pinning_as_asked() -> None:
    use = HostUse(pinning=Pinning(subject="0-2", engine="3"))
    assert cpu_split(singles(4), use) == CpuSplit((0, 1, 2), (3,), (3,))


@pytest.mark.parametrize(
    ("subject", "told"),
    [
        ("0-9", "CPU 4 is not there"),
        ("1,0-4000000000000000000", "CPU 4 is not there"),
        ("first", "no list of CPUs"),
        ("3-2", "no list of CPUs"),
        ("0,3-2", "no list of CPUs"),
        (" ,", "no CPU is named"),
    ],
)
def test_cpus_that_are_not_there_are_named(subject: str, told: str) -> None:
    with pytest.raises(ExperimentError, match=told) as caught:
        cpu_split(singles(4), HostUse(pinning=Pinning(subject=subject, engine="3")))
    assert caught.value.key == "host.pinning.subject"


@pytest.mark.parametrize(
    ("count", "asked", "expected"),
    [
        (2, 1, CpuSplit((0,), (1,), (1,))),
        (2, 2, CpuSplit()),
        (2, "all", CpuSplit()),
        (4, 3, CpuSplit((0, 1, 2), (3,), (3,))),
        (4, "1,3", CpuSplit((1, 3), (0, 2), (0, 2))),
        (4, "0-3", CpuSplit()),
        (8, 2, CpuSplit((0, 1), (2, 3, 4, 5, 6, 7), (2, 3, 4, 5, 6, 7))),
        (8, 8, CpuSplit()),
    ],
)
def test_the_server_gets_the_cpus_asked_for_and_the_load_the_rest(
    count: int, asked: int | str, expected: CpuSplit
) -> None:
    assert cpu_split(singles(count), HostUse(cpus=asked)) == expected


def test_a_server_gets_whole_cores_first_and_the_load_no_sibling_of_them_if_it_can() -> None:
    cores = [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert cpu_split(cores, HostUse(cpus=3)) == CpuSplit((0, 1, 4), (2, 3, 6, 7), (2, 3, 6, 7))
    assert cpu_split([[0, 1]], HostUse(cpus=1)) == CpuSplit((0,), (1,), (1,))


@pytest.mark.parametrize(
    ("asked", "told"), [(5, "there are 4 CPUs, not 5"), ("0-4", "CPU 4 is not there"), ("3-2", "no list")]
)
def test_more_cpus_than_there_are_are_refused(asked: int | str, told: str) -> None:
    with pytest.raises(ExperimentError, match=told) as caught:
        cpu_split(singles(4), HostUse(cpus=asked))
    assert caught.value.key == "host.cpus"


@pytest.mark.parametrize("text", ["some", "0-", "2", "", 0, -1, True])
def test_what_is_no_number_and_no_list_of_cpus_is_refused(text: int | str) -> None:
    with pytest.raises(ValueError, match="write auto, all, a number of CPUs"):
        HostUse(cpus=text)


def test_cpus_and_pinning_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="keep one of them"):
        HostUse(cpus=2, pinning="off")


@given(st.sets(st.integers(0, 300)))
def test_cpu_lists_read_back_as_written(cpus: set[int]) -> None:
    assert set(parse_cpu_list(format_cpu_list(cpus))) == cpus


@pytest.mark.parametrize(
    ("count", "quota", "own"), [(2, 0.5, 1), (2, 1.0, 1), (2, 1.5, 0), (2, 8.0, 0), (4, 3.0, 3), (4, 3.5, 0)]
)
def test_a_quota_of_more_than_a_set_of_its_own_lets_the_server_use_all(count: int, quota: float, own: int) -> None:
    assert len(cpu_split(singles(count), HostUse(cpu_quota=quota)).subject) == own
