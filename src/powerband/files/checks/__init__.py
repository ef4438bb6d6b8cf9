"""Checks of an experiment file, one module for each key or idea. Each check yields problems, with their places.

Most checks work on the tree and not on the models, so that one bad value does not hide another error.
`experiment_file.py` decides their order.
"""
