"""Runs trials on the nodes of a Ray cluster. Ray places, starts and watches; nothing is timed through it."""
