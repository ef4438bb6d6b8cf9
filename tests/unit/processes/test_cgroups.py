"""Quotas and new cgroups on planted trees; real ones are in tests/e2e/test_limits.py."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from powerband.base.errors import MeasurementError
from powerband.base.procfs import process_stat
from powerband.model.host_use import HostUse
from powerband.processes import cgroups
from powerband.processes.cgroups import limited, limits_of, quota_of, remove_abandoned

LIMITED = HostUse(cpu_quota=1.5, memory_limit_bytes=64 << 20)


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_narrowest_quota_of_a_process_counts(tmp_path: Path) -> None:
    v2 = {
        "proc/7/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        "sys/fs/cgroup/a/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
    }
    assert quota_of(7, plant(tmp_path / "v2", v2)) == 0.5
    v1 = {
        "proc/7/cgroup": "3:cpu,cpuacct:/a\n0::/\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "30000\n",
        "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "20000\n",
        "sys/fs/cgroup/unified/cgroup.controllers": "\n",
    }
    assert quota_of(7, plant(tmp_path / "v1", v1)) == 1.5
    assert quota_of(8, tmp_path / "v1") is None, "it has gone"


def test_in_a_container_the_quota_is_that_of_the_mounts_root(tmp_path: Path) -> None:
    """The process has the path of a cgroup outside of the container, or none."""
    inside = {"proc/self/cgroup": "0::/docker/0123\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}
    assert quota_of(root=plant(tmp_path, inside)) == 2
    (tmp_path / "proc/self/cgroup").unlink()
    assert quota_of(root=tmp_path) == 2


def test_a_cgroup_of_version_2_is_made_where_controllers_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cgroup with processes can have no children with controllers; the new one is made below the nearest ancestor
    that can."""
    monkeypatch.setattr(cgroups, "REMOVED_WITHIN_S", 0.0)  # a planted cgroup contains files, so it cannot be removed
    files = {
        "proc/self/cgroup": "0::/user/app/run.scope\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n",
        "sys/fs/cgroup/cgroup.subtree_control": "cpu memory pids\n",
        "sys/fs/cgroup/user/app/cgroup.subtree_control": "cpu memory\n",
        "sys/fs/cgroup/user/app/cgroup.procs": "",
        "sys/fs/cgroup/user/app/run.scope/cgroup.subtree_control": "",
        "sys/fs/cgroup/user/app/run.scope/cgroup.procs": "",
    }
    with limited(LIMITED, plant(tmp_path, files)) as limits:
        (group,) = limits.folders
        assert group.parent == tmp_path / "sys/fs/cgroup/user/app"
        assert (group / "cpu.max").read_text() == "150000 100000"
        assert (group / "memory.max").read_text() == str(64 << 20)
        assert limits.memory_kills() is None and not limits.kill_words(), "nothing tells of it"
        (group / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
        assert limits.memory_kills() == 2
        assert "killed 2 of its processes, which wanted more than its memory limit of 64.0 MiB" in limits.kill_words()


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"proc/self/cgroup": "0::/\n"}, "no cpu in /sys/fs/cgroup"),
        (
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.controllers": "memory pids\n"},
            "no cpu in /sys/fs/cgroup",
        ),
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
                "sys/fs/cgroup/cgroup.subtree_control": "cpu memory\n",
            },
            "no processes may be moved below it",
        ),
    ],
    ids=["no cgroups", "no controller", "not ours"],
)
def test_where_no_cgroup_can_be_made_a_sentence_says_why_and_what_to_do(
    files: dict[str, str], why: str, tmp_path: Path
) -> None:
    with pytest.raises(MeasurementError, match=why) as refused, limited(LIMITED, plant(tmp_path, files)):
        pass
    assert "systemd-run --user --scope" in str(refused.value) and "host.cpu_quota" in str(refused.value)


def test_without_limits_nothing_is_made(tmp_path: Path) -> None:
    with limited(HostUse(), tmp_path) as limits:
        assert not limits.folders and limits.memory_kills() is None


V2_KILLS = "max 9\noom 3\noom_kill {}\noom_group_kill 0\n"
V1_KILLS = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"


@pytest.mark.parametrize(
    ("files", "counter", "text"),
    [
        pytest.param(
            {
                "proc/7/cgroup": "0::/system.slice/docker-0123.scope/inner\n",
                "proc/self/cgroup": "0::/user.slice/shell\n",
                "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
                "sys/fs/cgroup/system.slice/memory.max": "max\n",
                "sys/fs/cgroup/system.slice/docker-0123.scope/memory.max": "536870912\n",
                "sys/fs/cgroup/system.slice/docker-0123.scope/inner/memory.max": "max\n",
                "sys/fs/cgroup/user.slice/shell/memory.max": "max\n",
            },
            "sys/fs/cgroup/system.slice/docker-0123.scope/memory.events",
            V2_KILLS,
            id="version 2",
        ),
        pytest.param(
            {
                "proc/7/cgroup": "5:memory:/docker/0123\n0::/\n",
                "proc/self/cgroup": "5:memory:/user\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/user/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes": "536870912\n",
            },
            "sys/fs/cgroup/memory/docker/0123/memory.oom_control",
            V1_KILLS,
            id="version 1",
        ),
        pytest.param(
            {
                "proc/7/cgroup": "0::/app.slice/web.service\n",
                "proc/self/cgroup": "0::/user.slice/shell\n",
                "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
                "sys/fs/cgroup/app.slice/memory.max": "536870912\n",
                "sys/fs/cgroup/app.slice/memory.events": V2_KILLS.format(9),
                "sys/fs/cgroup/app.slice/web.service/memory.max": "max\n",
            },
            "sys/fs/cgroup/app.slice/web.service/memory.events",
            V2_KILLS,
            id="version 2, the limit of several services",
        ),
        pytest.param(
            {
                "proc/7/cgroup": "5:memory:/app/web\n0::/\n",
                "proc/self/cgroup": "5:memory:/user\n0::/\n",
                "sys/fs/cgroup/memory/app/memory.limit_in_bytes": "536870912\n",
                "sys/fs/cgroup/memory/app/memory.oom_control": V1_KILLS.format(9),
                "sys/fs/cgroup/memory/app/web/memory.limit_in_bytes": "9223372036854771712\n",
            },
            "sys/fs/cgroup/memory/app/web/memory.oom_control",
            V1_KILLS,
            id="version 1, the limit of several services",
        ),
    ],
)
def test_kills_at_a_limit_that_others_set_are_counted_from_the_look_on(
    files: dict[str, str], counter: str, text: str, tmp_path: Path
) -> None:
    plant(tmp_path, files | {counter: text.format(3)})
    limits = limits_of([7], tmp_path)
    assert limits.memory_kills() == 0 and not limits.folders
    (tmp_path / counter).write_text(text.format(5))
    assert limits.memory_kills() == 2
    (tmp_path / counter).write_text(text.format(0))
    assert limits.memory_kills() == 0, "systemd has started the service again"
    (tmp_path / counter).unlink()
    assert limits.memory_kills() is None, "the container has gone"


@pytest.mark.parametrize(
    ("pids", "server", "limit"),
    [
        pytest.param([], "/box/server", "4096\n", id="the server's processes are not known"),
        pytest.param([8], "/box/server", "4096\n", id="it has gone"),
        pytest.param([7], "/box/server", "max\n", id="no limit"),
        pytest.param([7], "/box", "4096\n", id="powerband's own"),
        pytest.param([7], "/box/server", "", id="one around both"),
    ],
)
def test_a_limit_that_holds_for_powerband_too_counts_nothing(
    pids: list[int], server: str, limit: str, tmp_path: Path
) -> None:
    files = {
        "proc/7/cgroup": f"0::{server}\n",
        "proc/self/cgroup": "0::/box\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        "sys/fs/cgroup/box/server/memory.max": limit,
        "sys/fs/cgroup/box/server/memory.events": V2_KILLS.format(3),
        "sys/fs/cgroup/box/memory.max": "8192\n",
        "sys/fs/cgroup/box/memory.events": V2_KILLS.format(3),
    }
    assert limits_of(pids, plant(tmp_path, files)) == cgroups.NO_LIMITS


@pytest.mark.parametrize(
    ("places", "counted"),
    [
        pytest.param({7: "/", 8: "/box", 9: "/box"}, ["box"], id="the server beneath its launcher"),
        pytest.param({7: "/box/a", 8: "/box/b"}, ["box/a", "box/b"], id="each worker in its own"),
        pytest.param({7: "/box", 8: "/box/a"}, ["box"], id="one that is counted above, too"),
    ],
)
def test_kills_count_in_the_cgroups_of_all_processes_of_the_server(
    places: dict[int, str], counted: list[str], tmp_path: Path
) -> None:
    groups = {
        f"sys/fs/cgroup/{name}/{file}": text
        for name in ("box", "box/a", "box/b")
        for file, text in (("memory.max", "4096\n"), ("memory.events", V2_KILLS.format(3)))
    }
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.controllers": "memory\n", **groups}
    plant(tmp_path, files | {f"proc/{pid}/cgroup": f"0::{place}\n" for pid, place in places.items()})
    limits = limits_of(places, tmp_path)
    assert limits.oom_files == tuple(tmp_path / f"sys/fs/cgroup/{name}/memory.events" for name in counted)
    for file in limits.oom_files:
        file.write_text(V2_KILLS.format(4))
    assert limits.memory_kills() == len(counted)


def test_what_a_killed_powerband_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    own = process_stat(os.getpid())
    namespace = cgroups._namespace()
    names = {
        "dead": f"powerband-{namespace}-{2**22 + 1}-5-0",
        "pid used again": f"powerband-{namespace}-{own.pid}-{own.started - 1}-0",
        "lives": f"powerband-{namespace}-{own.pid}-{own.started}-0",
        "of another pid namespace": f"powerband-1{namespace}-{2**22 + 1}-5-0",
        "a stranger's": "powerband",
    }
    for name in names.values():
        (tmp_path / name).mkdir()
    remove_abandoned([tmp_path])
    left = {why for why, name in names.items() if (tmp_path / name).exists()}
    assert left == {"lives", "of another pid namespace", "a stranger's"}


def test_a_cgroup_is_removed_with_those_that_the_server_made_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "REMOVED_WITHIN_S", 0.5)
    (tmp_path / "group/a/b").mkdir(parents=True)
    (tmp_path / "group/c").mkdir()
    cgroups._remove(tmp_path / "group")
    assert not (tmp_path / "group").exists()


@pytest.mark.parametrize("made_since", [False, True])
def test_controllers_stay_enabled_for_a_cgroup_that_was_made_since(tmp_path: Path, *, made_since: bool) -> None:
    parent = tmp_path / "parent"
    files = {"cgroup.subtree_control": "", "cgroup.procs": "", "older.scope/cgroup.procs": ""}
    hierarchy = cgroups._Hierarchy(True, (plant(parent, files),))
    with cgroups._made(hierarchy, ["cpu"]):
        assert (parent / "cgroup.subtree_control").read_text() == "+cpu"
        if made_since:
            (parent / "powerband-1-2-3-0").mkdir()
    assert (parent / "cgroup.subtree_control").read_text() == ("+cpu" if made_since else "-cpu")


@contextmanager
def locked_by_another(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def test_two_powerbands_do_not_change_a_cgroup_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one could disable the controllers between another's look at them and its new cgroup."""
    monkeypatch.setattr(cgroups, "ALONE_WITHIN_S", 60.0)
    plant(tmp_path, {"cgroup.subtree_control": "", "cgroup.procs": ""})
    made = cgroups._made(cgroups._Hierarchy(True, (tmp_path,)), ["cpu"])
    with ThreadPoolExecutor(1) as other:
        with locked_by_another(tmp_path):
            waits = other.submit(made.__enter__)
            with pytest.raises(TimeoutError):
                waits.result(0.1)
            assert not (tmp_path / "cgroup.subtree_control").read_text()
        group = waits.result(60)
        assert group.is_dir()
        with locked_by_another(tmp_path):
            waits_again = other.submit(made.__exit__, None, None, None)
            with pytest.raises(TimeoutError):
                waits_again.result(0.1)
            assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
        waits_again.result(60)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "-cpu" and not group.exists()


def test_a_lock_that_another_user_holds_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "ALONE_WITHIN_S", 0.0)
    plant(tmp_path, {"cgroup.subtree_control": "", "cgroup.procs": ""})
    with locked_by_another(tmp_path), cgroups._made(cgroups._Hierarchy(True, (tmp_path,)), ["cpu"]) as group:
        assert group.is_dir()
