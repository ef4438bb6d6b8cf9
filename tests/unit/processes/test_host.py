from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from powerband.processes.host import commit_here, host_facts, usable_cores


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_the_facts_of_this_machine_are_plain_json_and_name_its_cpus() -> None:
    facts = host_facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cpu"]["allowed"] == sorted(cpu for core in facts["cpu"]["cores"] for cpu in core)
    assert facts["memory"]["total_bytes"] > 0
    assert facts["limits"]["descriptors_soft"] <= facts["limits"]["descriptors_hard"]


def test_facts_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "proc/cpuinfo": "processor : 0\nmodel name : Fast CPU\nflags : fpu hypervisor\n",
            "proc/meminfo": "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n",
            "proc/pressure/cpu": "some avg10=0.00",
            "proc/loadavg": "0.10 0.20 0.30 1/100 1234",
            "proc/sys/kernel/perf_event_paranoid": "2\n",
            "proc/self/status": "Name:\tpython3\nCapEff:\t0000004000000000\n",
            "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
            "sys/class/dmi/id/product_name": "KVM\n",
            "sys/fs/cgroup/cpu.max": "150000 100000\n",
            "sys/devices/system/cpu/online": "0-7\n",
            "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "etc/os-release": 'PRETTY_NAME="Some Linux 1"\n',
        },
    )
    facts = host_facts(root=tmp_path)
    assert facts["cpu"]["model"] == "Fast CPU"
    assert facts["cpu"]["online"] == 8
    assert facts["cpu"]["cgroup_cpus_max"] == 1.5
    assert facts["memory"]["total_bytes"] == 2048 * 1024
    assert facts["memory"]["transparent_hugepages"] == "madvise"
    assert facts["virtualisation"] == "KVM"
    assert facts["psi"] is True
    assert facts["perf_event_paranoid"] == 2 and facts["perf_permitted"] is True
    assert facts["network"]["local_ports"] == [32768, 60999]
    assert facts["load_average"] == [0.1, 0.2, 0.3]
    assert facts["clock_source"] == "tsc"
    assert facts["distribution"] == "Some Linux 1"


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "proc/pressure/cpu").mkdir(parents=True)  # some kernels have this file and refuse to be asked
    facts = host_facts(root=tmp_path)
    for value in (
        facts["cpu"]["model"],
        facts["memory"]["total_bytes"],
        facts["clock_source"],
        facts["virtualisation"],
    ):
        assert value is None
    assert facts["psi"] is False


def test_changed_documentation_leaves_a_commit_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    plant(tmp_path, {"src/server.py": "1", "docs/page.html": "1", "src/README.md": "1"})
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "one")):
        subprocess.run(("git", *who, *words), cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path / "src")
    commit = commit_here()
    assert commit is not None and len(commit) == 12
    plant(tmp_path, {"docs/page.html": "2", "src/README.md": "2", "new": "1"})
    assert commit_here() == commit
    plant(tmp_path, {"src/server.py": "2"})
    assert commit_here() == f"{commit}-dirty"


def test_a_commit_is_known_beside_a_changed_file_whose_name_is_no_utf_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9.txt")
    (tmp_path / name).touch()
    told = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for words in (("init",), ("config", "core.quotePath", "false"), ("add", "."), (*told, "commit", "-m", "x")):
        subprocess.run(["git", *words], check=True, capture_output=True)
    (tmp_path / name).write_text("changed")
    assert (commit_here() or "").endswith("-dirty")


def test_cores_are_grouped_by_siblings(tmp_path: Path) -> None:
    first = usable_cores()[0][0]
    plant(tmp_path, {f"sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list": f"{first}\n"})
    assert [first] in usable_cores(tmp_path)
