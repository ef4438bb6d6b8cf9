"""The instruments of a trial, one in each file: the link, a browser, heap snapshots, acknowledged writes, thread names,
slots, live heaps, Go's collectors, runtimes, figures of .NET, other programs, CPUs kept awake, the final figures in the
server's log.

A new instrument needs a file here, a line in `instruments_of`, a field of `TrialRecord`, and its use in `analyze/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from powerband.loads import kind_of
from powerband.loads.driver import TrialSetup
from powerband.model.plan import Stage
from powerband.trials.instruments.acknowledged_writes import AcknowledgedWrites
from powerband.trials.instruments.awake import Awake
from powerband.trials.instruments.dotnet_figures import DotnetFigures
from powerband.trials.instruments.final_figures import FinalFigures
from powerband.trials.instruments.go_collector import GoCollector
from powerband.trials.instruments.heap_snapshots import HeapSnapshots
from powerband.trials.instruments.instrument import Instrument
from powerband.trials.instruments.link import Linked, LinkInstrument
from powerband.trials.instruments.live_heap import LiveHeap
from powerband.trials.instruments.neighbours import Neighbours
from powerband.trials.instruments.runtime_views import RuntimeViews
from powerband.trials.instruments.slot_looks import SlotLooks
from powerband.trials.instruments.thread_names import ThreadNames
from powerband.trials.instruments.visitor import BrowserVisitor


def instruments_of(
    setup: TrialSetup, linked: Linked, phases: Mapping[str, int], announce: Callable[[str], None]
) -> list[Instrument]:
    """The instruments of this trial, in the order in which their hooks are called. `linked`: opens the link that the
    setting uses; `phases`: when each phase of the trial began, as far as it has; `announce`: gets the name of a phase
    that takes time."""
    measure = setup.experiment.measure
    # Trials that only search for settings or rates spend no time on more observations.
    compared = setup.spec.stage in (Stage.COMPARE, Stage.CONFIRM, Stage.SOAK)
    # Slots are looked at once for each setting, in its first full trial. If short trials alone decided the race, that
    # is the second block that confirms, in which the winner runs alone.
    screens = setup.experiment.screen_blocks
    looked = {Stage.COMPARE: screens, Stage.CONFIRM: screens + 1 if screens else None}
    first = setup.spec.block == looked.get(setup.spec.stage)
    kind = kind_of(setup.experiment)
    slots = [SlotLooks(setup, phases, announce)] if first and kind.counts_slots(setup.experiment, setup.load) else []
    if setup.experiment.subject.deployed is not None:
        # Only instruments that need not find the server's processes, nor tell them from those of other programs.
        return [
            *([BrowserVisitor(setup)] if measure.visitor else []),
            *([AcknowledgedWrites(measure.acknowledged, announce)] if measure.acknowledged and compared else []),
            *slots,
        ]
    return [
        LinkInstrument(linked),
        *([BrowserVisitor(setup)] if measure.visitor else []),
        *([HeapSnapshots(setup, announce)] if measure.snapshots and compared else []),
        *([AcknowledgedWrites(measure.acknowledged, announce)] if measure.acknowledged and compared else []),
        DotnetFigures(setup),
        ThreadNames(),
        RuntimeViews(),
        GoCollector(),
        Neighbours(),
        *([Awake(setup.awake_cpus)] if setup.awake_cpus else []),
        *slots,
        *([LiveHeap()] if compared and not measure.snapshots else []),
        FinalFigures(setup),
    ]
