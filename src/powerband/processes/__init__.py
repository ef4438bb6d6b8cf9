"""Starts, pins, watches and ends processes: engines, probe, subject. Decides nothing and computes no statistics."""
