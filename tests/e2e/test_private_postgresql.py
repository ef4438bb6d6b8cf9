"""The private PostgreSQL on a shared machine: nobody gets in without the password, and the subject's role has no access
beyond its database."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.needs import need_postgresql
from powerband.trials.postgresql import DATABASE, USER, Cluster, cluster_up

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("no_process_left")]

NOBODY = 65534


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    need_postgresql()
    with cluster_up(folder / "postgresql", folder / "postgresql.log") as up:
        up.renew()
        yield up


def psql(cluster: Cluster, user: str, sql: str, database: str = DATABASE, **environment: str) -> str:
    """The output of psql, and its complaints. If the tests run as root, psql runs as another user."""
    argv = [str(cluster.binaries / "psql"), "-h", "127.0.0.1", "-p", str(cluster.port), "-U", user, "-d", database]
    done = subprocess.run(
        [*argv, "-XwAtc", sql], capture_output=True, text=True, check=False, cwd="/", timeout=30,
        env={"PATH": os.environ["PATH"], **environment}, user=NOBODY if os.geteuid() == 0 else None,
    )  # fmt: skip
    return (done.stdout + done.stderr).strip()


@pytest.mark.parametrize("user", [USER, "powerband_superuser", "postgres"])
def test_another_user_without_the_password_does_not_get_in(user: str, cluster: Cluster) -> None:
    for database in (DATABASE, "postgres"):
        said = psql(cluster, user, "COPY (SELECT 1) TO PROGRAM 'id'", database)
        assert "no password supplied" in said or "password authentication failed" in said
        assert "password authentication failed" in psql(cluster, user, "SELECT 1", database, PGPASSWORD="powerband")


def test_the_subjects_role_owns_its_database_and_is_no_superuser(cluster: Cluster) -> None:
    password = {"PGPASSWORD": cluster.password}
    assert psql(cluster, USER, "CREATE TABLE t (a int); INSERT INTO t VALUES (7); TABLE t", **password).endswith("7")
    assert "superuser or have privileges" in psql(cluster, USER, "COPY t FROM PROGRAM 'echo 1'", **password)
    assert "permission denied" in psql(cluster, USER, "SELECT pg_read_file('postgresql.conf')", **password)
    assert "permission denied" in psql(cluster, USER, "SELECT 1", "postgres", **password)
    cluster.renew()
    assert "does not exist" in psql(cluster, USER, "TABLE t", **password), "each trial has a fresh database"


def test_statements_that_fail_do_not_fill_its_log(cluster: Cluster, folder: Path) -> None:
    said = psql(cluster, USER, "SELECT 1/0", PGPASSWORD=cluster.password)
    log = (folder / "postgresql.log").read_text()
    assert "division by zero" in said and "division by zero" not in log
    assert "ready to accept connections" in log


def test_passwords_stand_in_no_command_and_in_files_of_ours_alone(cluster: Cluster) -> None:
    assert cluster.password_file.read_text() == cluster.password
    assert stat.S_IMODE(cluster.password_file.stat().st_mode) == 0o600
    assert cluster.password_file.stat().st_uid == os.geteuid()
    assert cluster.superuser_password not in repr(cluster) and cluster.password not in repr(cluster)
    commands = [command for path in Path("/proc").glob("[0-9]*/cmdline") if (command := read(path))]
    assert commands and not any(cluster.password.encode() in command for command in commands)
    home = cluster.password_file.parent
    assert sorted(path.name for path in home.iterdir()) == ["data", "password"]
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def read(path: Path) -> bytes:
    """The file of a process, which may have ended meanwhile, or be closed to this user: then nothing."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
