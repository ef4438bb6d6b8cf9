"""Judges all trials of a run: estimates per setting, verdicts, claims, capacity, the answer."""
