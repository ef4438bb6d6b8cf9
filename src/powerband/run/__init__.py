"""Starts subjects, engines and probes, and writes the run directory; computes no statistics."""
