"""Checks of an experiment file, one module for each key or idea. Each yields problems, with their places.

Most work on the tree and not on the models, so that one bad value does not hide another error. Their order is
`experiment_file.py`'s.
"""
