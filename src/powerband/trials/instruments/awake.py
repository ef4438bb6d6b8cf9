"""Keeps the trial's CPUs from sleeping while it is loaded: a loop of idle priority on each of them.

A hypervisor gives a CPU that sleeps to others, and takes time to give it back: on such machines some steal comes with
sleep. Not here: what the loops ran, which the probe watches and `readings/probe_samples.py` takes off the host's CPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from powerband.processes.engine_process import Pump
from powerband.processes.subject_process import RunningSubject
from powerband.trials.instruments.instrument import Instrument

# Ends with the process that started it, whatever becomes of that (1: PR_SET_PDEATHSIG, 9: SIGKILL).
LOOP = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.sched_setaffinity(0, {int(sys.argv[2])})
    try:
        open("/proc/self/autogroup", "w").write("19")
    except OSError:
        pass
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.write(1, b"x")
    while True:
        pass
"""


class Awake(Instrument):
    """`cpus`: those that the trial uses."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._cpus = cpus

    @contextmanager
    def around_load(self, subject: RunningSubject, pump: Pump) -> Iterator[None]:
        with ExitStack() as loops:
            for process in [loops.enter_context(_loop(cpu)) for cpu in self._cpus]:
                assert process.stdout is not None
                if process.stdout.read(1):  # else it ended: a CPU that is not there any more
                    subject.probe.watch(f"awake-{process.pid}", process.pid)
            yield


@contextmanager
def _loop(cpu: int) -> Iterator[subprocess.Popen[bytes]]:
    """In a session of its own, which has the least weight: where the scheduler shares a CPU between sessions
    (autogroups), it does not ask for the priorities within: a loop had half of a CPU beside a server that computes."""
    argv = [sys.executable, "-I", "-S", "-c", LOOP, str(os.getpid()), str(cpu)]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()
