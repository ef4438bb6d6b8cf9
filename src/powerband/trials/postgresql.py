"""Runs a private PostgreSQL for the length of a run: a cluster of its own from the installed binaries, on a free port
of loopback, removed at the end. It has PostgreSQL's defaults except for what keeps it private, for the maximum number
of connections and for its log, which has no errors of the subject's statements; nothing is tuned.

Every connection needs a password (SCRAM), which is new in each run. The subject's role owns its database and is no
superuser: it can neither read the server's files nor start programs.

PostgreSQL refuses to run as root; if powerband is root, it runs as the user `postgres`, or `nobody`.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from powerband.base.errors import SubjectError
from powerband.processes.ports import pick_port
from powerband.store import open_private

USER = "powerband"
DATABASE = "powerband"
_SUPERUSER = "powerband_superuser"
_NEEDED = ("initdb", "postgres", "pg_isready", "psql", "createdb", "dropdb")
_INSTALLED = ("/usr/lib/postgresql", "/usr/pgsql", "/usr/local/pgsql", "/opt/homebrew/opt")
_SERVES_WITHIN_S = 30.0  # arbitrary: it takes under a second, on a slow disk some seconds
_STOPS_WITHIN_S = 20.0  # after each signal: a fast shutdown writes dirty pages
_CONNECTIONS_MAX = 300  # three times PostgreSQL's default, so that a pool that is varied does not reach it
_PREFIX = "powerband-postgresql-"
_ELSEWHERE = "postgresql.home"  # beside the folder: names the folder that was taken instead
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class _Account:
    """The user that runs the cluster; `id` None: this user."""

    id: int | None = None
    group: int | None = None

    def options(self) -> dict[str, object]:
        return {} if self.id is None else {"user": self.id, "group": self.group, "extra_groups": []}


@dataclass(frozen=True)
class Cluster:
    """A PostgreSQL that serves. `binaries`: the folder of its programs; `port`: on 127.0.0.1; `pid`: its first process;
    `account`: the user that it runs as. `password`: that of the subject's role; `password_file` holds it, readable by
    this user only; `superuser_password`: that of the role that makes databases, which the subject does not get."""

    binaries: Path
    port: int
    pid: int
    account: _Account
    password: str = field(repr=False)
    password_file: Path
    superuser_password: str = field(repr=False)

    def renew(self) -> None:
        """Makes the database anew, empty; connections to the old one are ended. Raises SubjectError."""
        try:
            self._run("dropdb", "--if-exists", "--force", DATABASE)
            self._run("createdb", "--owner", USER, DATABASE)
        except SubjectError as error:
            raise SubjectError(
                f"{error}: the private PostgreSQL may have been killed (postgresql.log of the run); `powerband resume` "
                "starts a new one"
            ) from None

    def add_subject_role(self) -> None:
        """Adds the role that owns the subject's database; it cannot connect to the other databases. What happens in its
        sessions is told to the subject, and is not logged: each statement that fails would add lines. Raises
        SubjectError."""
        self._run("psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-d", "postgres", sql=(
            f"CREATE ROLE {USER} LOGIN PASSWORD '{self.password}'; "
            f"ALTER ROLE {USER} SET log_min_messages = panic; "
            "REVOKE CONNECT ON DATABASE postgres, template1 FROM PUBLIC;"
        ))  # fmt: skip

    def _run(self, program: str, *words: str, sql: str = "") -> None:
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", _SUPERUSER, "--no-password"]
        _run(self.binaries, [program, *where, *words], self.account, sql, PGPASSWORD=self.superuser_password)


@contextmanager
def cluster_up(folder: Path, log: Path, cpus: Sequence[int] = ()) -> Iterator[Cluster]:
    """Makes a cluster in `folder` (elsewhere if its user may not enter that), serves, and removes it on leaving.

    `log`: receives PostgreSQL's output. `cpus`: those that it may use; empty: all. Raises SubjectError if PostgreSQL is
    not installed, may not run here, or does not serve."""
    binaries, account = find_binaries(), _account()
    home = _home(folder, account)
    password, superuser_password = secrets.token_hex(16), secrets.token_hex(16)
    try:
        data, password_file, initial_file = home / "data", home / "password", home / "initial"
        for path, secret in ((password_file, password), (initial_file, superuser_password)):
            with open_private(path, "x") as file:
                file.write(secret)
        if account.id is not None and account.group is not None:
            for path in (initial_file, home):
                os.chown(path, account.id, account.group)
        _run(binaries, ["initdb", "-D", str(data), "-U", _SUPERUSER, "-A", "scram-sha-256", "--pwfile",
                        str(initial_file), "--no-sync", "--locale=C", "-E", "UTF8"], account)  # fmt: skip
        initial_file.unlink()
        port = pick_port()
        argv = [str(binaries / "postgres"), "-D", str(data), "-p", str(port)]
        argv += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        argv += ["-c", f"max_connections={_CONNECTIONS_MAX}"]
        with open_private(log, "wb") as said:
            # No other thread runs while a run is opened, so that code before exec is safe.
            server = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=home, env=_ENVIRONMENT,
                start_new_session=True, preexec_fn=lambda: _prepare(cpus), **account.options(),  # noqa: PLW1509
            )  # type: ignore[call-overload]  # fmt: skip
        try:
            _wait_until_it_serves(binaries, port, server, log, account)
            cluster = Cluster(binaries, port, server.pid, account, password, password_file, superuser_password)
            cluster.add_subject_role()
            yield cluster
        finally:
            _stop(server)
    finally:
        shutil.rmtree(home, ignore_errors=True)
        folder.with_name(_ELSEWHERE).unlink(missing_ok=True)


def find_binaries(environment: Mapping[str, str] | None = None, installed: Sequence[str] = _INSTALLED) -> Path:
    """The folder with PostgreSQL's programs: POSTGRESQL_BIN, then PATH, then the newest of the usual places.

    Raises SubjectError, which names the places searched."""
    env = os.environ if environment is None else environment
    places = [Path(env["POSTGRESQL_BIN"])] if env.get("POSTGRESQL_BIN") else []
    if found := shutil.which("initdb", path=env.get("PATH", os.defpath)):
        places.append(Path(found).parent)
    for root in installed:
        versions = [*Path(root).glob("*/bin"), *Path(root).parent.glob(f"{Path(root).name}-*/bin"), Path(root) / "bin"]
        places += sorted(versions, key=_version, reverse=True)
    for place in places:
        if all(os.access(place / name, os.X_OK) for name in _NEEDED):
            return place
    looked = ", ".join(["POSTGRESQL_BIN", "PATH", *(f"{root}/*/bin" for root in installed)])
    raise SubjectError(
        f"this setting needs PostgreSQL, and its programs ({', '.join(_NEEDED)}) were not found (looked at {looked}): "
        "install it (Debian, Ubuntu: postgresql), or set POSTGRESQL_BIN to the folder that holds them; with "
        "--set subject.set.database=h2 the server may do without, if it offers that"
    )


_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _version(folder: Path) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", str(folder))]


def _account() -> _Account:
    """The user to run PostgreSQL as. Raises SubjectError if powerband is root and there is no other user for it."""
    if os.geteuid() != 0:
        return _Account()
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return _Account(entry.pw_uid, entry.pw_gid)
    raise SubjectError(
        "PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as: add one, or run "
        "powerband as another user"
    )


def _home(folder: Path, account: _Account) -> Path:
    """Makes an empty folder for the cluster: `folder` itself, or a temporary one if the account cannot enter that. What
    a killed run left behind is removed."""
    folder = folder.absolute()
    elsewhere = folder.with_name(_ELSEWHERE)
    if elsewhere.is_file():  # left by a run that was killed
        left = Path(elsewhere.read_text())
        if left.name.startswith(_PREFIX) and left.is_dir() and left.stat().st_uid == account.id:
            shutil.rmtree(left, ignore_errors=True)
        elsewhere.unlink()
    if account.id is None or all(parent.stat().st_mode & 0o001 for parent in folder.parents):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        home = folder
    else:
        home = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with open_private(elsewhere, "w") as file:
            file.write(str(home))
    return home


def _prepare(cpus: Sequence[int]) -> None:
    """Prepares the new process, in that process: it will end if powerband is killed, and stays on its CPUs."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGQUIT), 0, 0, 0)
    if cpus:
        os.sched_setaffinity(0, cpus)


def _run(binaries: Path, words: Sequence[str], account: _Account, sql: str = "", **environment: str) -> None:
    """Runs a program of PostgreSQL, out of reach of Ctrl-C in the terminal. Raises SubjectError if it fails."""
    done = subprocess.run(
        [str(binaries / words[0]), *words[1:]], input=sql.encode(), capture_output=True, check=False, cwd="/",
        env={**_ENVIRONMENT, **environment}, start_new_session=True, **account.options(),
    )  # type: ignore[call-overload]  # fmt: skip
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip() or done.stdout.decode(errors="replace").strip()
        raise SubjectError(f"PostgreSQL's {words[0]} failed (exit code {done.returncode}): {said[-500:]}")


def _wait_until_it_serves(
    binaries: Path, port: int, server: subprocess.Popen[bytes], log: Path, account: _Account
) -> None:
    asked = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    options = {"cwd": "/", "env": _ENVIRONMENT, "start_new_session": True, **account.options()}
    deadline = time.monotonic() + _SERVES_WITHIN_S
    while subprocess.run(asked, check=False, **options).returncode != 0:  # type: ignore[call-overload]
        ended = server.poll()
        if ended is not None or time.monotonic() > deadline:
            what = f"ended (exit code {ended})" if ended is not None else f"did not serve within {_SERVES_WITHIN_S:g} s"
            said = log.read_text(errors="replace").strip().splitlines()[-4:]
            raise SubjectError(f"the private PostgreSQL {what}; its last log lines: {' | '.join(said) or 'none'}")
        time.sleep(0.05)


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Asks for a fast shutdown, which ends all connections; then for an immediate one; then kills it."""
    for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if server.poll() is None:
            server.send_signal(how)
        try:
            server.wait(_STOPS_WITHIN_S)
            return
        except subprocess.TimeoutExpired:
            continue
