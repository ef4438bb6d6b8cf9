"""Nodes of a Ray cluster as places where trials run. Ray places, starts and watches; nothing is timed through it."""
