"""Hosts on one machine: network namespaces joined by a bridge, each with an address of its own, and Ray on them.

`python -m fakes.hosts` shows powerband on three of them (`make cluster-demo`). Needs root. Everything that runs in a
namespace made here is ended by pid, and the namespaces are removed."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PORT = 6379
_MADE = itertools.count()  # counts the networks of this process
BYTES_OF_STORE = 100 * 2**20  # for Ray's objects on each host: archives of trials have some 100 kB
# The time until Ray reports a lost node: five seconds instead of half a minute.
HEALTH = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "4",
}
# What Ray looks after ten times a second, once a second: it takes less on each node (docs/cluster.md).
SELDOM = {
    "RAY_raylet_report_resources_period_milliseconds": "1000",
    "RAY_raylet_check_gc_period_milliseconds": "1000",
    "RAY_object_manager_timer_freq_ms": "1000",
    "RAY_kill_idle_workers_interval_ms": "1000",
    "RAY_memory_monitor_refresh_ms": "1000",
    "RAY_local_fs_monitor_interval_ms": "5000",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
}


def why_not() -> str:
    """The reason why no hosts can be made here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [name for name in ("ip", "nsenter") if shutil.which(name) is None]:
        return f"there is no {missing[0]} here (Debian's packages iproute2 and util-linux)"
    name = f"pb{os.getpid()}t"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "no network namespace can be made here"
    subprocess.run(["ip", "netns", "del", name], check=True)
    try:
        import ray  # noqa: F401
    except ModuleNotFoundError:
        return "Ray is not installed here"
    return ""


class Host:
    """A host. `env`: environment variables of its processes, beside those of all hosts; `older_s`: how many seconds
    more than on this machine its monotonic clock shows."""

    def __init__(self, name: str, address: str, folder: Path) -> None:
        self.name, self.address, self.folder = name, address, folder
        self.started: list[subprocess.Popen[bytes]] = []
        self.env = {"TMPDIR": str(folder / "tmp")}
        self.older_s = 0

    def start(self, argv: Sequence[str], env: Mapping[str, str], log: Path | None) -> subprocess.Popen[bytes]:
        """Starts a program on the host. `log` None: its output is shown."""
        clocks = ["unshare", "--fork", "--time", f"--monotonic={self.older_s}", f"--boottime={self.older_s}"]
        argv = ["nsenter", f"--net=/run/netns/{self.name}", *(clocks if self.older_s else ()), *argv]
        env = {**env, **self.env}
        if log is None:
            return subprocess.Popen(argv, env={**os.environ, **env})
        with log.open("ab") as output:
            self.started.append(
                subprocess.Popen(
                    argv,
                    env={**os.environ, **env},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
            return self.started[-1]

    def run(self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.name}", *argv],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def pids(self) -> list[int]:
        """The pids of the processes in this namespace."""
        told = _ip("netns", "pids", self.name)
        return [int(pid) for pid in told.split()]

    def commands(self) -> dict[int, str]:
        """The command lines of these processes, by pid."""
        found = {}
        for pid in self.pids():
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        return found

    def kill(self, *words: str) -> list[int]:
        """Kills the processes whose command contains one of these words, or all without words; returns their pids."""
        gone = [pid for pid, line in self.commands().items() if not words or any(word in line for word in words)]
        for pid in gone:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return gone

    def cut(self) -> None:
        """Takes the link to the other hosts down."""
        _ip("-n", self.name, "link", "set", "eth0", "down")

    def join(self) -> None:
        _ip("-n", self.name, "link", "set", "eth0", "up")
        with suppress(subprocess.CalledProcessError):  # the route was removed with the link
            _ip("-n", self.name, "route", "add", "default", "via", self.address.rpartition(".")[0] + ".254")


class Hosts:
    """The hosts of a cluster. `env`: environment variables of Ray and of powerband on them."""

    def __init__(self, hosts: Sequence[Host], folder: Path) -> None:
        self.hosts, self.folder = list(hosts), folder
        self.env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), **HEALTH, **SELDOM}
        self.env |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
        if "POWERBAND_ENGINE" in os.environ:
            self.env["POWERBAND_ENGINE"] = os.environ["POWERBAND_ENGINE"]
        self.env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2] / "src"), *sys.path[1:]])

    @property
    def address(self) -> str:
        """The address of the cluster."""
        return f"{self.hosts[0].address}:{PORT}"

    def start_ray(self) -> None:
        """Starts Ray on each host, the first of which is the head, and waits until all have joined."""
        head = self.hosts[0]
        self._ray(head, "--head", f"--port={PORT}", "--include-dashboard=false")
        self._wait(head)
        for host in self.hosts[1:]:
            self._ray(host, f"--address={self.address}")
        for host in self.hosts[1:]:
            self._wait(host)

    def start_ray_on(self, host: Host) -> None:
        """Starts Ray again on a host whose processes were killed."""
        self._ray(host, f"--address={self.address}")
        self._wait(host)

    def _ray(self, host: Host, *options: str) -> None:
        argv = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--block",
            "--num-cpus=1",
            "--disable-usage-stats",
            "--include-log-monitor=false",
        ]
        argv += [f"--node-ip-address={host.address}", f"--object-store-memory={BYTES_OF_STORE}"]
        argv += [f"--temp-dir={host.folder}", *options]
        log = self.folder / f"{host.name}.log"
        log.unlink(missing_ok=True)  # an earlier Ray on the host said there that it had started
        host.start(argv, self.env, log)

    def _wait(self, host: Host) -> None:
        log = self.folder / f"{host.name}.log"
        deadline = time.monotonic() + 120
        while "Ray runtime started" not in log.read_text(errors="replace"):
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.2)

    def powerband(self, *arguments: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Runs the command line on the head."""
        argv = [sys.executable, "-m", "powerband", *arguments]
        return self.hosts[0].run(argv, self.env, timeout_s)

    def start_powerband(self, *arguments: str, log: Path | None) -> subprocess.Popen[bytes]:
        return self.hosts[0].start([sys.executable, "-m", "powerband", *arguments], self.env, log)


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """Yields so many hosts; all of them are removed at the end of the block."""
    stem = f"pb{os.getpid()}n{next(_MADE)}"
    net = f"10.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}"
    switch = f"{stem}s"
    folder = Path(tempfile.mkdtemp(prefix="pb", dir="/tmp"))  # short: sockets' paths have 107 bytes
    made = [Host(f"{stem}h{number}", f"{net}.{number + 1}", folder / str(number)) for number in range(count)]
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "addr", "add", f"{net}.254/24", "dev", "br0")
        _ip("-n", switch, "link", "set", "br0", "up")
        for number, host in enumerate(made):
            (host.folder / "tmp").mkdir(parents=True)
            _ip("netns", "add", host.name)
            port = f"port{number}"
            _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            _ip("-n", switch, "link", "set", port, "master", "br0", "up")
            _ip("-n", host.name, "link", "set", "lo", "up")
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
            host.join()
        yield Hosts(made, folder)
    finally:
        names = _ip("netns", "list").split()
        for host in made:
            while host.name in names and host.kill():
                time.sleep(0.05)
            for process in host.started:
                process.wait(10)
        for name in [*(host.name for host in made), switch]:
            if name in names:
                _ip("netns", "del", name)
        shutil.rmtree(folder, ignore_errors=True)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Runs the quickstart on three hosts, with settings for which the CPUs of one machine suffice for three servers."""
    if why := why_not():
        sys.exit(f"skipped: {why}")
    small = ("factors.threads=[2, 4, 8]", "load.users=8", "load.duration=1s", "measure.warmup=300ms", "claims=[]")
    with hosts(3) as made:
        sys.stderr.write(f"three hosts: {', '.join(host.address for host in made.hosts)}; Ray starts on each\n")
        made.start_ray()
        arguments = ["run", "quickstart", "--cluster", made.address]
        options = [each for key in small for each in ("--set", key)]
        code = made.start_powerband(*arguments, *options, log=None).wait()
    sys.exit(code)


if __name__ == "__main__":
    main()
