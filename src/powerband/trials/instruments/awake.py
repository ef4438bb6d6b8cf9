"""Keeps the trial's CPUs from sleeping while it is loaded: a loop of idle priority on each of them.

A hypervisor gives a sleeping CPU to other guests and takes time to give it back, so that on such machines part of the
steal comes from sleep. Not here: the CPU time of the loops, which the probe measures and `readings/probe_samples.py`
subtracts from the host's.
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

# It ends with the process that started it, however that ends (1: PR_SET_PDEATHSIG, 9: SIGKILL).
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
    """Runs the loops while the trial is loaded. `cpus`: the CPUs that the trial uses."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._cpus = cpus

    @contextmanager
    def around_load(self, subject: RunningSubject, pump: Pump) -> Iterator[None]:
        """Runs the loops, and has the probe watch each as a tree of its own."""
        with ExitStack() as loops:
            for process in [loops.enter_context(_loop(cpu)) for cpu in self._cpus]:
                assert process.stdout is not None
                if process.stdout.read(1):  # else it has ended, since its CPU is not there any more
                    subject.probe.watch(f"awake-{process.pid}", process.pid)
            yield


@contextmanager
def _loop(cpu: int) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a loop on one CPU. It has a session of its own, of the least weight: a scheduler that shares a CPU between
    sessions (autogroups) ignores priorities within them, and gave a loop half of the CPU beside a busy server."""
    argv = [sys.executable, "-I", "-S", "-c", LOOP, str(os.getpid()), str(cpu)]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()
