"""Follows a run while it goes on."""
