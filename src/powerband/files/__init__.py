"""Turns experiment files, subject files and options into an `Experiment`, or reports every error with its place."""
