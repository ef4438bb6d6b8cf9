"""Decides which trial comes next, from the history of those that were."""
