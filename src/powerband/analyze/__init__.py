"""Reads run directories and turns them into measurements, intervals and verdicts; starts nothing."""
