"""A PostgreSQL for planted servers, which is not below powerband's processes."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakes.cgroups import of_cpus
from powerband.trials.postgresql import DATABASE, USER, cluster_up

PERIOD_US = 10_000  # so short that all queries take about as long
# Unlogged, so that the row is locked for as long as the query sleeps, and not for as long as the disk takes.
TABLE = "create unlogged table counter (n int); insert into counter values (0)"


@contextmanager
def database_up(cpus: float) -> Iterator[str]:
    """Yields the address of a PostgreSQL that may use so many CPUs, with a table of one row; for 0 CPUs an empty
    address."""
    if not cpus:
        yield ""
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        of_cpus(cpus, PERIOD_US) as group,
        cluster_up(Path(folder) / "cluster", Path(folder) / "log") as cluster,
    ):
        # This process starts those that serve connections, so they are in the cgroup too.
        (group / "cgroup.procs").write_text(str(cluster.pid))
        cluster.renew()
        account = f"user={USER}&password={cluster.password}"
        address = f"postgresql://127.0.0.1:{cluster.port}/{DATABASE}?{account}"
        subprocess.run([cluster.binaries / "psql", "-Xq", address, "-c", TABLE], check=True, timeout=60)
        yield address
