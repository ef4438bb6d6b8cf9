"""Benchmarks: speeds measured side by side and printed as ratios. Nothing here is part of the package or asserts
anything."""
