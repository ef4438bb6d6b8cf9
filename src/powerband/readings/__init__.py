"""Reads the output of load generators and probe for one trial: merged summaries, histograms, samples."""
