"""Powerband: a test bench that finds a server's best concurrency setting."""

__version__ = "0.1.0"
