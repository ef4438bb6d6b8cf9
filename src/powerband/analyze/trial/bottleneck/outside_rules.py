"""Names bottlenecks outside of the server, with which other figures say nothing of it: the load engine, and other
programs that disturbed the whole trial. Not here: other programs that take what the server lacks (`rules.py`)."""

from __future__ import annotations

from powerband.analyze.trial.bottleneck.clauses import cpu_used, verdict
from powerband.analyze.trial.bottleneck.scene import Scene
from powerband.analyze.trial.disturbance import QUIETER
from powerband.base.units import format_duration, share
from powerband.loads.measured import WAKE_UP_NS
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck

ENGINE_WAITS = 0.25  # of the window, an engine thread waited for a CPU
GENERATOR_CODES = (
    "generator_cpu",
    "generator_starved",
    "generator_lag",
    "generator_schedule",
    "generator_no_descriptors",
    "generator_no_ports",
    "generator_in_flight",
)
# Problems whose own remedy is advised, that of the first one found: more threads do not cure them, or there may be no
# CPU for one.
CURED_OTHERWISE = (
    "generator_starved",
    "generator_no_descriptors",
    "generator_no_ports",
    "generator_in_flight",
    "generator_cpu",
)
OF_THE_HYPERVISOR = f"move the trial to a machine that has its CPUs to itself, or run it {QUIETER}"


def generator(scene: Scene) -> Bottleneck | None:
    """Names the load engine if it reached a limit of its own in a trial that is invalid for that."""
    found = [scene.problems[code] for code in GENERATOR_CODES if code in scene.problems]
    if not any(problem.fatal for problem in found):
        return None
    remedies = [
        scene.problems[code].message.partition(": ")[2].rpartition("; ")[2]
        for code in CURED_OTHERWISE
        if code in scene.problems and scene.problems[code].fatal
    ]
    return verdict(
        BottleneckName.GENERATOR,
        [problem.message.partition(":")[0] for problem in found],
        advice=next(iter(remedies), ""),
    )


def starved_generator(scene: Scene) -> Bottleneck | None:
    """Names the load engine if answers lie unread in it while its threads wait for a CPU, even if they wait less than
    makes a trial invalid."""
    if scene.load_served or not engine_starves(scene):
        return None
    waited, each = share(scene.engine_wait_share), format_duration(scene.value("engine_run_wait_ns_mean"))
    evidence = [f"the load generator's threads waited for a CPU {waited} of the time, {each} each time"]
    if "subject_cpu_share" in scene.metrics:
        evidence.append(cpu_used(scene))
    return verdict(
        BottleneckName.GENERATOR,
        evidence,
        advice=f"give the load generator CPUs of its own ({scene.apart}), or another machine: it shares the server's"
        if scene.shares_cpus
        else f"stop the programs that share the load generator's CPUs, or give it others ({scene.apart})",
    )


def engine_starves(scene: Scene) -> bool:
    """True if an engine's threads wait for a CPU a quarter of the time, and longer each time than a wake-up takes."""
    return scene.engine_wait_share >= ENGINE_WAITS and scene.value("engine_run_wait_ns_mean") >= WAKE_UP_NS


def disturbed(scene: Scene) -> Bottleneck | None:
    """Names the host's CPU if other programs disturbed the trial so much that it does not count."""
    found = [scene.problems[code] for code in ("host_steal", "host_foreign") if code in scene.problems]
    if not found:
        return None
    return verdict(
        BottleneckName.HOST_CPU,
        [problem.message.partition(":")[0].partition(", more")[0] for problem in found],
        advice=OF_THE_HYPERVISOR if "host_foreign" not in scene.problems else "",
        more=scene.of_own_service,
    )
