"""Reads the output of load generators and monitor for one trial: merged summaries, histograms, samples."""
