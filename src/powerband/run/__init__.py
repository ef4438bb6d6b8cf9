"""Starts subjects, engines and probes, and writes the run directory; computes no statistics.

Called, it runs an experiment: `powerband.api.run`."""

from powerband.callable_module import make_callable

make_callable(__name__)
