"""Checks of an experiment file, one module for each key or idea. Each adds problems, at the places where they are.

Most work on the tree and not on the models, so that one bad value does not hide another error. Their order is
`experiment_file.py`'s.
"""
