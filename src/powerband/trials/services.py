"""Runs services beside a subject: a database for the length of a run, a link between its two processes for the length
of a trial. `subject.services` says which settings use one.

In: an experiment. Out: `Services`, which fill in placeholders, are renewed before each trial that uses them, and are
watched by the probe as process trees of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from powerband.base.errors import SubjectError
from powerband.loads import kind_of
from powerband.model.experiment import Experiment, Subject
from powerband.model.plan import Setting
from powerband.model.subjects import link_of, uses
from powerband.processes.cpus import cpu_split
from powerband.processes.engine_fleet import find_engine
from powerband.processes.engine_process import Pump
from powerband.processes.host import usable_cores
from powerband.store import RunDir
from powerband.trials.instruments.link import Link, check_link, link_up
from powerband.trials.postgresql import DATABASE, USER, Cluster, cluster_up
from powerband.wire.link_messages import LinkSpec


@dataclass(frozen=True)
class Services:
    """The services of a run. `subject`: the server that uses them, at some settings. `toolchain`: the values of the
    placeholders of `processes/toolchain.py`, found once for the run, so that sources edited meanwhile are not measured.
    `postgresql`: None if no setting of this run uses it."""

    subject: Subject
    toolchain: Mapping[str, str]
    postgresql: Cluster | None = None

    def given(self, setting: Setting) -> dict[str, str]:
        """The values of the built-in placeholders, except ports; those of services that the setting does not use are
        empty."""
        cluster = self._used_by(setting)
        if cluster is None:
            return dict(self.toolchain)
        return {
            **self.toolchain,
            "postgresql_port": str(cluster.port),
            "postgresql_user": USER,
            "postgresql_database": DATABASE,
            "postgresql_password": cluster.password,
            "postgresql_password_file": str(cluster.password_file),
        }

    def renew(self, setting: Setting) -> None:
        """Empties the database if the setting uses one, since a trial is a fresh start. Raises SubjectError."""
        cluster = self._used_by(setting)
        if cluster is not None:
            cluster.renew()

    def watched(self, setting: Setting) -> Mapping[str, int]:
        """The process trees of the setting's services that the probe must watch: pid by name."""
        cluster = self._used_by(setting)
        return {} if cluster is None else {"postgresql": cluster.pid}

    @contextmanager
    def linked(self, setting: Setting, engine: Path, stderr_file: Path, pump: Pump) -> Iterator[Link | None]:
        """Makes the link of a setting that uses one, until the block is left; yields None for any other setting. Within
        the block the calling thread is at the link's end A.

        Raises TrialFailed(link_failed)."""
        if not uses(self.subject, "link", setting):
            yield None
            return
        delay_ns, rate = link_of(self.subject, setting)
        with link_up(engine, LinkSpec(delay_ns=delay_ns, rate_bits_per_s=rate), stderr_file, pump) as link:
            yield link

    def _used_by(self, setting: Setting) -> Cluster | None:
        return self.postgresql if uses(self.subject, "postgresql", setting) else None


def check_services(experiment: Experiment) -> None:
    """Checks services before anything is built or started. Raises SubjectError if a setting uses a link and this
    machine cannot make one, or if the link would cut the setting off from its database."""
    subject = experiment.subject
    users = [setting for setting in experiment.settings() if uses(subject, "link", setting)]
    for setting in users:
        if uses(subject, "postgresql", setting):
            raise SubjectError(
                f"{setting.id} asks for a link and for PostgreSQL, which cannot be reached from the link's network "
                "namespaces: let `when` of subject.services keep them apart"
            )
    if users:
        check_link(find_engine())


@contextmanager
def services_up(experiment: Experiment, run: RunDir, given: Mapping[str, str]) -> Iterator[Services]:
    """Starts the services that any setting uses, until the block is left. `given`: the values of the subject's built-in
    placeholders. Raises SubjectError if a service is not installed or does not serve."""
    subject = experiment.subject
    users = [setting for setting in experiment.settings() if uses(subject, "postgresql", setting)]
    if not users:
        yield Services(subject, given)
        return
    threads = kind_of(experiment).threads_here(experiment, experiment.load_for(users[0]))
    cpus = cpu_split(usable_cores(), experiment.host_dealt, threads).subject
    with cluster_up(run.path / "postgresql", run.path / "postgresql.log", cpus) as cluster:
        yield Services(subject, given, cluster)
