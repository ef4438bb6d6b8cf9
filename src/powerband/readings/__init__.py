"""Reads what engines and probe wrote of one trial: merged summaries, histograms, samples."""
