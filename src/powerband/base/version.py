"""The version of powerband; pyproject.toml must have the same."""

__version__ = "0.1.0"
