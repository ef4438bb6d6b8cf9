"""Runs one trial and writes its directory; computes no statistics."""
