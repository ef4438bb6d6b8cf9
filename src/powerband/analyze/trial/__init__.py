"""Judges one trial: its files in, its metrics, problems, series and bottleneck out."""
