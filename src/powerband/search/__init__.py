"""Planners: they choose the next trial from the results so far."""
