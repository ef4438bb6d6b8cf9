"""The probe and the link without certain capabilities work as the table of docs/install.md says, row by row."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from fakes.needs import need_link, need_root, without
from powerband.processes.cgroups import _hierarchy
from powerband.wire.message import encode
from powerband.wire.specs import Launch, ProbeSpec

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("no_process_left")]

PAGE = (Path(__file__).parents[2] / "docs" / "install.md").read_text()
FOUND = re.findall(r"^\| (none|[`\w, ]+) \| (yes|no) \| (yes|no) \| (yes|no) \|", PAGE, re.M)
# By the dropped capabilities: whether switches are counted exactly, a link is made, a limit is set.
ROWS = {dropped: tuple(each == "yes" for each in kept) for dropped, *kept in FOUND}


def test_the_table_is_read() -> None:
    assert len(ROWS) >= 5 and ROWS["none"] == (True, True, True)


@pytest.mark.parametrize("dropped", ROWS)
def test_what_is_lost_without(dropped: str, engine: Path, tmp_path: Path) -> None:
    exact, link, limits = ROWS[dropped]
    need_root()
    need_link()
    if shutil.which("setpriv") is None:
        without("no setpriv here: install util-linux")
    names = ",".join(f"-{name.lower()}" for name in re.findall(r"`(\w+)`", dropped))
    as_root = ["setpriv", f"--bounding-set={names}", f"--inh-caps={names}"] if names else []
    anybody = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) < 2
    assert counts_exactly(as_root, engine, tmp_path) == (exact or anybody)
    linked = subprocess.run(
        [*as_root, engine, "link"], input=b'{"protocol": 1, "delay_ns": 0}\n', capture_output=True, check=False
    )
    assert (b'"up"' in linked.stdout) == link, linked.stdout
    program = (
        "from powerband.model.host_use import HostUse; from powerband.processes.cgroups import limited\n"
        "with limited(HostUse(cpu_quota=1.0)): pass"
    )
    made = subprocess.run([*as_root, sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (made.returncode == 0) == (limits or owner_may_write()), made.stderr


def owner_may_write() -> bool:
    """True if root can make a cgroup without a capability, because the folder's owner may write to it, as on most
    machines."""
    hierarchy = _hierarchy("cpu")
    return hierarchy is not None and bool(hierarchy.folders[0].stat().st_mode & stat.S_IWUSR)


def counts_exactly(as_root: list[str], engine: Path, folder: Path) -> bool:
    launch = Launch(name="subject", argv=("sleep", "60"), log_file=str(folder / "log"))
    with subprocess.Popen([*as_root, engine, "probe"], stdin=PIPE, stdout=PIPE) as probe:
        assert probe.stdin is not None and probe.stdout is not None
        probe.stdin.write(encode(ProbeSpec(launch=launch, interval_ns=50_000_000)))
        probe.stdin.flush()
        sample = next(line for line in map(json.loads, probe.stdout) if line["type"] == "sample")
        probe.stdin.close()
    (tree,) = (tree for tree in sample["trees"] if tree["name"] == "subject")
    return tree["context_switches"] is not None
