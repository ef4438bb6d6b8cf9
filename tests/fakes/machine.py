"""Another machine with systemd and an SSH server: a network namespace, in which systemd is the first process.

It has process ids, mounts, cgroups and units of its own, and shares the file system. Its SSH server takes a throw-away
key."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fakes.deployed import OtherMachine, other_machine
from fakes.needs import without
from powerband.processes.ports import someone_listens

SYSTEMD = Path("/lib/systemd/systemd")
SSHD = Path("/usr/sbin/sshd")
UP_S = 30.0
BOOT = """
set -e
hierarchies=$(grep -E '^[^ ]+ [^ ]+ cgroup2? ' /proc/self/mounts)
mount --make-rprivate /
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -t tmpfs tmpfs /run
mkdir /run/sshd
mount --bind "$1" /etc/systemd/system
mount -t tmpfs tmpfs /lib/systemd/system-generators
mount -t tmpfs tmpfs /sys/fs/cgroup
echo "$hierarchies" | while read -r _ folder type options _; do
  mkdir -p "$folder"
  mount -t "$type" -o "$options" "$type" "$folder"
done
exec env container=test "$2" --system --unit=machine.target --log-target=console --show-status=0
"""
UNIT = "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart={}\nStandardOutput=null\nStandardError=null\n"
SSHD_CONFIG = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PidFile none
"""
SSH_CONFIG = """
Host {name}
  User root
  IdentityFile {folder}/key
  UserKnownHostsFile {folder}/known_hosts
  BatchMode yes
"""


@dataclass(frozen=True)
class Machine:
    """`inside`: the words of a program that runs another where the machine's name is known, with a key for it."""

    address: str
    inside: tuple[str, ...]
    folder: Path

    def secrets(self) -> list[bytes]:
        """Returns the long base64 words of the host's and the user's keys, private and public."""
        return [
            word
            for file in ("key", "host_key", "key.pub", "host_key.pub")
            for word in re.findall(rb"[A-Za-z0-9+/]{40,}", (self.folder / file).read_bytes())
        ]


@contextmanager
def machine(name: str, folder: Path, service: Sequence[str], port: int) -> Iterator[Machine]:
    """Yields a machine of this name that runs a server as `app.service`, once the port of its address answers.
    `{address}` in the server's words is that address. Where no such machine can be made, the test is skipped."""
    for needed, package in ((SYSTEMD, "systemd"), (SSHD, "openssh-server"), (shutil.which("sudo"), "sudo")):
        if needed is None or not Path(needed).exists():
            without(f"no {package} here: install Debian's package {package}")
    with other_machine() as made, cgroups(made.name) as groups:
        for key in ("key", "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", folder / key], check=True)
        (folder / "known_hosts").write_text(f"{name} {(folder / 'host_key.pub').read_text()}")
        (folder / "ssh_config").write_text(SSH_CONFIG.format(name=name, folder=folder))
        (folder / "sshd_config").write_text(SSHD_CONFIG.format(folder=folder))
        (folder / "hosts").write_text(f"{Path('/etc/hosts').read_text()}\n{made.address} {name}\n")
        units = folder / "units"
        units.mkdir()
        (units / "machine.target").write_text("[Unit]\nDefaultDependencies=no\nWants=app.service ssh.service\n")
        command = " ".join(service).replace("{address}", made.address)
        (units / "app.service").write_text(UNIT.format(command))
        (units / "ssh.service").write_text(UNIT.format(f"{SSHD} -D -f {folder}/sshd_config"))
        with booted(made, groups, units, folder / "boot.log") as process:
            deadline = time.monotonic() + UP_S
            while not all(someone_listens(made.address, each) for each in (22, port)):
                assert process.poll() is None and time.monotonic() < deadline, (folder / "boot.log").read_text()
                time.sleep(0.05)
            binds = " && ".join(
                f"mount --bind '{folder / own}' {place}"
                for own, place in (("hosts", "/etc/hosts"), ("ssh_config", "/etc/ssh/ssh_config"))
            )
            inside = ("unshare", "--mount", "sh", "-c", f'{binds} && exec "$@"', "sh")
            yield Machine(made.address, inside, folder)


@contextmanager
def booted(made: OtherMachine, groups: Sequence[Path], units: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs systemd as the first process of the machine, in these cgroups, and ends it with all that it started."""
    enter = "".join(f"echo $$ > '{group}/cgroup.procs' && " for group in groups)
    own = "unshare --pid --fork --kill-child --mount --cgroup --uts --ipc sh -c"
    words = ["nsenter", f"--net=/run/netns/{made.name}", "sh", "-c", f'{enter} exec {own} "$@"', "sh", BOOT, "sh"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*words, units, SYSTEMD], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def cgroups(name: str) -> Iterator[list[Path]]:
    """Yields a new cgroup of this name in each hierarchy of this machine, and removes it with those below it."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    # A process can only enter a cgroup of cpuset that has CPUs, and systemd limits none by it.
    tops = [Path(words[1]) for words in mounts if words[2] in ("cgroup", "cgroup2") and "cpuset" not in words[3]]
    try:
        for top in tops:
            controllers = top / "cgroup.controllers"  # of version 2
            if controllers.exists() and "cpu" in controllers.read_text().split():
                (top / "cgroup.subtree_control").write_text("+cpu")
            (top / name).mkdir()
    except OSError as error:
        without(f"no cgroup can be made here: {error}")
    try:
        yield [top / name for top in tops]
    finally:
        deadline = time.monotonic() + UP_S
        while any(file.read_text() for top in tops for file in (top / name).rglob("cgroup.procs")):
            assert time.monotonic() < deadline, "processes of the other machine are left"
            time.sleep(0.02)
        for top in tops:
            for folder, _, _ in os.walk(top / name, topdown=False):
                Path(folder).rmdir()
